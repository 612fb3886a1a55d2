"""The coordinator: all groups of all orgs, and their timers.

One timer of the event loop serves all deadlines. Only a group's methods change it, on the event
loop. Durable changes go through the log and are applied in its order, even if the caller no longer
waits.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict, defaultdict
from collections.abc import Awaitable, Callable
from functools import partial
from time import time_ns
from typing import Any

from quafka_broker.groups.answer_queue import AnswerQueue
from quafka_broker.groups.deadlines import NEVER, Deadlines
from quafka_broker.groups.group import Group
from quafka_broker.groups.journal import GroupJournal
from quafka_broker.groups.lag import Lags
from quafka_broker.groups.limits import GroupLimits, refusal_of_any
from quafka_broker.groups.offsets import GroupOffsets
from quafka_broker.groups.org_usage import OrgUsage
from quafka_broker.groups.rebalance import RebalancingGroup, Saved
from quafka_broker.groups.states import State
from quafka_broker.groups.table import GroupEntry, Key, Table
from quafka_broker.sources.sources import Sources
from quafka_broker.topics.registry import Registry
from quafka_broker.wal.log import Log
from quafka_mesh_ops.ops.groups import (
    Heartbeat,
    JoinGroup,
    JoinGroupResp,
    LeaveGroup,
    Leaver,
    SyncGroup,
    SyncGroupResp,
)
from quafka_mesh_ops.transport.log_limit import LimitedLog
from quafka_proto.errors import ErrorCode
from quafka_telemetry.slices import Slices

log = logging.getLogger("quafka.broker.groups")

_PER_SLICE = 100  # groups examined without a turn for others


def _now() -> float:
    return asyncio.get_running_loop().time()


def _now_ms() -> int:
    return time_ns() // 1_000_000


class Coordinator:
    """Runs the groups. All methods are for one event loop."""

    def __init__(
        self,
        wal: Log,
        limits: GroupLimits,
        registry: Registry,
        sources: Sources,
        begin_at: Callable[[int], Awaitable[None]],
        *,
        now_ms: Callable[[], int] = _now_ms,
    ) -> None:
        self.limits = limits
        self.now_ms = now_ms
        """The wall clock that dates commits."""
        self.most_groups: Callable[[int], int] = lambda _org: limits.org_groups
        """Returns the most groups of an org."""
        self._table = Table(self._new_group, registry.is_live, _now)
        self.journal = GroupJournal(wal, self._table, begin_at)
        self.lags = Lags(sources, registry.by_name)
        self.offsets = GroupOffsets(
            self._table, self.journal, self.lags, limits, self._drop_if_empty
        )
        self._due: Deadlines[Key] = Deadlines()
        self._only_pending: defaultdict[int, OrderedDict[str, None]] = defaultdict(OrderedDict)
        self._limited = LimitedLog(log)
        self._answers = AnswerQueue()
        self._timer: asyncio.TimerHandle | None = None
        self._running = False

    # --- life -------------------------------------------------------------------------------

    async def start(self) -> None:
        """Rebuild the groups from the log. Members have a whole session to send a request.

        Raises:
            StorageError: the log cannot be read.
            ValueError, KeyError, TypeError: an event cannot be understood.
        """
        await self.journal.replay()
        self.journal.restate_damaged()
        self._running = True
        for key, entry in list(self._table.entries.items()):
            self._changed(key, entry.group)
            self._drop_if_empty(key)

    def drain(self) -> None:
        """Answer the parked requests, and park no more."""
        self._running = False
        if self._timer is not None:
            self._timer.cancel()
        for entry in self._table.entries.values():
            entry.group.drain()

    async def close(self) -> None:
        """Write the queued events and stop."""
        await self.journal.close()

    # --- groups -----------------------------------------------------------------------------

    def find(self, org: int, name: str) -> GroupEntry | None:
        """A group; None where it is unknown."""
        return self._table.entries.get((org, name))

    def usage(self, org: int) -> OrgUsage:
        """The usage of an org's groups."""
        return self._table.usage(org)

    def every_group(self) -> list[tuple[Key, GroupEntry]]:
        """All groups of all orgs."""
        return list(self._table.entries.items())

    def groups(self, org: int) -> list[GroupEntry]:
        """An org's groups, by name."""
        return [entry for key, entry in sorted(self._table.entries.items()) if key[0] == org]

    def _new_group(self, key: Key) -> Group:
        usage = self._table.usage(key[0])
        return Group(key[1], self.limits, partial(self._save, key), usage=usage)

    def _may_make(self, org: int) -> bool:
        """Whether an org may have one more group.

        If not, drops the oldest group that has only pending member ids: a client with such an id
        gets UNKNOWN_MEMBER_ID and joins again.
        """
        most = self.most_groups(org)
        if self._table.usage(org).groups < most:
            return True
        only_pending = self._only_pending[org]
        while only_pending:
            key = (org, only_pending.popitem(last=False)[0])
            entry = self._table.entries.get(key)
            if (
                entry is not None
                and entry.has_only_pending_members
                and not self.journal.is_queued(key)
            ):
                self._drop(key)
                return True
        self._limited.warning(
            f"groups {org}", "org %d has %d groups (group.max.groups): it can have no new one",
            org, most,
        )  # fmt: skip
        return False

    def _refusal_of_new(self, org: int, op: JoinGroup) -> ErrorCode:
        """The error of a join of an unknown group. A refused join creates no group."""
        error = refusal_of_any(op, self.limits)
        if error:
            return error
        if op.member_id:
            return ErrorCode.UNKNOWN_MEMBER_ID
        return ErrorCode.NONE if self._may_make(org) else ErrorCode.GROUP_MAX_SIZE_REACHED

    def _drop_if_empty(self, key: Key) -> None:
        entry = self._table.entries.get(key)
        if entry is not None and entry.is_empty and not self.journal.is_queued(key):
            self._drop(key)

    def _drop(self, key: Key) -> None:
        """Drop a group that has nothing in the log."""
        self._table.drop(key)
        self._due.cancel(key)
        self._only_pending[key[0]].pop(key[1], None)

    async def join(self, org: int, op: JoinGroup) -> JoinGroupResp:
        """Join a group; returns when the next generation begins."""
        key = (org, op.group)
        if not self._running:
            return JoinGroupResp(ErrorCode.NOT_COORDINATOR, op.member_id)
        if key not in self._table.entries:
            error = self._refusal_of_new(org, op)
            if error:
                return JoinGroupResp(error, op.member_id)
        group = self._table.find_or_make(key).group
        answer: asyncio.Future[JoinGroupResp] = asyncio.get_running_loop().create_future()
        reply = partial(self._answers.resolve, answer)
        member_id = group.join(op, _now(), reply)
        self._changed(key, group)
        if self._table.entries[key].has_only_pending_members and group.has_pending_members():
            self._only_pending[org][op.group] = None
        self._drop_if_empty(key)
        try:
            return await answer
        finally:
            if answer.cancelled():
                group.abandon_join(member_id, reply, _now())
                self._changed(key, group)

    async def sync(self, org: int, op: SyncGroup) -> SyncGroupResp:
        """Get an assignment; returns when the leader has sent the assignments."""
        key = (org, op.group)
        entry = self._table.entries.get(key)
        if not self._running:
            return SyncGroupResp(ErrorCode.NOT_COORDINATOR)
        if entry is None:
            return SyncGroupResp(_of_unknown(op.group))
        answer: asyncio.Future[SyncGroupResp] = asyncio.get_running_loop().create_future()
        reply = partial(self._answers.resolve, answer)
        entry.group.sync(op, _now(), reply)
        self._changed(key, entry.group)
        try:
            return await answer
        finally:
            if answer.cancelled():
                entry.group.abandon_sync(op.member_id, reply, _now())
                self._changed(key, entry.group)

    def heartbeat(self, org: int, op: Heartbeat) -> ErrorCode:
        """Extend a member's session."""
        entry = self._table.entries.get((org, op.group))
        if entry is None:
            return _of_unknown(op.group)
        return entry.group.heartbeat(op.generation, op.member_id, op.instance_id, _now())

    def leave(self, org: int, op: LeaveGroup) -> tuple[ErrorCode, list[ErrorCode]]:
        """Remove members; the group's error, and the error of each."""
        key = (org, op.group)
        entry = self._table.entries.get(key)
        if entry is None:
            if not op.group:
                return ErrorCode.INVALID_GROUP_ID, []
            return ErrorCode.NONE, [ErrorCode.UNKNOWN_MEMBER_ID] * len(op.leavers)
        answers = entry.group.leave(op.leavers, _now())
        self._changed(key, entry.group)
        self._drop_if_empty(key)
        return ErrorCode.NONE, answers

    def may_commit(
        self, org: int, group: str, generation: int, member_id: str, instance_id: str
    ) -> ErrorCode:
        """The error of a commit by this member, or by a client outside the group."""
        entry = self._table.entries.get((org, group))
        if entry is None:
            if not group:
                return ErrorCode.INVALID_GROUP_ID
            if generation >= 0:
                return ErrorCode.ILLEGAL_GENERATION
            return ErrorCode.NONE if self._may_make(org) else ErrorCode.POLICY_VIOLATION
        return entry.group.may_commit(generation, member_id, instance_id, _now())

    def expel(self, org: int, name: str) -> None:
        """Have all members leave a group, so that it can be deleted."""
        entry = self._table.entries.get((org, name))
        if entry is not None:
            leavers = [Leaver(member_id) for member_id in entry.group.every_id()]
            self.leave(org, LeaveGroup(name, leavers))

    async def delete_group(self, org: int, name: str) -> ErrorCode:
        """Delete a group that has no members, and its offsets; durable on return.

        Raises:
            StorageError: it is still there.
        """
        key = (org, name)
        entry = self._table.entries.get(key)
        if entry is None:
            return ErrorCode.GROUP_ID_NOT_FOUND if name else ErrorCode.INVALID_GROUP_ID
        group = entry.group
        error = group.begin_deletion()
        if error:
            return error
        self._only_pending[org].pop(name, None)

        def then(stored: bool) -> None:
            if not stored:
                group.undo_deletion()

        await self.journal.append({"event": "group_deleted", "org": org, "group": name}, then)
        return ErrorCode.NONE

    async def expire(self, retention_ms: int) -> int:
        """Delete expired offsets, and groups left empty; returns the number of offsets.

        Raises:
            StorageError: the next call deletes the rest.
        """
        before_ms = self.now_ms() - retention_ms
        count = 0
        slices = Slices(_PER_SLICE)
        for key in list(self._table.entries):
            await slices.done()
            entry = self._table.entries.get(key)
            if entry is None or self.journal.is_queued(key):
                continue
            places = self._table.expired(entry, before_ms)
            count += len(places)
            if len(places) < len(entry.offsets) or entry.group.state is not State.EMPTY:
                if places:
                    await self.offsets.delete(*key, places)
            elif entry.stored is not None or places:
                await self.delete_group(*key)
            elif not entry.group.has_pending_members():
                self._drop(key)
        return count

    # --- the log ----------------------------------------------------------------------------

    def _save(
        self, key: Key, group: RebalancingGroup, stored: dict[str, Any], saved: Saved
    ) -> None:
        """Make a group's state durable, then call `saved`."""
        group.since_ms = self.now_ms()
        self._only_pending[key[0]].pop(key[1], None)
        event = {
            "event": "group", "org": key[0], "group": key[1], "since_ms": group.since_ms, **stored
        }  # fmt: skip

        def then(stored: bool) -> None:
            saved(stored, _now())
            self._changed(key, group)

        self.journal.append(event, then)

    # --- timers -----------------------------------------------------------------------------

    def _changed(self, key: Key, group: RebalancingGroup) -> None:
        """Set the timer for the group's next deadline."""
        if self._running and self._due.schedule(key, group.wake_at):
            self._arm()

    def _arm(self) -> None:
        when = self._due.earliest
        if when == NEVER:
            return
        if self._timer is not None:
            if self._timer.when() <= when and not self._timer.cancelled():
                return
            self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_at(when, self._tick)

    def _tick(self) -> None:
        self._timer = None
        now = _now()
        while (key := self._due.pop(now)) is not None:
            entry = self._table.entries.get(key)
            if entry is None:
                continue
            try:
                entry.group.tick(now)
            except Exception:  # a bug in one group must not stop the timers of the others
                log.exception("the timers of group %r failed", key[1])
            self._changed(key, entry.group)
            self._drop_if_empty(key)
        if self._running:
            self._arm()


def _of_unknown(group: str) -> ErrorCode:
    return ErrorCode.UNKNOWN_MEMBER_ID if group else ErrorCode.INVALID_GROUP_ID
