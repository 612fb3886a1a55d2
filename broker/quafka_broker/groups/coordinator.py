"""The coordinator: all groups of all orgs, their timers, and their committed offsets.

One timer of the event loop serves all deadlines. A group is changed only by its methods, on the
loop; what is durable of it goes through the log, and is applied in the order of the log, whether
or not the caller still waits.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict, defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Generator, Mapping
from functools import partial
from time import time_ns
from typing import Any
from weakref import WeakValueDictionary

from quafka_broker.groups.answer_queue import AnswerQueue
from quafka_broker.groups.deadlines import NEVER, Deadlines
from quafka_broker.groups.group import Group, Saved
from quafka_broker.groups.journal import GroupJournal
from quafka_broker.groups.lag import Lags, PartitionLag
from quafka_broker.groups.limits import GroupLimits, refusal_of_any
from quafka_broker.groups.org_usage import OrgUsage, offset_cost
from quafka_broker.groups.states import State
from quafka_broker.groups.table import Commit, Committed, GroupEntry, Key, Place, Table
from quafka_broker.topics.registry import Registry
from quafka_broker.topics.topic import Topic
from quafka_broker.wal.log import Log
from quafka_mesh_ops.ops.groups import (
    Heartbeat,
    JoinGroup,
    JoinGroupResp,
    LeaveGroup,
    SyncGroup,
    SyncGroupResp,
)
from quafka_mesh_ops.transport.log_limit import LimitedLog
from quafka_proto.errors import ErrorCode
from quafka_telemetry.slices import Slices, in_slices

log = logging.getLogger("quafka.broker.groups")

_PER_SLICE = 100  # groups looked at before others have their turn


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
        begin_at: Callable[[int], Awaitable[None]],
        *,
        now_ms: Callable[[], int] = _now_ms,
    ) -> None:
        self.limits = limits
        self.now_ms = now_ms
        """The wall clock, by which commits are dated."""
        self._table = Table(self._new_group, registry.is_live, _now)
        self.journal = GroupJournal(wal, self._table, begin_at)
        self._lags = Lags(wal, registry.by_name)
        self._turns: WeakValueDictionary[Key, asyncio.Lock] = WeakValueDictionary()
        self._due: Deadlines[Key] = Deadlines()
        self._only_pending: defaultdict[int, OrderedDict[str, None]] = defaultdict(OrderedDict)
        self._limited = LimitedLog(log)
        self._answers = AnswerQueue()
        self._timer: asyncio.TimerHandle | None = None
        self._running = False

    # --- life -------------------------------------------------------------------------------

    async def start(self) -> None:
        """Rebuild the groups from the log. Members have a whole session to show themselves.

        Raises:
            StorageError: the log cannot be read.
            ValueError, KeyError, TypeError: an event cannot be understood.
        """
        await self.journal.replay()
        self.journal.restate_damaged()
        self._running = True
        for key, kept in list(self._table.entries.items()):
            self._changed(key, kept.group)
            self._drop_if_empty(key)

    def drain(self) -> None:
        """Answer what is parked, and park nothing more."""
        self._running = False
        if self._timer is not None:
            self._timer.cancel()
        for kept in self._table.entries.values():
            kept.group.drain()

    async def close(self) -> None:
        """Write nothing more."""
        await self.journal.close()

    # --- groups -----------------------------------------------------------------------------

    def find(self, org: int, name: str) -> GroupEntry | None:
        """A group, if it is known."""
        return self._table.entries.get((org, name))

    def usage(self, org: int) -> OrgUsage:
        """What an org's groups hold."""
        return self._table.usage(org)

    def every_group(self) -> list[tuple[Key, GroupEntry]]:
        """All groups of all orgs."""
        return list(self._table.entries.items())

    def groups(self, org: int) -> list[GroupEntry]:
        """An org's groups, by name."""
        return [kept for key, kept in sorted(self._table.entries.items()) if key[0] == org]

    def every_offset(self) -> list[tuple[Key, list[tuple[Place, Committed]]]]:
        """What all groups of all orgs have committed."""
        return [
            (key, list(k.offsets.items())) for key, k in self._table.entries.items() if k.offsets
        ]

    def offsets_of(self, key: Key) -> Mapping[Place, Committed]:
        """What a group has committed; nothing where there is none."""
        kept = self._table.entries.get(key)
        return kept.offsets if kept is not None else {}

    def _new_group(self, key: Key) -> Group:
        usage = self._table.usage(key[0])
        return Group(key[1], self.limits, partial(self._save, key), usage=usage)

    def _may_make(self, org: int) -> bool:
        """Whether an org may have one group more.

        The oldest group of which there is nothing but ids that were handed out gives way: who
        comes with such an id is told to begin anew, and does.
        """
        if self._table.usage(org).groups < self.limits.org_groups:
            return True
        only_pending = self._only_pending[org]
        while only_pending:
            key = (org, only_pending.popitem(last=False)[0])
            kept = self._table.entries.get(key)
            if (
                kept is not None
                and kept.has_only_pending_members
                and not self.journal.is_queued(key)
            ):
                self._drop(key)
                return True
        self._limited.warning(
            f"groups {org}", "org %d has %d groups (group.max.groups): no new one is taken",
            org, self.limits.org_groups,
        )  # fmt: skip
        return False

    def _refusal_of_new(self, org: int, op: JoinGroup) -> ErrorCode:
        """Why a join makes no new group. Nothing is made before all of it has been looked at."""
        error = refusal_of_any(op, self.limits)
        if error:
            return error
        if op.member_id:
            return ErrorCode.UNKNOWN_MEMBER_ID
        return ErrorCode.NONE if self._may_make(org) else ErrorCode.GROUP_MAX_SIZE_REACHED

    def _drop_if_empty(self, key: Key) -> None:
        kept = self._table.entries.get(key)
        if kept is not None and kept.is_empty and not self.journal.is_queued(key):
            self._drop(key)

    def _drop(self, key: Key) -> None:
        """Forget a group of which nothing is in the log."""
        self._table.drop(key)
        self._due.cancel(key)
        self._only_pending[key[0]].pop(key[1], None)

    async def join(self, org: int, op: JoinGroup) -> JoinGroupResp:
        """Join a group; waits until its next generation begins."""
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
        """Ask for an assignment; waits until the leader has brought it."""
        key = (org, op.group)
        kept = self._table.entries.get(key)
        if not self._running:
            return SyncGroupResp(ErrorCode.NOT_COORDINATOR)
        if kept is None:
            return SyncGroupResp(_of_unknown(op.group))
        answer: asyncio.Future[SyncGroupResp] = asyncio.get_running_loop().create_future()
        reply = partial(self._answers.resolve, answer)
        kept.group.sync(op, _now(), reply)
        self._changed(key, kept.group)
        try:
            return await answer
        finally:
            if answer.cancelled():
                kept.group.abandon_sync(op.member_id, reply, _now())
                self._changed(key, kept.group)

    def heartbeat(self, org: int, op: Heartbeat) -> ErrorCode:
        """A member is alive."""
        kept = self._table.entries.get((org, op.group))
        if kept is None:
            return _of_unknown(op.group)
        return kept.group.heartbeat(op.generation, op.member_id, op.instance_id, _now())

    def leave(self, org: int, op: LeaveGroup) -> tuple[ErrorCode, list[ErrorCode]]:
        """Members leave; the group's error, and theirs."""
        key = (org, op.group)
        kept = self._table.entries.get(key)
        if kept is None:
            if not op.group:
                return ErrorCode.INVALID_GROUP_ID, []
            return ErrorCode.NONE, [ErrorCode.UNKNOWN_MEMBER_ID] * len(op.leavers)
        answers = kept.group.leave(op.leavers, _now())
        self._changed(key, kept.group)
        self._drop_if_empty(key)
        return ErrorCode.NONE, answers

    # --- offsets ----------------------------------------------------------------------------

    def may_commit(
        self, org: int, group: str, generation: int, member_id: str, instance_id: str
    ) -> ErrorCode:
        """Whether offsets are taken from this member, or from outside of a group."""
        kept = self._table.entries.get((org, group))
        if kept is None:
            if not group:
                return ErrorCode.INVALID_GROUP_ID
            if generation >= 0:
                return ErrorCode.ILLEGAL_GENERATION
            return ErrorCode.NONE if self._may_make(org) else ErrorCode.POLICY_VIOLATION
        return kept.group.may_commit(generation, member_id, instance_id, _now())

    def commit_turn(self, org: int, group: str) -> asyncio.Lock:
        """Held by a commit until it is queued, so that long ones of a group stay in order."""
        return self._turns.setdefault((org, group), asyncio.Lock())

    async def has_room(self, org: int, group: str, commit: Commit) -> bool:
        """Whether an org may remember these too."""
        limit, usage = self.limits.org_offset_bytes, self._table.usage(org)
        if usage.offset_bytes + commit.cost <= limit:
            return True
        await self.journal.bookkeeping_done()  # what was replaced counts until then
        kept = self._table.entries.get((org, group))
        more = await in_slices(_growth(commit, kept.offsets if kept is not None else {}))
        used = usage.offset_bytes
        if more <= 0 or used + more <= limit:
            return True
        self._limited.warning(
            f"offsets {org}", "the offsets of org %d take %d bytes: no more are taken "
            "(offsets.max.bytes)", org, used,
        )  # fmt: skip
        return False

    def commit(self, org: int, group: str, commit: Commit) -> asyncio.Future[list[int]]:
        """Queue a commit, in the order of the calls. A reader sees all of it or nothing.

        The future is done when it is durable. It raises:
            StorageError: the offsets are not committed.
        """
        key = (org, group)
        pending = self.journal.append(
            {"event": "offsets", "org": org, "group": group, "offsets": commit}
        )

        def done(appended: asyncio.Future[list[int]]) -> None:
            if not appended.cancelled() and appended.exception() is None:
                kept = self._table.entries.get(key)
                noting = self._lags.observe_commit(
                    key, kept.group if kept is not None else None, commit.offsets
                )
                self.journal.run_bookkeeping(noting, len(commit.offsets))
                self._drop_if_empty(key)  # its topics may have gone meanwhile

        pending.add_done_callback(done)
        return pending

    async def lag_of_offsets(
        self, org: int, group: str, offsets: dict[Place, Committed]
    ) -> list[PartitionLag]:
        """How far behind these are, of a group that another broker coordinates."""
        return await self._lags.of_offsets((org, group), offsets, self.now_ms())

    async def lag(
        self, org: int, kept: GroupEntry, *, elsewhere: bool = False
    ) -> list[PartitionLag]:
        """How far behind a group is, in every partition that it has to do with."""
        key = (org, kept.group.name)
        return await self._lags.of_group(key, kept, self.now_ms(), exact=True, elsewhere=elsewhere)

    async def every_lag(self) -> AsyncIterator[tuple[int, Group, list[PartitionLag]]]:
        """The same of all groups of all orgs, with their orgs; seconds are to the batch.

        Cheap, and in slices, so that metrics can ask for it.
        """
        for key, kept in list(self._table.entries.items()):
            yield (
                key[0], kept.group,
                await self._lags.of_group(key, kept, self.now_ms(), exact=False),
            )  # fmt: skip
            await asyncio.sleep(0)

    async def delete_offsets(self, org: int, group: str, places: list[Place]) -> None:
        """Delete offsets, durably.

        Raises:
            StorageError: they are still there.
        """
        rows = [list(place) for place in places]
        event = {"event": "offsets_deleted", "org": org, "group": group, "partitions": rows}
        await asyncio.shield(self.journal.append(event))

    async def delete_group(self, org: int, name: str) -> ErrorCode:
        """Delete a group that has no members, and its offsets; durable on return.

        Raises:
            StorageError: it is still there.
        """
        key = (org, name)
        kept = self._table.entries.get(key)
        if kept is None:
            return ErrorCode.GROUP_ID_NOT_FOUND if name else ErrorCode.INVALID_GROUP_ID
        group = kept.group
        error = group.begin_deletion()
        if error:
            return error
        self._only_pending[org].pop(name, None)

        def done(appended: asyncio.Future[list[int]]) -> None:
            if appended.cancelled() or appended.exception() is not None:
                group.undo_deletion()

        pending = self.journal.append({"event": "group_deleted", "org": org, "group": name})
        pending.add_done_callback(done)
        await asyncio.shield(pending)
        return ErrorCode.NONE

    def drop_topics(self, topics: Collection[Topic]) -> None:
        """Drop the offsets in topics that were deleted."""
        self.journal.drop_facts(self._table.drop_topics(topics))

    async def delete_offsets_of_topic_elsewhere(self, org: int, name: str, topic_id: bytes) -> None:
        """A topic of another broker was deleted: so are the offsets in it, durably.

        Raises:
            StorageError: what has not been deleted is left to its retention.
        """
        for kept in self.groups(org):
            places = kept.places_in(name, topic_id.hex())
            if places:
                await self.delete_offsets(org, kept.group.name, places)

    async def expire(self, retention_ms: int) -> int:
        """Delete the offsets that had their time, and the groups left with nothing; how many.

        Raises:
            StorageError: what has not been deleted yet is left to the next call.
        """
        before_ms = self.now_ms() - retention_ms
        count = 0
        slices = Slices(_PER_SLICE)
        for key in list(self._table.entries):
            await slices.done()
            kept = self._table.entries.get(key)
            if kept is None or self.journal.is_queued(key):
                continue
            places = self._table.expired(kept, before_ms)
            count += len(places)
            if len(places) < len(kept.offsets) or kept.group.state is not State.EMPTY:
                if places:
                    await self.delete_offsets(*key, places)
            elif kept.stored is not None or places:
                await self.delete_group(*key)
            elif not kept.group.has_pending_members():
                self._drop(key)
        return count

    # --- the log ----------------------------------------------------------------------------

    def _save(self, key: Key, group: Group, stored: dict[str, Any], saved: Saved) -> None:
        """`Group.save`: make it durable, then tell."""
        group.since_ms = self.now_ms()
        self._only_pending[key[0]].pop(key[1], None)
        event = {
            "event": "group", "org": key[0], "group": key[1], "since_ms": group.since_ms, **stored
        }  # fmt: skip

        def done(appended: asyncio.Future[list[int]]) -> None:
            saved(not appended.cancelled() and appended.exception() is None, _now())
            self._changed(key, group)

        self.journal.append(event).add_done_callback(done)

    # --- timers -----------------------------------------------------------------------------

    def _changed(self, key: Key, group: Group) -> None:
        """See that the group is woken when it has to be."""
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
            kept = self._table.entries.get(key)
            if kept is None:
                continue
            try:
                kept.group.tick(now)
            except Exception:  # a mistake in one group must not stop the clock of all others
                log.exception("the timers of group %r failed", key[1])
            self._changed(key, kept.group)
            self._drop_if_empty(key)
        if self._running:
            self._arm()


def _growth(commit: Commit, known: Mapping[Place, Committed]) -> Generator[None, None, int]:
    """By how many bytes a commit makes a group's offsets more."""
    more = commit.cost
    for place in commit.offsets:
        if (before := known.get(place)) is not None:
            more -= offset_cost(place[0], before.metadata)
        yield
    return more


def _of_unknown(group: str) -> ErrorCode:
    return ErrorCode.UNKNOWN_MEMBER_ID if group else ErrorCode.INVALID_GROUP_ID
