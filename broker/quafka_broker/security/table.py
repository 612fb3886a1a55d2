"""The table of orgs, users, rules and quotas, built by applying events. Pure: no I/O, no clock.

Each change has its own version, which counts up from 0 in every run of the broker. `after` yields
the last change of each record, in the order of versions, so a reader that has seen all changes up
to a version can continue from there. The table keeps a bounded number of removed records; a reader
that has missed one of the others must begin anew.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from typing import NamedTuple

from quafka_broker.security import events
from quafka_broker.security.events import (
    Event,
    IdTaken,
    OrgGone,
    OrgSet,
    QuotaSet,
    RulesAdded,
    RulesRemoved,
    SecretMade,
    UserSet,
)
from quafka_mesh_ops.ops.security import (
    AclRecord,
    OrgRecord,
    QuotaRecord,
    SecurityChange,
    UserRecord,
)

REMOVALS_KEPT = 10_000
_LEAST_ROWS = 1_000

EntityKey = tuple[tuple[str, str | None], ...]
"""The parts of a quota's entity, in the order of their kinds."""

_Key = tuple[int, str | EntityKey | AclRecord | None]
"""A record's org, and its user's name, its entity, or the rule; None for the org itself."""


class RecordChange(NamedTuple):
    """The last change of a record."""

    version: int
    org: int
    change: SecurityChange


@dataclass(slots=True)
class OrgSecurity:
    """The users, rules and quotas of one org."""

    users: dict[str, UserRecord] = field(default_factory=dict[str, UserRecord])
    rules: dict[AclRecord, None] = field(default_factory=dict[AclRecord, None])
    quotas: dict[EntityKey, QuotaRecord] = field(default_factory=dict[EntityKey, QuotaRecord])


_NOTHING = OrgSecurity()


