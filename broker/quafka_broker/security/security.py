"""The orgs, users, rules and quotas of a cluster: decides changes, and makes them durable."""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from itertools import islice

from quafka_broker.partitions.errors import StorageError
from quafka_broker.security import acl_filter, checks, events
from quafka_broker.security.checks import Refusal
from quafka_broker.security.events import Event, OrgGone, SecretMade, UserSet
from quafka_broker.security.journal import SecurityJournal
from quafka_broker.security.limits import SecurityLimits
from quafka_broker.security.table import EntityKey, OrgSecurity, SecurityTable, entity_key
from quafka_broker.security.watchers import Watchers
from quafka_broker.wal.log import Log
from quafka_loop.slices import listed
from quafka_mesh_ops.ops.security import (
    AclFilter,
    AclRecord,
    AlterOrg,
    OrgRecord,
    QuotaChange,
    QuotaRecord,
    ScramCredential,
    UserChange,
    UserRecord,
)
from quafka_mesh_ops.org_limits import LimitName, limit_of
from quafka_proto.errors import ErrorCode
from quafka_proto.schema.quotas import ValueData

log = logging.getLogger("quafka.broker.security")

ACTIVE, DELETING = "active", "deleting"
_SHORTEN_SECONDS = 10.0
_SECRET_BYTES = 32
_AT_ONCE = 500
"""Users, rules and quotas of a deleted org that one write removes."""


