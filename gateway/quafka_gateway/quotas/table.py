"""The quotas of all orgs, brought up to date from the gateway's copy of the records. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from quafka_gateway.quotas.kinds import QuotaKind
from quafka_gateway.quotas.org import SERVED, Opening, OrgQuotas
from quafka_gateway.quotas.precedence import QuotaTable
from quafka_gateway.quotas.windows import WindowSettings
from quafka_gateway.security.directory import Directory
from quafka_gateway.tenant import Tenant
from quafka_mesh_ops.ops.security import SecurityChange

_USERS_COUNTED = 20
_OTHERS = ""
OTHER_ORGS = 0
"""The org that stands for all orgs that are not counted separately."""


class Throttled(NamedTuple):
    """For how long the clients of a user were made to wait."""

    org: int
    user: str
    kind: QuotaKind
    seconds: float


class Quotas:
    """The quotas of the orgs that have any: no others are in `orgs`, so most look-ups end there."""

    def __init__(
        self, directory: Directory, settings: WindowSettings, orgs_counted: int = 100
    ) -> None:
        """`orgs_counted`: the number of orgs whose throttled time is counted separately."""
        self._directory = directory
        self._orgs_counted = orgs_counted
        self._settings = settings
        self.orgs: dict[int, OrgQuotas] = {}
        self._throttled: dict[int, dict[tuple[str, QuotaKind], float]] = {}
        directory.listen(self._changed)
        self._changed(None)

    def of(self, tenant: Tenant) -> OrgQuotas | None:
        """The quotas of an org; None: it has none at all."""
        return self.orgs.get(tenant.org_id) if self.orgs else None

    def open_connection(self, tenant: Tenant, host: str, now: float) -> Opening:
        """Count a new connection to an org from an address."""
        org = self.of(tenant)
        return SERVED if org is None else org.open_connection(host, now)

    def count(self, tenant: Tenant, user: str, kind: QuotaKind, seconds: float) -> None:
        """Count the time that a client must wait; orgs and users beyond a bound together."""
        org_id = tenant.org_id
        if org_id not in self._throttled and len(self._throttled) >= self._orgs_counted:
            org_id = OTHER_ORGS
        its = self._throttled.setdefault(org_id, {})
        key = user, kind
        if key not in its and len(its) >= _USERS_COUNTED:
            key = _OTHERS, kind
        its[key] = its.get(key, 0.0) + seconds

    def throttled(self) -> Iterator[Throttled]:
        """All that was counted; the empty user: those that are not counted separately."""
        for org_id, its in self._throttled.items():
            for (user, kind), seconds in its.items():
                yield Throttled(org_id, user, kind, seconds)

    @property
    def windows(self) -> int:
        """The windows of all orgs."""
        return sum(org.windows for org in self.orgs.values())

    @property
    def overflows(self) -> int:
        """How often clients of the orgs that have quotas had to share a window."""
        return sum(org.overflows for org in self.orgs.values())

    def _changed(self, changes: list[SecurityChange] | None) -> None:
        for org_id in self._concerned(changes):
            self._set(org_id)

    def _concerned(self, changes: list[SecurityChange] | None) -> Iterable[int]:
        if changes is None:
            return {*self._directory.orgs(), *self._directory.quota_orgs(), *self.orgs}
        orgs = {change.org.org_id for change in changes if change.org is not None}
        return orgs | {change.quota.org_id for change in changes if change.quota is not None}

    def _set(self, org_id: int) -> None:
        table = QuotaTable(self._directory.quotas(org_id))
        org = self._directory.org(org_id)
        quotas = self.orgs.get(org_id) or OrgQuotas(self._settings)
        quotas.set(table, () if org is None else org.limits)
        if quotas:
            self.orgs[org_id] = quotas
        else:
            self.orgs.pop(org_id, None)
        if org is None and not quotas:
            self._throttled.pop(org_id, None)
