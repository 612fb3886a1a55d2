"""The coordinator: all groups of all orgs, their timers, and their committed offsets.

One timer of the event loop serves all deadlines. A group is changed only by its methods, on the
loop; what is durable of it goes through the log, and is applied in the order of the log, whether
or not the caller still waits.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from heapq import heappop, heappush
from time import time_ns
from typing import Any, NamedTuple

from quafka_broker.groups import journal
from quafka_broker.groups.group import NEVER, Group, Limits, Saved
from quafka_broker.groups.journal import GROUPS, Event
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
from quafka_proto.errors import ErrorCode

log = logging.getLogger("quafka.broker.groups")

Key = tuple[int, str]
"""Org and name."""


class Committed(NamedTuple):
    """An offset. `generation`: the topic's, which tells it from an earlier one of its name."""

    generation: int
    offset: int
    leader_epoch: int
    metadata: str
    at_ms: int


@dataclass(slots=True, eq=False)
class Kept:
    """A group, and what it has committed: by topic and partition."""

    group: Group
    offsets: dict[tuple[str, int], Committed] = field(
        default_factory=dict[tuple[str, int], Committed]
    )


class TooManyGroupsError(Exception):
    """No more groups are made."""


def _now_ms() -> int:
    return time_ns() // 1_000_000


