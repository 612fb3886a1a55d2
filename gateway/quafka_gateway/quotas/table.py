"""The quotas of all orgs, brought up to date from the gateway's copy of the records. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from quafka_gateway.quotas.kinds import Kind
from quafka_gateway.quotas.org import SERVED, Opening, OrgQuotas
from quafka_gateway.quotas.precedence import QuotaTable
from quafka_gateway.quotas.windows import WindowSettings
from quafka_gateway.security.directory import Directory
from quafka_gateway.tenant import Tenant
from quafka_mesh_ops.ops.security import SecurityChange

_USERS_COUNTED = 100
_OTHERS = ""


class Throttled(NamedTuple):
    """For how long the clients of a user were made to wait."""

    org_id: int
    user: str
    kind: Kind
    seconds: float


class Quotas:
    """The quotas of the orgs that have any: no others are in `orgs`, so most look-ups end there."""

    def __init__(self, directory: Directory, settings: WindowSettings) -> None:
        self._directory = directory
        self._settings = settings
        self.orgs: dict[int, OrgQuotas] = {}
        self._throttled: dict[int, dict[tuple[str, Kind], float]] = {}
        directory.listen(self._changed)
        self._changed(None)

    def of(self, tenant: Tenant) -> OrgQuotas | None:
        """The quotas of an org; None: it has none at all."""
        return self.orgs.get(tenant.org_id) if self.orgs else None

    def open_connection(self, tenant: Tenant, host: str, now: float) -> Opening:
        """Count a new connection to an org from an address."""
        org = self.of(tenant)
        return SERVED if org is None else org.open_connection(host, now)

    def count(self, tenant: Tenant, user: str, kind: Kind, seconds: float) -> None:
        """Count the time that a client must wait; the users of an org beyond a bound together."""
        its = self._throttled.setdefault(tenant.org_id, {})
        key = user, kind
        if key not in its and len(its) >= _USERS_COUNTED:
            key = _OTHERS, kind
        its[key] = its.get(key, 0.0) + seconds

    def throttled(self) -> Iterator[Throttled]:
        """All that was counted."""
        for org_id, its in self._throttled.items():
            for (user, kind), seconds in its.items():
                yield Throttled(org_id, user, kind, seconds)

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
