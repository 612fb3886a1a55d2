"""Identical fetches share one op: a fetch joins an op in flight that asks for the same.

A fetch may take an answer that is true of a moment after the fetch arrived (docs/adr/0012):

- an answer with records or watermarks: everything read since the op was sent is unchanged while
  the lease is valid and its generation the same. The answer must also include the produces that
  were acknowledged before the fetch arrived;
- an empty answer: it is true of the moment when the broker's wait ended, not of the one when the
  op was sent. It serves the fetches that arrived before the wait ended, at their own deadlines.

An op that ends empty is sent again while fetches wait for it: they stay parked here meanwhile.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from quafka_gateway.cluster.parked_time import add_parked
from quafka_gateway.fetch.broker_fetch import BrokerFetch
from quafka_gateway.fetch.cached_partition import CachedPartition
from quafka_gateway.fetch.produce_acks import Moment, ProduceAcks
from quafka_loop.deadlines import Deadlines
from quafka_loop.eager_task import DirectFuture, EagerTask
from quafka_loop.wakeups import Wakeups
from quafka_mesh_ops.ops.records import FetchOp, FetchOps, FetchOpsResp
from quafka_telemetry import semconv
from quafka_telemetry.tracing import TraceContext, Tracer

_TICK = 0.005
"""Seconds by which a fetch that shares an op may wait longer than its client asked for."""

_Key = tuple[tuple[FetchOp, ...], int, int, int]
Known = Sequence[CachedPartition | None]
"""What the cache has of each partition of an op."""


@dataclass(slots=True, eq=False)
class _Waiter:
    """A fetch that waits for a poll.

    Attributes:
        arrived, deadline: loop times of its wait.
        needed: the high watermarks that an answer must show; None: they are not known.
        answer: receives the answer, or None: the fetch must ask the broker itself.
        parked_until: loop time when the broker, or this fetch, stopped waiting for records.
    """

    poll: _Poll
    arrived: float
    deadline: float
    needed: list[int] | None
    trace: TraceContext | None
    answer: DirectFuture[FetchOpsResp | None]
    parked_until: float = 0.0

    def end(self, answer: FetchOpsResp | None, parked_until: float) -> None:
        """Give it the answer, unless it has one."""
        if not self.answer.done():
            self.parked_until = parked_until
            self.answer.set_result(answer)

    def fail(self, error: BaseException) -> None:
        """End it with an error, unless it has an answer."""
        if not self.answer.done():
            self.answer.set_exception(error)

    def expire(self) -> None:
        """Its deadline has passed: the last empty answer serves it if it is late enough."""
        poll, now = self.poll, self.answer.get_loop().time()
        if poll.nothing is not None and poll.nothing_at >= self.arrived:
            self.end(poll.nothing, now)
        elif poll.ends > now:
            self.end(None, now)
        # Otherwise the broker's answer is under way: it comes sooner than the answer to another op.


@dataclass(slots=True, eq=False)
class _Poll:
    """One op in flight, and the fetches that wait for its answer.

    Attributes:
        began: loop time.
        ends: loop time when the broker's wait is over, at the earliest.
        moment: when it began, counted in acknowledgements.
        generation: the lease's, when it began.
        first: the fetch for which it was sent, None if it was sent again.
        joined: the other fetches.
        nothing: the last empty answer; true of loop time `nothing_at`.
    """

    number: int
    key: _Key
    op: FetchOps
    first: _Waiter | None = None
    joined: dict[_Waiter, None] = field(default_factory=dict["_Waiter", None])
    task: EagerTask[FetchOpsResp] | None = None
    began: float = 0.0
    ends: float = 0.0
    moment: Moment = 0
    generation: int = 0
    nothing: FetchOpsResp | None = None
    nothing_at: float = -1.0


class SharedPolls:
    """The polls of one broker that are in flight or parked there, by what they ask for."""

    _loop: asyncio.AbstractEventLoop  # set by each fetch: to look it up costs a system call

    def __init__(self, broker: BrokerFetch, tracer: Tracer) -> None:
        self._broker = broker
        self._tracer = tracer
        self._polls: dict[int, _Poll] = {}  # by the hash of their key
        self._wakeups = Wakeups()
        self._deadlines: Deadlines | None = None

    async def fetch(self, op: FetchOps, known: Known, trace: TraceContext | None) -> FetchOpsResp:
        """The answer to `op`, from an op of its own or a shared one.

        The broker's op is cancelled with the last fetch that waits for it.
        """
        loop = self._loop = asyncio.get_running_loop()
        arrived = loop.time()
        deadline = arrived + op.max_wait_ms / 1000
        lease = self._broker.lease
        answer: FetchOpsResp | None = None
        if op.max_wait_ms > 0 and lease.valid:
            key: _Key = (tuple(op.partitions), op.min_bytes, op.max_bytes, op.isolation_level)
            number = hash(key)  # once: the key is long with a thousand partitions
            poll = self._polls.get(number)
            if poll is None or poll.generation != lease.generation:
                answer = await self._lead(_Poll(number, key, op), arrived, deadline, trace)
            elif poll.key == key:
                needed = _acknowledged_ends(self._broker.acks, known, poll.moment)
                with self._tracer.start(semconv.GATEWAY_PARK, trace):
                    answer = await self._join(poll, arrived, deadline, needed, trace)
        if answer is None:
            left = max(0, int((deadline - loop.time()) * 1000))
            answer = await self._broker.fetch(replace(op, max_wait_ms=left), trace)
            add_parked(answer.parked_us / 1e6)
        return answer

    # --- the fetches ------------------------------------------------------------------------

    async def _lead(
        self, poll: _Poll, arrived: float, deadline: float, trace: TraceContext | None
    ) -> FetchOpsResp | None:
        """Send the op; any answer to it is the answer of this fetch."""
        waiter = poll.first = _Waiter(
            poll, arrived, deadline, [], trace, DirectFuture(loop=self._loop)
        )
        try:
            self._send(poll, poll.op, trace)
            return await self._answer(waiter)
        finally:
            poll.first = None
            self._cancel_if_alone(poll)

    async def _join(
        self,
        poll: _Poll,
        arrived: float,
        deadline: float,
        needed: list[int] | None,
        trace: TraceContext | None,
    ) -> FetchOpsResp | None:
        """Wait for the answer of an op in flight; None if it does not serve this fetch."""
        waiter = _Waiter(poll, arrived, deadline, needed, trace, DirectFuture(loop=self._loop))
        if self._deadlines is None:
            self._deadlines = Deadlines(self._loop, _TICK)
        expiry = self._deadlines.add(deadline, partial(self._wakeups.wake, (waiter.expire,)))
        poll.joined[waiter] = None
        try:
            return await self._answer(waiter)
        finally:
            expiry.cancel()
            waiter.poll.joined.pop(waiter, None)
            self._cancel_if_alone(waiter.poll)

    async def _answer(self, waiter: _Waiter) -> FetchOpsResp | None:
        answer = await waiter.answer
        # The non-parked time is at the end of the op: late joiners are charged it, too.
        add_parked(waiter.parked_until - waiter.arrived)
        return answer

    def _cancel_if_alone(self, poll: _Poll) -> None:
        """Cancel an op that no fetch waits for."""
        if poll.first is None and not poll.joined and poll.task is not None:
            self._remove(poll)
            poll.task.cancel()

    # --- the op -----------------------------------------------------------------------------

    def _send(self, poll: _Poll, op: FetchOps, trace: TraceContext | None) -> None:
        """Send the op with a long wait, which later fetches may need: each leaves in time."""
        poll.began = self._loop.time()
        poll.ends = poll.began + op.max_wait_ms / 1000
        poll.moment, poll.generation = self._broker.acks.now, self._broker.lease.generation
        self._polls[poll.number] = poll
        task = poll.task = EagerTask(self._broker.fetch(op, trace))
        task.add_direct_callback(partial(self._ended, poll, task))

    def _remove(self, poll: _Poll) -> None:
        if self._polls.get(poll.number) is poll:
            del self._polls[poll.number]

    def _ended(self, poll: _Poll, task: EagerTask[FetchOpsResp]) -> None:
        """Wake the fetches that the answer serves, or that must ask the broker themselves."""
        self._remove(poll)
        first, poll.first = poll.first, None
        if task.cancelled():  # no fetch waits
            return
        lead = [] if first is None else [first]
        error = task.exception()
        if error is not None:
            self._wakeups.wake(partial(each.fail, error) for each in (*lead, *poll.joined))
            return
        answer = task.result()
        parked_until = poll.began + answer.parked_us / 1e6
        given = [(each, answer) for each in lead] + self._shared(poll, answer)
        self._wakeups.wake(partial(each.end, answer, parked_until) for each, answer in given)

    def _shared(
        self, poll: _Poll, answer: FetchOpsResp
    ) -> list[tuple[_Waiter, FetchOpsResp | None]]:
        """What the joined fetches receive; those that wait on are not listed."""
        now = self._loop.time()
        if not _may_be_shared(answer):
            return [(each, None) for each in poll.joined]
        if _has_records(answer):
            serves = ((each, _reaches(answer, each.needed)) for each in poll.joined)
            return [(each, answer if served else None) for each, served in serves]
        if poll.ends > now:  # such as of a broker that drains
            return [(each, None) for each in poll.joined]
        poll.nothing, poll.nothing_at = answer, poll.ends
        over = [each for each in poll.joined if each.deadline <= now]
        later = [each for each in poll.joined if each.deadline > now]
        found = [(each, answer if each.arrived <= poll.ends else None) for each in over]
        if later and not self._wait_on(poll, later):
            found += [(each, None) for each in later]
        return found

    def _wait_on(self, poll: _Poll, later: Sequence[_Waiter]) -> bool:
        """Let fetches stay parked for another op. Returns whether they may."""
        if not self._broker.lease.valid:
            return False
        newer = self._polls.get(poll.number)  # of a later generation of the lease
        if newer is not None and newer.key != poll.key:
            return False
        for waiter in later:
            waiter.needed = []  # all of them arrived before the other op was sent
        if newer is None:
            # A little shorter, so that one op at least ends within each fetch's wait.
            shorter = replace(poll.op, max_wait_ms=max(1, poll.op.max_wait_ms * 7 // 8))
            self._send(poll, shorter, later[0].trace)
            return True
        for waiter in later:
            del poll.joined[waiter]
            newer.joined[waiter] = None
            waiter.poll = newer
        return True


def _acknowledged_ends(acks: ProduceAcks, known: Known, moment: Moment) -> list[int] | None:
    """The high watermarks that an op sent at `moment` must show to a fetch that arrives now.

    None: they are not known. Empty: nothing was acknowledged since.
    """
    if acks.now == moment:
        return []
    ends: list[int] = []
    for partition in known:
        if partition is None or acks.any_since(partition.includes_acks, *partition.key):
            return None
        ends.append(partition.high_watermark)
    return ends


def _reaches(answer: FetchOpsResp, ends: list[int] | None) -> bool:
    if not ends:
        return ends is not None
    parts = zip(answer.partitions, ends, strict=True)
    return all(part.high_watermark >= end for part, end in parts)


def _has_records(answer: FetchOpsResp) -> bool:
    return any(part.records for part in answer.partitions)


def _may_be_shared(answer: FetchOpsResp) -> bool:
    return answer.leased and not any(part.error_code for part in answer.partitions)