class SecurityTable:
    """The state built from the events."""

    def __init__(self, removals_kept: int = REMOVALS_KEPT) -> None:
        self.orgs: dict[int, OrgRecord] = {}
        self.last_org = 0
        """The highest id that an org has ever had."""
        self.secret = b""
        """The secret of the cluster's gateways; empty before the first request for it."""
        self.version = -1
        """The version of the last change."""
        self.floor = -1
        """A reader that began earlier and has seen no later version must begin anew."""
        self._of: dict[int, OrgSecurity] = {}
        self._changes: dict[_Key, RecordChange] = {}
        self._rows: list[tuple[int, _Key]] = []  # versions in order; some are outdated
        self._removals: deque[tuple[int, _Key]] = deque()
        self._removals_kept = removals_kept

    def __len__(self) -> int:
        """The number of records."""
        return sum(self.counts())

    def of(self, org: int) -> OrgSecurity:
        """The records of an org. Do not change them."""
        return self._of.get(org, _NOTHING)

    def org_named(self, name: str) -> OrgRecord | None:
        """An org by its name."""
        return next((org for org in self.orgs.values() if org.name == name), None)

    def counts(self) -> tuple[int, int, int, int]:
        """The number of orgs, users, rules and quota entities."""
        its = self._of.values()
        return (
            len(self.orgs), sum(len(o.users) for o in its), sum(len(o.rules) for o in its),
            sum(len(o.quotas) for o in its),
        )  # fmt: skip

    # --- changes ----------------------------------------------------------------------------

    def apply(self, event: Event) -> None:
        """Apply an event. Events may be applied repeatedly."""
        if isinstance(event, UserSet):
            self._set_user(event)
        elif isinstance(event, RulesAdded):
            self._add_rules(event)
        elif isinstance(event, RulesRemoved):
            for rule in event.rules:
                self._remove_rule(events.acl_record(event.org, rule))
        elif isinstance(event, QuotaSet):
            self._set_quota(event)
        elif isinstance(event, SecretMade):
            self.secret = self.secret or event.secret
        else:
            self._apply_to_org(event)

    def _apply_to_org(self, event: OrgSet | OrgGone | IdTaken) -> None:
        self.last_org = max(self.last_org, event.org)
        if isinstance(event, OrgSet):
            record = self.orgs[event.org] = events.org_record(event)
            self._put((event.org, None), SecurityChange(False, org=record))
        elif isinstance(event, OrgGone):
            org = self.orgs.pop(event.org, None)
            if org is not None:
                self._remove((event.org, None), SecurityChange(True, org=org))

    def _add_rules(self, event: RulesAdded) -> None:
        its = self._of.setdefault(event.org, OrgSecurity())
        for rule in event.rules:
            acl = events.acl_record(event.org, rule)
            if acl not in its.rules:
                its.rules[acl] = None
                self._put((event.org, acl), SecurityChange(False, acl=acl))

    def _set_user(self, event: UserSet) -> None:
        its = self._of.setdefault(event.org, OrgSecurity())
        key = (event.org, event.name)
        if event.credentials:
            user = its.users[event.name] = events.user_record(event)
            self._put(key, SecurityChange(False, user=user))
        elif its.users.pop(event.name, None) is not None:
            gone = UserRecord(event.org, event.name, [])
            self._remove(key, SecurityChange(True, user=gone))
        self._forget_if_empty(event.org)

    def _remove_rule(self, acl: AclRecord) -> None:
        its = self._of.get(acl.org_id)
        if its is not None and acl in its.rules:
            del its.rules[acl]
            self._remove((acl.org_id, acl), SecurityChange(True, acl=acl))
            self._forget_if_empty(acl.org_id)

    def _set_quota(self, event: QuotaSet) -> None:
        its = self._of.setdefault(event.org, OrgSecurity())
        entity = entity_key(event.entity)
        quota = events.quota_record(event)
        if event.values:
            its.quotas[entity] = quota
            self._put((event.org, entity), SecurityChange(False, quota=quota))
        elif its.quotas.pop(entity, None) is not None:
            self._remove((event.org, entity), SecurityChange(True, quota=quota))
        self._forget_if_empty(event.org)

    def _forget_if_empty(self, org: int) -> None:
        its = self._of.get(org)
        if its is not None and not (its.users or its.rules or its.quotas):
            del self._of[org]

    # --- versions ---------------------------------------------------------------------------

    def _put(self, key: _Key, change: SecurityChange) -> None:
        self.version += 1
        self._changes.pop(key, None)
        self._changes[key] = RecordChange(self.version, key[0], change)
        self._rows.append((self.version, key))
        if len(self._rows) > 2 * len(self._changes) + _LEAST_ROWS:
            self._rows = [(change.version, key) for key, change in self._changes.items()]

    def _remove(self, key: _Key, change: SecurityChange) -> None:
        self._put(key, change)
        self._removals.append((self.version, key))
        while len(self._removals) > self._removals_kept:
            version, oldest = self._removals.popleft()
            found = self._changes.get(oldest)
            if found is not None and found.version == version:
                del self._changes[oldest]
                self.floor = version

    def after(self, version: int, most: int) -> tuple[Sequence[RecordChange], int]:
        """The changes in the next `most` rows after a version, and the version that they reach."""
        start = bisect_right(self._rows, version, key=itemgetter(0))
        found: list[RecordChange] = []
        for row, key in self._rows[start : start + most]:
            version = row
            change = self._changes.get(key)
            if change is not None and change.version == row:
                found.append(change)
        return found, version

    def forget_removals(self) -> None:
        """Forget removals after a replay: no reader has seen a version of this run."""
        for version, key in self._removals:
            found = self._changes.get(key)
            if found is not None and found.version == version:
                del self._changes[key]
        self._removals.clear()
        self.floor = -1

    # --- copies -----------------------------------------------------------------------------

    def restated(self) -> Iterator[Event]:
        """Events of bounded size that rebuild this table, which may change between two of them."""
        yield IdTaken(self.last_org)
        if self.secret:
            yield SecretMade(self.secret)
        for org in list(self.orgs.values()):
            yield events.org_set(org)
        for number in list(self._of):
            its = self._of.get(number, _NOTHING)
            for user in list(its.users.values()):
                yield events.user_set(user)
            yield from events.rules_added(number, its.rules)
            for quota in list(its.quotas.values()):
                yield events.quota_set(quota)


def entity_key(entity: events.Entity) -> EntityKey:
    """The key of an entity, for any order of its parts."""
    return tuple(sorted(((kind, name) for kind, name in entity), key=itemgetter(0)))
