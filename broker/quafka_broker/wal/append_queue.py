"""Appends that wait to be written."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from functools import cached_property
from typing import NamedTuple

from quafka_broker.partitions.errors import InDoubtError, StorageError
from quafka_broker.partitions.outcome import Outcome, Settle
from quafka_broker.partitions.partition import Partition
from quafka_broker.wal.acceptance import Acceptance
from quafka_broker.wal.answers import Answers, settle
from quafka_broker.wal.commit_group import Append, GroupedBatch, WriteTimes
from quafka_loop.eager_task import DirectFuture
from quafka_loop.turn_end import turn_end
from quafka_proto.records import BatchHeader

_MAX_PENDING_BYTES = 64 << 20


class Share(NamedTuple):
    """The limits of an org's pending appends while others append, too.

    They wait for the write of this many bytes, and for this many answers.
    """

    bytes: int = 512 << 10
    appends: int = 16


_SHARED_SECONDS = 10.0
"""How long an org counts as appending after its last append."""
_NO_ORG = 0


class _Pending:
    """The pending appends of one org."""

    __slots__ = ("bytes", "count")

    def __init__(self) -> None:
        self.bytes = self.count = 0


class _Enough:
    """How much must wait before the writer continues."""

    __slots__ = ("_bytes", "_count")

    def __init__(self, count: int, size: int) -> None:
        self._count, self._bytes = count, size

    def reached(self, size: int) -> bool:
        """Count an append; returns whether there are enough."""
        self._count -= 1
        self._bytes -= size
        return self._count <= 0 or self._bytes <= 0


class _Gate:
    """The callers of one org that wait for room, in the order of their calls."""

    def __init__(self) -> None:
        self.lock = asyncio.Lock()
        self.waiters = 0


class AppendQueue:
    """Appends in the order of their calls, with a bound on their bytes. For one event loop.

    While several orgs append, each may have a small share pending. Appends beyond it have not been
    called yet, so the order of appends has no exceptions.

    Attributes:
        waiting: the appends that no commit group has taken yet.
        bytes: the size of the pending appends, waiting or being written.
        answers: the answers to decided appends.
    """

    def __init__(self, acceptance: Acceptance, share: Share) -> None:
        self._acceptance = acceptance
        self._share = share
        self.waiting: deque[Append] = deque()
        self.bytes = 0
        self.answers = Answers()
        self._idle: DirectFuture[None] | None = None  # the writer waits for work
        self._enough: _Enough | None = None  # it waits for this much
        self._waking = False
        self._room = asyncio.Event()
        self._gates: dict[int, _Gate] = {}
        self._pending: dict[int, _Pending] = {}
        self._last_org = _NO_ORG
        self._shared_until = 0.0

    @cached_property
    def _loop(self) -> asyncio.AbstractEventLoop:
        """The loop of the first call, kept: Python 3.11 makes a system call to find it."""
        return asyncio.get_running_loop()

    def has_room(self, org: int = _NO_ORG) -> bool:
        """Whether `wait_for_room` would not wait."""
        return org not in self._gates and self._fits(org)

    async def wait_for_room(self, org: int = _NO_ORG) -> None:
        """Wait while too many bytes are pending: of all orgs or, while others append, of this org.

        Callers of an org continue in the order of their calls. Does not suspend if there is room,
        so that appends are in the order of calls. Org 0: the broker itself.
        """
        if self.has_room(org):
            return
        gate = self._gates.get(org)
        if gate is None:
            gate = self._gates[org] = _Gate()
        gate.waiters += 1
        try:
            async with gate.lock:
                while not self._fits(org):
                    self._room.clear()
                    await self._room.wait()
        finally:
            gate.waiters -= 1
            if not gate.waiters:
                del self._gates[org]

    def _fits(self, org: int) -> bool:
        if self._acceptance.closed is not None:
            return True  # refused at once
        if self.bytes >= _MAX_PENDING_BYTES:
            return False
        pending = self._pending.get(org)
        share = self._share
        if pending is None or (pending.bytes < share.bytes and pending.count < share.appends):
            return True
        return self._loop.time() >= self._shared_until

    def check_room(self) -> None:
        """Wake a caller of `wait_for_room` after appends have been answered."""
        self._room.set()

    def append(
        self,
        partition: Partition,
        batches: Sequence[tuple[BatchHeader, memoryview]],
        *,
        urgent: bool = False,
        writes: list[WriteTimes] | None = None,
        settle: Settle | None = None,
        members: Sequence[GroupedBatch] = (),
    ) -> DirectFuture[list[int]]:
        """Queue checked batches; returns a future of the offset of each batch's first record.

        The order of the calls is the order in the log. Cancelling the future does not withdraw the
        batches. Call `wait_for_room` first to bound the memory. An `urgent` append may use the
        reserve of a full disk. `writes` receives the times of the write.

        `settle` is called with the outcome, in the order of the log, in a later turn of the loop,
        even if the future was cancelled. The appends of a commit are all settled before any of them
        is answered.

        `members` are batches of any partitions that directly follow a batch of the broker's own,
        whose base sequence must be their number. All of them are in the log, or none: recovery cuts
        off a group whose end is missing. The future has the offset of each member, too.

        The future raises:
            InDoubtError: the batches may or may not be in the log.
            StorageError: they are not in the log.
        """
        done: DirectFuture[list[int]] = DirectFuture(loop=self._loop)
        size = 0
        for _, batch in batches:
            size += len(batch)
        if members:
            size += sum([len(batch) for _, _, batch in members])
        append = Append(partition, batches, size, done, urgent, writes, settle, members)
        closed = self._acceptance.closed
        if closed is not None:
            self._loop.call_soon(self.fail, [append], self._acceptance.refusal, closed)
            return done
        self.waiting.append(append)
        self.bytes += size
        org = partition.id.org_id
        if org:
            self._count(org, size)
            if org != self._last_org:
                if self._last_org:
                    self._shared_until = self._loop.time() + _SHARED_SECONDS
                self._last_org = org
        if self._idle is not None and (self._enough is None or self._enough.reached(size)):
            self.wake()
        return done

    def _count(self, org: int, size: int) -> None:
        pending = self._pending.get(org)
        if pending is None:
            pending = self._pending[org] = _Pending()
        pending.bytes += size
        pending.count += 1

    def written(self, appends: Sequence[Append]) -> None:
        """Note that these appends are no longer pending."""
        for append in appends:
            self.bytes -= append.size
            org = append.partition.id.org_id
            if org:
                pending = self._pending[org]
                pending.bytes -= append.size
                pending.count -= 1
                if not pending.count:
                    del self._pending[org]

    # --- the writer's side ------------------------------------------------------------------

    async def wait_for_work(self) -> None:
        """Wait for an append, or for `wake`. One caller at a time."""
        if not self.waiting and not self._waking:
            self._idle = DirectFuture(loop=self._loop)
            await self._idle
        self._waking = False

    async def gather(self, count: int, size: int, seconds: float) -> None:
        """Wait for `count` appends, for appends of `size` bytes, or for `wake`.

        Waits for at most `seconds`. One caller at a time, which does not wait for work meanwhile.
        """
        self._enough = _Enough(count, size)
        reached = self._enough.reached
        if self._waking or any(reached(append.size) for append in self.waiting):
            self._enough = None
            return
        self._idle = DirectFuture(loop=self._loop)
        timer = self._loop.call_later(seconds, self._wake)
        try:
            await self._idle
        finally:
            timer.cancel()
            self._enough, self._waking = None, False

    def wake(self) -> None:
        """End `wait_for_work` or `gather` at the end of this turn.

        The turn's appends then share a commit.
        """
        if not self._waking:
            self._waking = True
            turn_end(self._loop).call_first(self._wake)

    async def turn(self) -> None:
        """Yield to others."""
        turn: DirectFuture[None] = DirectFuture(loop=self._loop)
        self._loop.call_soon(turn.set_result, None)
        await turn

    def _wake(self) -> None:
        idle, self._idle = self._idle, None
        if idle is not None:
            idle.set_result(None)

    def refuse(self, appends: Sequence[Append], reason: str, *, but_urgent: bool = False) -> None:
        """Refuse these appends and all waiting ones; with `but_urgent`, urgent ones keep waiting.

        Waiting appends are refused, too: a later batch of an idempotent producer must not get into
        the log before an earlier one. Other pending appends remain pending.
        """
        refused = [*appends, *self.waiting]
        kept: list[Append] = []
        if but_urgent:
            kept = [append for append in refused if append.urgent]
            refused = [append for append in refused if not append.urgent]
        self.waiting.clear()
        self.waiting.extend(kept)
        self.written(refused)
        self.fail(refused, self._acceptance.refusal, reason)
        self.check_room()

    def doubt(self, appends: Sequence[Append]) -> None:
        """Fail appends of a log that has failed: they may or may not be on the disk."""
        self.fail(appends, InDoubtError, self._acceptance.failure or "")

    def fail(self, appends: Sequence[Append], error: type[StorageError], reason: str) -> None:
        """Settle and answer failed appends."""
        self.decide([(append, error(reason)) for append in appends])
        self.answers.send()

    def decide(self, outcomes: Sequence[tuple[Append, Outcome]]) -> None:
        """Apply the outcomes of appends to their callers' states, and queue the answers."""
        settle(outcomes)
        for append, outcome in outcomes:
            self.answers.add(append, outcome)
