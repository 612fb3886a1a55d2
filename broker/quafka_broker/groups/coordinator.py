"""The coordinator: all groups of all orgs, their timers, and their committed offsets.

One timer of the event loop serves all deadlines. A group is changed only by its methods, on the
loop; what is durable of it goes through the log, and is applied in the order of the log, whether
or not the caller still waits.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from functools import partial
from heapq import heappop, heappush
from time import time_ns
from typing import Any

from quafka_broker.groups.deadlines import NEVER
from quafka_broker.groups.group import Group, Limits, Saved
from quafka_broker.groups.journal import Journal
from quafka_broker.groups.lag import Lags, PartitionLag
from quafka_broker.groups.states import State
from quafka_broker.groups.table import Committed, Kept, Key, Place, Table, offsets_event
from quafka_broker.topics import Topic
from quafka_broker.wal.log import Log
from quafka_mesh_ops.group_ops import (
    Heartbeat,
    JoinGroup,
    JoinGroupResp,
    LeaveGroup,
    SyncGroup,
    SyncGroupResp,
)
from quafka_mesh_ops.slices import Slices
from quafka_proto.errors import ErrorCode

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
        limits: Limits,
        find_topic: Callable[[int, str], Topic | None],
        moved: Callable[[], None],
        *,
        max_groups: int = 100_000,
        now_ms: Callable[[], int] = _now_ms,
    ) -> None:
        self.limits = limits
        self._max_groups = max_groups
        self.now_ms = now_ms
        """The wall clock, by which commits are dated."""
        self._table = Table(self._new_group, find_topic, _now)
        self.journal = Journal(wal, self._table, moved)
        self._lags = Lags(wal, find_topic)
        self._due: list[tuple[float, int, Key]] = []
        self._due_at: dict[Key, float] = {}
        self._serial = 0
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
        self._running = True
        for key, kept in self._table.kept.items():
            self._changed(key, kept.group)

    def drain(self) -> None:
        """Answer what is parked, and park nothing more."""
        self._running = False
        if self._timer is not None:
            self._timer.cancel()
        for kept in self._table.kept.values():
            kept.group.drain()

    async def close(self) -> None:
        """Write nothing more."""
        await self.journal.close()

    # --- groups -----------------------------------------------------------------------------

    def find(self, org: int, name: str) -> Kept | None:
        """A group, if it is known."""
        return self._table.kept.get((org, name))

    def every_group(self) -> list[tuple[Key, Kept]]:
        """All groups of all orgs."""
        return list(self._table.kept.items())

    def groups(self, org: int) -> list[Kept]:
        """An org's groups, by name."""
        return [kept for key, kept in sorted(self._table.kept.items()) if key[0] == org]

    def every_offset(self) -> list[tuple[Key, list[tuple[Place, Committed]]]]:
        """What all groups of all orgs have committed."""
        return [(key, list(k.offsets.items())) for key, k in self._table.kept.items() if k.offsets]

    def _new_group(self, key: Key) -> Group:
        return Group(key[1], self.limits, partial(self._save, key))

    def _may_make(self, key: Key) -> bool:
        return key in self._table.kept or len(self._table.kept) < self._max_groups

    async def join(self, org: int, op: JoinGroup) -> JoinGroupResp:
        """Join a group; waits until its next generation begins."""
        key = (org, op.group)
        if not self._running:
            return JoinGroupResp(ErrorCode.NOT_COORDINATOR, op.member_id)
        if not op.group:
            return JoinGroupResp(ErrorCode.INVALID_GROUP_ID, op.member_id)
        if op.member_id and key not in self._table.kept:
            return JoinGroupResp(ErrorCode.UNKNOWN_MEMBER_ID, op.member_id)
        if not self._may_make(key):
            return JoinGroupResp(ErrorCode.POLICY_VIOLATION)
        group = self._table.find_or_make(key).group
        answer: asyncio.Future[JoinGroupResp] = asyncio.get_running_loop().create_future()
        reply = partial(_reply, answer)
        member_id = group.join(op, _now(), reply)
        self._changed(key, group)
        try:
            return await answer
        finally:
            if answer.cancelled():
                group.abandon_join(member_id, reply, _now())
                self._changed(key, group)

    async def sync(self, org: int, op: SyncGroup) -> SyncGroupResp:
        """Ask for an assignment; waits until the leader has brought it."""
        key = (org, op.group)
        kept = self._table.kept.get(key)
        if not self._running:
            return SyncGroupResp(ErrorCode.NOT_COORDINATOR)
        if kept is None:
            return SyncGroupResp(_of_unknown(op.group))
        answer: asyncio.Future[SyncGroupResp] = asyncio.get_running_loop().create_future()
        reply = partial(_reply, answer)
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
        kept = self._table.kept.get((org, op.group))
        if kept is None:
            return _of_unknown(op.group)
        return kept.group.heartbeat(op.generation, op.member_id, op.instance_id, _now())

    def leave(self, org: int, op: LeaveGroup) -> tuple[ErrorCode, list[ErrorCode]]:
        """Members leave; the group's error, and theirs."""
        key = (org, op.group)
        kept = self._table.kept.get(key)
        if kept is None:
            if not op.group:
                return ErrorCode.INVALID_GROUP_ID, []
            return ErrorCode.NONE, [ErrorCode.UNKNOWN_MEMBER_ID] * len(op.leavers)
        answers = kept.group.leave(op.leavers, _now())
        self._changed(key, kept.group)
        return ErrorCode.NONE, answers

    # --- offsets ----------------------------------------------------------------------------

    def may_commit(
        self, org: int, group: str, generation: int, member_id: str, instance_id: str
    ) -> ErrorCode:
        """Whether offsets are taken from this member, or from outside of a group."""
        kept = self._table.kept.get((org, group))
        if kept is None:
            if not group:
                return ErrorCode.INVALID_GROUP_ID
            if not self._may_make((org, group)):
                return ErrorCode.POLICY_VIOLATION
            return ErrorCode.NONE if generation < 0 else ErrorCode.ILLEGAL_GENERATION
        return kept.group.may_commit(generation, member_id, instance_id, _now())

    async def commit(self, org: int, group: str, offsets: dict[Place, Committed]) -> None:
        """Commit offsets. Queued in the order of the calls; durable on return.

        Raises:
            StorageError: they are not committed.
        """
        key = (org, group)
        pending = self.journal.append(offsets_event(key, offsets))

        def done(appended: asyncio.Future[list[int]]) -> None:
            if not appended.cancelled() and appended.exception() is None:
                kept = self._table.kept.get(key)
                self._lags.note(key, kept.group if kept is not None else None, offsets)

        pending.add_done_callback(done)
        await asyncio.shield(pending)

    async def lag_of_offsets(
        self, org: int, group: str, offsets: dict[Place, Committed]
    ) -> list[PartitionLag]:
        """How far behind these are, of a group that another broker coordinates."""
        return await self._lags.of_offsets((org, group), offsets, self.now_ms())

    async def lag(self, org: int, kept: Kept, *, elsewhere: bool = False) -> list[PartitionLag]:
        """How far behind a group is, in every partition that it has to do with."""
        key = (org, kept.group.name)
        return await self._lags.of_group(key, kept, self.now_ms(), exact=True, elsewhere=elsewhere)

    async def every_lag(self) -> AsyncIterator[tuple[int, Group, list[PartitionLag]]]:
        """The same of all groups of all orgs, with their orgs; seconds are to the batch.

        Cheap, and in slices, so that metrics can ask for it.
        """
        for key, kept in list(self._table.kept.items()):
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
        kept = self._table.kept.get(key)
        if kept is None:
            return ErrorCode.GROUP_ID_NOT_FOUND if name else ErrorCode.INVALID_GROUP_ID
        group = kept.group
        error = group.bury()
        if error:
            return error

        def done(appended: asyncio.Future[list[int]]) -> None:
            if appended.cancelled() or appended.exception() is not None:
                group.unbury()

        pending = self.journal.append({"event": "group_deleted", "org": org, "group": name})
        pending.add_done_callback(done)
        await asyncio.shield(pending)
        return ErrorCode.NONE

    def forget_topic(self, topic: Topic) -> None:
        """A topic was deleted: so are the offsets in it."""
        self.journal.forget(self._table.forget_topic(topic))

    async def forget_topic_elsewhere(self, org: int, name: str, topic_id: bytes) -> None:
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
        for key in list(self._table.kept):
            await slices.done()
            kept = self._table.kept.get(key)
            if kept is None or self.journal.is_queued(key):
                continue
            places = self._table.expired(kept, before_ms)
            count += len(places)
            if len(places) < len(kept.offsets) or kept.group.state is not State.EMPTY:
                if places:
                    await self.delete_offsets(*key, places)
            elif kept.stored is not None or places:
                await self.delete_group(*key)
            elif not kept.group.is_expected():
                self._table.kept.pop(key, None)
        return count

    # --- the log ----------------------------------------------------------------------------

    def _save(self, key: Key, group: Group, stored: dict[str, Any], saved: Saved) -> None:
        """`Group.save`: make it durable, then tell."""
        group.since_ms = self.now_ms()
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
        when = group.wake_at
        if when >= self._due_at.get(key, NEVER) or not self._running:
            return
        self._due_at[key] = when
        self._serial += 1
        heappush(self._due, (when, self._serial, key))
        self._arm()

    def _arm(self) -> None:
        when = self._due[0][0]
        if self._timer is not None:
            if self._timer.when() <= when and not self._timer.cancelled():
                return
            self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_at(when, self._tick)

    def _tick(self) -> None:
        self._timer = None
        now = _now()
        while self._due and self._due[0][0] <= now:
            when, _, key = heappop(self._due)
            if self._due_at.get(key) != when:
                continue
            del self._due_at[key]
            kept = self._table.kept.get(key)
            if kept is None:
                continue
            try:
                kept.group.tick(now)
            except Exception:  # a mistake in one group must not stop the clock of all others
                log.exception("the timers of group %r failed", key[1])
            self._changed(key, kept.group)
        if self._due and self._running:
            self._arm()


def _reply(answer: asyncio.Future[Any], value: Any) -> None:
    if not answer.done():
        answer.set_result(value)


def _of_unknown(group: str) -> ErrorCode:
    return ErrorCode.UNKNOWN_MEMBER_ID if group else ErrorCode.INVALID_GROUP_ID