class BrokerSecurity:
    """All orgs of one broker. For one event loop.

    Only the log refuses a change as a whole; otherwise each part of it has its own code.
    """

    def __init__(
        self,
        wal: Log,
        limits: SecurityLimits,
        begin_at: Callable[[int], Awaitable[None]],
        ids_in_use: Callable[[], int],
        org_changed: Callable[[int], None],
    ) -> None:
        """The callbacks belong to the broker.

        `begin_at` moves the start of the journal, durably; `ids_in_use` returns the highest id of
        an org with topics, since some orgs have no record; `org_changed` is called with an org
        whose record has changed.
        """
        self.limits = limits
        self.table = SecurityTable()
        self.watchers = Watchers(self.table)
        self.journal = SecurityJournal(wal, self.table, begin_at, self.watchers.wake)
        self._ids_in_use = ids_in_use
        self._org_changed = org_changed
        self.deleting = asyncio.Event()
        """Set when an org is to be deleted."""

    # --- life -------------------------------------------------------------------------------

    async def start(self) -> None:
        """Rebuild the table from the log, after the registry.

        Raises:
            StorageError: the log cannot be read.
            ValueError, TypeError, IndexError: an event cannot be decoded.
        """
        await self.journal.replay()
        for org in self.table.orgs:
            self._org_changed(org)
        if self.orgs_to_delete():
            self.deleting.set()

    async def run(self) -> None:
        """Shorten the journal now and then."""
        while True:
            try:
                await self.journal.shorten()
            except StorageError as e:
                log.warning("the journal of users and rules cannot be shortened now: %s", e)
            await asyncio.sleep(_SHORTEN_SECONDS)

    async def make_secret(self) -> None:
        """Create the secret of the cluster's gateways, once and for all. Raises StorageError."""

        async def make() -> None:
            if not self.table.secret:
                await self._record([SecretMade(secrets.token_bytes(_SECRET_BYTES))])

        if not self.table.secret:
            await self.journal.in_turn(make)

    async def close(self) -> None:
        """Wait for the changes under way."""
        await self.journal.close()

    # --- limits -----------------------------------------------------------------------------

    def limit(self, org: int, name: LimitName, otherwise: int) -> int:
        """An org's limit, from its record or the broker's setting; 0 for a deleted org.

        A broker with incomplete records applies those that it can read.
        """
        record = self.table.orgs.get(org)
        if record is None:
            return otherwise
        if record.state == DELETING:
            return 0
        found = limit_of(record.limits, name)
        return otherwise if found is None else int(found)

    def orgs_to_delete(self) -> list[int]:
        """The orgs whose topics, groups and transactions are to be deleted."""
        if self.journal.incomplete:
            return []
        return [org.org_id for org in self.table.orgs.values() if org.state == DELETING]

    # --- users ------------------------------------------------------------------------------

    async def alter_users(self, org: int, changes: Sequence[UserChange]) -> list[Refusal | None]:
        """Set and remove credentials. Raises StorageError: nothing changed."""

        async def alter() -> list[Refusal | None]:
            its = self.table.of(org).users
            after: dict[str, dict[str, ScramCredential]] = {}
            new: set[str] = set()
            refused = await listed(self._alter_user(its, after, new, each) for each in changes)
            users = (UserRecord(org, name, list(each.values())) for name, each in after.items())
            await self._record(await listed(map(events.user_set, users)))
            return refused

        return await self.journal.in_turn(alter)

    def _alter_user(
        self,
        its: dict[str, UserRecord],
        after: dict[str, dict[str, ScramCredential]],
        new: set[str],
        change: UserChange,
    ) -> Refusal | None:
        """`after`: the credentials of the users that have been changed so far; `new`: of these,
        the users that the org did not have."""
        present = after.get(change.name)
        if present is None:
            user = its.get(change.name)
            present = {each.mechanism: each for each in user.credentials} if user else {}
        refusal = checks.user_refusal(change, known=change.mechanism in present)
        if refusal is not None:
            return refusal
        if change.credential is not None and change.name not in its and change.name not in new:
            if len(its) + len(new) >= self.limits.org_users:
                return Refusal(ErrorCode.POLICY_VIOLATION, "security.max.users.per.org is reached")
            new.add(change.name)
        present.pop(change.mechanism, None)
        if change.credential is not None:
            present[change.mechanism] = change.credential
        after[change.name] = present
        return None

    # --- rules ------------------------------------------------------------------------------

    async def create_acls(self, org: int, acls: Sequence[AclRecord]) -> list[Refusal | None]:
        """Add rules. Raises StorageError: nothing changed."""

        async def create() -> list[Refusal | None]:
            its = self.table.of(org).rules
            new: dict[AclRecord, None] = {}

            def add(acl: AclRecord) -> Refusal | None:
                refusal = checks.acl_refusal(org, acl)
                if refusal is not None or acl in its or acl in new:
                    return refusal
                if len(its) + len(new) >= self.limits.org_rules:
                    message = "security.max.acls.per.org is reached"
                    return Refusal(ErrorCode.POLICY_VIOLATION, message)
                new[acl] = None
                return None

            refused = await listed(map(add, acls))
            await self._record(events.rules_added(org, new))
            return refused

        return await self.journal.in_turn(create)

    async def delete_acls(
        self, org: int, filters: Sequence[AclFilter]
    ) -> list[tuple[ErrorCode, list[AclRecord]]]:
        """Remove the rules that match any filter, all or none; returns those of each filter.

        Raises:
            StorageError: nothing has changed.
        """

        found = await acl_filter.find(filters, list(self.table.of(org).rules))
        if found is None:
            return [(ErrorCode.POLICY_VIOLATION, [])] * len(filters)

        async def delete() -> list[tuple[ErrorCode, list[AclRecord]]]:
            present = self.table.of(org).rules  # another change may have removed some
            gone: dict[AclRecord, None] = {}
            left: list[tuple[ErrorCode, list[AclRecord]]] = []
            for error, its in found:
                kept = await listed(acl if acl in present else None for acl in its)
                left.append((error, [acl for acl in kept if acl is not None]))
                gone.update(dict.fromkeys(left[-1][1]))
            await self._record(events.rules_removed(org, gone))
            return left

        return await self.journal.in_turn(delete)

    # --- quotas -----------------------------------------------------------------------------

    async def alter_quotas(self, org: int, changes: Sequence[QuotaChange]) -> list[Refusal | None]:
        """Set and remove quotas. Raises StorageError: nothing changed."""

        async def alter() -> list[Refusal | None]:
            its = self.table.of(org)
            after: dict[EntityKey, QuotaRecord] = {}
            new: set[EntityKey] = set()
            refused = await listed(
                self._alter_quota(org, its, after, new, change) for change in changes
            )
            made = [each for key, each in after.items() if its.quotas.get(key) != each]
            await self._record(await listed(map(events.quota_set, made)))
            return refused

        return await self.journal.in_turn(alter)

    def _alter_quota(
        self,
        org: int,
        its: OrgSecurity,
        after: dict[EntityKey, QuotaRecord],
        new: set[EntityKey],
        change: QuotaChange,
    ) -> Refusal | None:
        refusal = checks.quota_refusal(change)
        if refusal is not None:
            return refusal
        key = entity_key([(part.entity_type, part.entity_name) for part in change.entity])
        present = after.get(key) or its.quotas.get(key)
        values = {value.key: value.value for value in present.values} if present else {}
        for name in change.removed:
            values.pop(name, None)
        values.update((value.key, value.value) for value in change.values)
        if values and key not in its.quotas and key not in new:
            if len(its.quotas) + len(new) >= self.limits.org_quotas:
                return Refusal(ErrorCode.POLICY_VIOLATION, "security.max.quotas.per.org is reached")
            new.add(key)
        after[key] = QuotaRecord(org, change.entity, [ValueData(*each) for each in values.items()])
        return None

    # --- orgs -------------------------------------------------------------------------------

    async def alter_org(self, op: AlterOrg) -> OrgRecord | Refusal:
        """Create or change an org. Raises StorageError: nothing changed."""
        refusal = checks.org_refusal(op)
        if refusal is not None:
            return refusal

        async def alter() -> OrgRecord | Refusal:
            record = self._changed_org(op)
            if isinstance(record, Refusal):
                return record
            if record != self.table.orgs.get(record.org_id):
                await self._record([events.org_set(record)])
            self._org_changed(record.org_id)
            if record.state == DELETING:
                self.deleting.set()
            return record

        return await self.journal.in_turn(alter)

    def _changed_org(self, op: AlterOrg) -> OrgRecord | Refusal:
        """The record after the op."""
        in_use = max(self.table.last_org, self._ids_in_use())
        org_id = op.org_id or max(in_use + 1, checks.FIRST_FREE_ORG)
        present = self.table.orgs.get(org_id)
        namesake = self.table.org_named(op.name) if op.name else None
        if namesake is not None and namesake.org_id != org_id:
            return Refusal(ErrorCode.DUPLICATE_RESOURCE, f"org {namesake.org_id} has this name")
        if op.create and present is not None:
            return Refusal(ErrorCode.DUPLICATE_RESOURCE, f"org {org_id} exists")
        if present is None:
            if not op.create and not op.copy and op.state != DELETING:
                return Refusal(ErrorCode.RESOURCE_NOT_FOUND, f"org {org_id} does not exist")
            if org_id > checks.LAST_ORG or len(self.table.orgs) >= self.limits.orgs:
                return Refusal(ErrorCode.POLICY_VIOLATION, "security.max.orgs is reached")
            return OrgRecord(org_id, op.name, op.state or ACTIVE, op.limits or [])
        if present.state == DELETING and op.state not in ("", DELETING):
            return Refusal(ErrorCode.INVALID_REQUEST, f"org {org_id} is being deleted")
        return replace(
            present,
            name=op.name or present.name,
            state=op.state or present.state,
            limits=present.limits if op.limits is None else op.limits,
        )

    async def remove_records(self, org: int) -> bool:
        """Remove some users, rules and quotas of a deleted org; returns whether more may remain.

        Raises:
            StorageError: they still exist.
        """

        async def remove() -> bool:
            its = self.table.of(org)
            made: list[Event] = [UserSet(org, name, ()) for name in islice(its.users, _AT_ONCE)]
            made += events.rules_removed(org, islice(its.rules, _AT_ONCE))
            for quota in islice(its.quotas.values(), _AT_ONCE):
                made.append(events.quota_set(replace(quota, values=[])))
            await self._record(made)
            return bool(made)

        return await self.journal.in_turn(remove)

    async def org_is_gone(self, org: int) -> None:
        """Remove the record of an org whose data is deleted. Raises StorageError."""

        async def forget() -> None:
            if org in self.table.orgs:
                await self._record([OrgGone(org)])
                self._org_changed(org)

        await self.journal.in_turn(forget)

    async def _record(self, made: Sequence[Event]) -> None:
        if self.journal.incomplete:
            raise StorageError(self.journal.incomplete)
        if made:
            await self.journal.record(made)