class Coordinator:
    """Runs the groups. All methods are for one event loop."""

    def __init__(
        self,
        wal: Log,
        limits: Limits,
        max_groups: int = 100_000,
        now_ms: Callable[[], int] = _now_ms,
    ) -> None:
        self._wal = wal
        self._limits = limits
        self._max_groups = max_groups
        self._now_ms = now_ms
        self._kept: dict[Key, Kept] = {}
        self._due: list[tuple[float, int, Key]] = []
        self._due_at: dict[Key, float] = {}
        self._serial = 0
        self._timer: asyncio.TimerHandle | None = None
        self._draining = False

    # --- life -------------------------------------------------------------------------------

    async def replay(self, find_topic: Callable[[int, str], Topic | None]) -> None:
        """Rebuild the groups from the log. Offsets of topics that have gone are left out.

        Raises:
            StorageError: the log cannot be read.
            ValueError, KeyError, TypeError: an event cannot be understood.
        """
        async for _, event in journal.events(self._wal):
            self._apply(event)
        now = asyncio.get_running_loop().time()
        for key, kept in self._kept.items():
            kept.offsets = {
                place: committed
                for place, committed in kept.offsets.items()
                if (topic := find_topic(key[0], place[0])) is not None
                and topic.generation == committed.generation
            }
            self._changed(key, kept.group, now)

    def drain(self) -> None:
        """Answer what is parked, and park nothing more."""
        self._draining = True
        if self._timer is not None:
            self._timer.cancel()
        for kept in self._kept.values():
            kept.group.drain()

    # --- groups -----------------------------------------------------------------------------

    def find(self, org: int, name: str) -> Kept | None:
        """A group, if it is known."""
        return self._kept.get((org, name))

    def groups(self, org: int) -> list[Kept]:
        """An org's groups, by name."""
        return [kept for key, kept in sorted(self._kept.items()) if key[0] == org]

    def _find_or_make(self, key: Key) -> Kept:
        kept = self._kept.get(key)
        if kept is None:
            if len(self._kept) >= self._max_groups:
                raise TooManyGroupsError
            kept = self._kept[key] = Kept(Group(key[1], self._limits, partial(self._save, key)))
        return kept

    async def join(self, org: int, op: JoinGroup) -> JoinGroupResp:
        """Join a group; waits until its next generation begins."""
        key = (org, op.group)
        if self._draining:
            return JoinGroupResp(ErrorCode.NOT_COORDINATOR, op.member_id)
        if not op.group:
            return JoinGroupResp(ErrorCode.INVALID_GROUP_ID, op.member_id)
        if op.member_id and key not in self._kept:
            return JoinGroupResp(ErrorCode.UNKNOWN_MEMBER_ID, op.member_id)
        try:
            group = self._find_or_make(key).group
        except TooManyGroupsError:
            return JoinGroupResp(ErrorCode.POLICY_VIOLATION)
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[JoinGroupResp] = loop.create_future()
        reply = partial(_reply, answer)
        member_id = group.join(op, loop.time(), reply)
        self._changed(key, group, loop.time())
        try:
            return await answer
        finally:
            if not answer.done() or answer.cancelled():
                group.abandon_join(member_id, reply, loop.time())
                self._changed(key, group, loop.time())

    async def sync(self, org: int, op: SyncGroup) -> SyncGroupResp:
        """Ask for an assignment; waits until the leader has brought it."""
        key = (org, op.group)
        kept = self._kept.get(key)
        if self._draining:
            return SyncGroupResp(ErrorCode.NOT_COORDINATOR)
        if kept is None:
            return SyncGroupResp(_of_unknown(op.group))
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[SyncGroupResp] = loop.create_future()
        reply = partial(_reply, answer)
        kept.group.sync(op, loop.time(), reply)
        self._changed(key, kept.group, loop.time())
        try:
            return await answer
        finally:
            if not answer.done() or answer.cancelled():
                kept.group.abandon_sync(op.member_id, reply, loop.time())
                self._changed(key, kept.group, loop.time())

    def heartbeat(self, org: int, op: Heartbeat) -> ErrorCode:
        """A member is alive."""
        kept = self._kept.get((org, op.group))
        if kept is None:
            return _of_unknown(op.group)
        now = asyncio.get_running_loop().time()
        return kept.group.heartbeat(op.generation, op.member_id, op.instance_id, now)

    def leave(self, org: int, op: LeaveGroup) -> tuple[ErrorCode, list[ErrorCode]]:
        """Members leave; the group's error, and theirs."""
        key = (org, op.group)
        kept = self._kept.get(key)
        if kept is None:
            if not op.group:
                return ErrorCode.INVALID_GROUP_ID, []
            return ErrorCode.NONE, [ErrorCode.UNKNOWN_MEMBER_ID] * len(op.leavers)
        now = asyncio.get_running_loop().time()
        answers = kept.group.leave(op.leavers, now)
        self._changed(key, kept.group, now)
        return ErrorCode.NONE, answers

    # --- offsets ----------------------------------------------------------------------------

    def may_commit(
        self, org: int, group: str, generation: int, member_id: str, instance_id: str
    ) -> ErrorCode:
        """Whether offsets are taken from this member, or from outside of a group."""
        kept = self._kept.get((org, group))
        if kept is None:
            if not group:
                return ErrorCode.INVALID_GROUP_ID
            if len(self._kept) >= self._max_groups:
                return ErrorCode.POLICY_VIOLATION
            return ErrorCode.NONE if generation < 0 else ErrorCode.ILLEGAL_GENERATION
        now = asyncio.get_running_loop().time()
        return kept.group.may_commit(generation, member_id, instance_id, now)

    async def commit(self, org: int, group: str, offsets: dict[tuple[str, int], Committed]) -> None:
        """Commit offsets. Queued in the order of the calls; durable on return.

        Raises:
            StorageError: they are not committed.
        """
        rows = [[place[0], c.generation, place[1], *c[1:]] for place, c in offsets.items()]
        event = {"event": "offsets", "org": org, "group": group, "offsets": rows}
        await asyncio.shield(self._append(event))

    def now_ms(self) -> int:
        """The time that commits carry."""
        return self._now_ms()

    def forget_topic(self, topic: Topic) -> None:
        """A topic was deleted: so are the offsets in it."""
        for (org, _), kept in self._kept.items():
            if org == topic.org:
                for place in [place for place in kept.offsets if place[0] == topic.name]:
                    del kept.offsets[place]

    # --- the log ----------------------------------------------------------------------------

    def _save(self, key: Key, group: Group, stored: dict[str, Any], saved: Saved) -> None:
        """`Group.save`: make it durable, then tell."""
        group.since_ms = self._now_ms()
        event = {
            "event": "group", "org": key[0], "group": key[1], "since_ms": group.since_ms, **stored
        }  # fmt: skip

        def done(appended: asyncio.Future[list[int]]) -> None:
            now = asyncio.get_running_loop().time()
            saved(not appended.cancelled() and appended.exception() is None, now)
            self._changed(key, group, now)

        self._append(event).add_done_callback(done)

    def _append(self, event: Event) -> asyncio.Future[list[int]]:
        """An event on its way to the log; it is applied as soon as it is there."""
        virtual = self._wal.topic(GROUPS)
        pending = self._wal.append(virtual, journal.batch_of([event], self._now_ms()))

        def done(appended: asyncio.Future[list[int]]) -> None:
            if appended.cancelled() or appended.exception() is not None:
                return
            if event["event"] != "group":  # that is what the group is already
                self._apply(event)

        pending.add_done_callback(done)
        return pending

    def _apply(self, event: Event) -> None:
        """Make an event's change."""
        kind = event["event"]
        key: Key = (event["org"], event["group"])
        if kind == "offsets":
            kept = self._kept.get(key) or self._make(key)
            for topic, generation, partition, *rest in event["offsets"]:
                kept.offsets[topic, partition] = Committed(generation, *rest)
        elif kind == "group":
            # Whatever it was before: an event has all of it.
            before = self._kept.pop(key, None)
            kept = self._make(key)
            kept.group.restore(event, asyncio.get_running_loop().time())
            kept.group.since_ms = event["since_ms"]
            if before is not None:
                kept.offsets = before.offsets
        elif kind == "offsets_deleted":
            kept = self._kept.get(key) or self._make(key)
            for topic, partition in event["partitions"]:
                kept.offsets.pop((topic, partition), None)
        elif kind == "group_deleted":
            self._kept.pop(key, None)
        else:
            raise ValueError(f"the event {kind!r} is not known")

    def _make(self, key: Key) -> Kept:
        kept = self._kept[key] = Kept(Group(key[1], self._limits, partial(self._save, key)))
        return kept

    # --- timers -----------------------------------------------------------------------------

    def _changed(self, key: Key, group: Group, now: float) -> None:
        """See that the group is woken when it has to be."""
        when = group.wake_at
        if when >= self._due_at.get(key, NEVER) or self._draining:
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
        now = asyncio.get_running_loop().time()
        while self._due and self._due[0][0] <= now:
            when, _, key = heappop(self._due)
            if self._due_at.get(key) != when:
                continue
            del self._due_at[key]
            kept = self._kept.get(key)
            if kept is None:
                continue
            try:
                kept.group.tick(now)
            except Exception:  # a mistake in one group must not stop the clock of all others
                log.exception("the timers of group %r failed", key[1])
            self._changed(key, kept.group, now)
        if self._due and not self._draining:
            self._arm()


def _reply(answer: asyncio.Future[Any], value: Any) -> None:
    if not answer.done():
        answer.set_result(value)


def _of_unknown(group: str) -> ErrorCode:
    return ErrorCode.UNKNOWN_MEMBER_ID if group else ErrorCode.INVALID_GROUP_ID
