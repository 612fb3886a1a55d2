"""This gateway's copy of orgs, users, ACLs and quotas. No I/O: `security/watch.py` feeds it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import TypeVar

from quafka_mesh_ops.ops.security import (
    AclRecord,
    OrgRecord,
    QuotaRecord,
    SecurityChange,
    UserRecord,
    WatchSecurityResp,
)
from quafka_proto.schema.quotas import EntityData

K = TypeVar("K")
V = TypeVar("V")

QuotaKey = tuple[tuple[str, str | None], ...]
"""An entity: its parts (kind, name or None for the default), in the order of their kinds."""


def quota_key(entity: list[EntityData]) -> QuotaKey:
    """The key of an entity, whatever the order of its parts."""
    return tuple(sorted((part.entity_type, part.entity_name) for part in entity))


class _Records:
    """The records of one version."""

    def __init__(self) -> None:
        self.orgs: dict[int, OrgRecord] = {}
        self.org_names: dict[str, OrgRecord] = {}
        self.users: dict[int, dict[str, UserRecord]] = {}
        self.acls: dict[int, dict[AclRecord, None]] = {}
        self.quotas: dict[int, dict[QuotaKey, QuotaRecord]] = {}

    def apply(self, change: SecurityChange) -> None:
        if change.org is not None:
            self._apply_org(change.org, removed=change.removed)
        elif change.user is not None:
            user = change.user
            _put(self.users, user.org_id, user.name, user, removed=change.removed)
        elif change.acl is not None:
            _put(self.acls, change.acl.org_id, change.acl, None, removed=change.removed)
        elif change.quota is not None:
            quota = change.quota
            gone = change.removed or not quota.values
            _put(self.quotas, quota.org_id, quota_key(quota.entity), quota, removed=gone)

    def _apply_org(self, org: OrgRecord, *, removed: bool) -> None:
        before = self.orgs.get(org.org_id)
        if before is not None and self.org_names.get(before.name) is before:
            del self.org_names[before.name]
        if removed:
            self.orgs.pop(org.org_id, None)
        else:
            self.orgs[org.org_id] = self.org_names[org.name] = org


class Directory:
    """Orgs, users, ACLs and quotas as they were at one version.

    Listeners are called after each answer that changed something, with the changes of it, or None
    if the copy was begun again.
    """

    def __init__(self) -> None:
        self.incarnation = b""
        self.version = -1
        """Of the records below; `asked` may be later, while a new copy is being read."""
        self.asked: tuple[bytes, int] = b"", -1
        """The incarnation and version after which the next answer begins."""
        self.began = -1
        """Of the last answer, for the next question."""
        self.secret = b""
        """The cluster's; empty if it is not needed or not known."""
        self.complete = False
        """Whether all records of some version are here: before that no user can be known."""
        self.problem = "users and rules have not been read yet"
        """Why the broker's last answer did not come; empty if it did."""
        self._records = _Records()
        self._next: _Records | None = None  # the new copy that is being read
        self._listeners: list[Callable[[list[SecurityChange] | None], None]] = []
        self._learned = asyncio.Event()

    def listen(self, changed: Callable[[list[SecurityChange] | None], None]) -> None:
        """Call `changed` after each change."""
        self._listeners.append(changed)

    def learn(self, answer: WatchSecurityResp) -> None:
        """Apply the broker's answer."""
        self.secret = answer.secret or self.secret
        if answer.restart:
            self._next = _Records()
        target = self._next or self._records
        for change in answer.changes:
            target.apply(change)
        self.asked, self.began = (answer.incarnation, answer.version), answer.began
        anew = self._next is not None
        if self._next is not None:
            if answer.more:
                return
            self._records, self._next = self._next, None
        self.incarnation, self.version = self.asked
        self.complete = self.complete or not answer.more
        learned, self._learned = self._learned, asyncio.Event()
        learned.set()
        if answer.changes or anew:
            for listener in self._listeners:
                listener(None if anew else answer.changes)

    def ask_anew(self) -> None:
        """Make the next answer start from the beginning."""
        self.asked, self.began = (b"", -1), -1

    async def includes(self, incarnation: bytes, version: int, seconds: float) -> bool:
        """Wait until the copy includes a change that was answered with this version.

        Returns False if that took longer than `seconds`.
        """
        before = self.incarnation
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                # Of an incarnation that began after the answer, every version has the change.
                while self.incarnation in (before, incarnation) and (
                    self.incarnation != incarnation or self.version < version
                ):
                    await self._learned.wait()
                return True
        return False

    # --- reading ----------------------------------------------------------------------------

    def org(self, org_id: int) -> OrgRecord | None:
        """An org by its id."""
        return self._records.orgs.get(org_id)

    def org_named(self, name: str) -> OrgRecord | None:
        """An org by its name."""
        return self._records.org_names.get(name)

    def orgs(self) -> Mapping[int, OrgRecord]:
        """All orgs by id."""
        return self._records.orgs

    def user(self, org_id: int, name: str) -> UserRecord | None:
        """A user of an org."""
        return self._records.users.get(org_id, {}).get(name)

    def users(self, org_id: int) -> list[UserRecord]:
        """The users of an org."""
        return list(self._records.users.get(org_id, {}).values())

    def acls(self, org_id: int) -> Mapping[AclRecord, None]:
        """The rules of an org."""
        return self._records.acls.get(org_id, {})

    def quotas(self, org_id: int) -> Mapping[QuotaKey, QuotaRecord]:
        """The quotas of an org."""
        return self._records.quotas.get(org_id, {})

    def quota_orgs(self) -> Iterable[int]:
        """The orgs that have quotas."""
        return self._records.quotas


def _put(tables: dict[int, dict[K, V]], org: int, key: K, value: V, *, removed: bool) -> None:
    """Set or remove a record of an org; an org without any has no table."""
    table = tables.setdefault(org, {})
    if removed:
        table.pop(key, None)
    else:
        table[key] = value
    if not table:
        del tables[org]
