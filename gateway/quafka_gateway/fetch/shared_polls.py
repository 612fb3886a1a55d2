"""Identical fetches share one op: a fetch joins an op in flight that asks for the same.

A fetch may take an answer that is true of a moment after the fetch arrived (docs/adr/0012):

- an answer with records or watermarks: everything read since the op was sent is unchanged while
  the lease is valid and its generation the same. The answer must also include the produces that
  were acknowledged before the fetch arrived;
- an empty answer: it is true of the moment when the broker's wait ended, not of the one when the
  op was sent. It serves the fetches that arrived before the wait ended.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace

from quafka_gateway.cluster.parked_time import add_parked
from quafka_gateway.fetch.broker_fetch import BrokerFetch
from quafka_gateway.fetch.cached_partition import CachedPartition
from quafka_gateway.fetch.produce_acks import Moment, ProduceAcks
from quafka_mesh_ops.ops.records import FetchOp, FetchOps, FetchOpsResp
from quafka_telemetry import semconv
from quafka_telemetry.tracing import TraceContext, Tracer

_Key = tuple[tuple[FetchOp, ...], int, int, int]
Known = Sequence[CachedPartition | None]
"""What the cache has of each partition of an op."""


@dataclass(slots=True, eq=False)
class _Poll:
    """One op in flight.

    Attributes:
        began: loop time.
        ends: loop time when the broker's wait is over, at the earliest.
        moment: when it began, counted in acknowledgements.
        generation: the lease's, when it began.
    """

    key: _Key
    task: asyncio.Task[FetchOpsResp]
    began: float
    ends: float
    moment: Moment
    generation: int
    waiters: int = 0


class SharedPolls:
    """The polls of one broker that are in flight or parked there, by what they ask for."""

    def __init__(self, broker: BrokerFetch, tracer: Tracer) -> None:
        self._broker = broker
        self._tracer = tracer
        self._polls: dict[int, _Poll] = {}  # by the hash of their key

    async def fetch(self, op: FetchOps, known: Known, trace: TraceContext | None) -> FetchOpsResp:
        """The answer to `op`, from an op of its own or a shared one.

        The broker's op is cancelled with the last fetch that waits for it.
        """
        loop = asyncio.get_running_loop()
        lease, acks = self._broker.lease, self._broker.acks
        arrived = loop.time()
        deadline = arrived + op.max_wait_ms / 1000
        key: _Key = (tuple(op.partitions), op.min_bytes, op.max_bytes, op.isolation_level)
        number = hash(key)  # once: the key is long with a thousand partitions
        nothing: FetchOpsResp | None = None  # an empty answer that serves this fetch
        while loop.time() < deadline and lease.valid:
            poll = self._polls.get(number)
            if poll is None or poll.generation != lease.generation:
                # It gets the whole wait, which later fetches may need; this one leaves earlier.
                poll = self._begin(key, number, op, trace)
                if nothing is None:
                    mine = await self._wait(number, poll, None)
                    assert mine is not None, "without a timeout there is an answer"
                    return mine
                answer = await self._wait(number, poll, deadline)
            elif poll.key != key:
                break
            else:
                needed = _acknowledged_ends(acks, known, poll.moment)
                with self._tracer.start(semconv.GATEWAY_PARK, trace):
                    answer = await self._wait(number, poll, deadline)
                if answer is not None and _has_records(answer) and not _reaches(answer, needed):
                    break
            if answer is None or not _may_be_shared(answer):
                break
            if _has_records(answer):
                return answer
            if not arrived <= poll.ends <= loop.time():
                break
            nothing = answer
        if nothing is not None and loop.time() >= deadline:
            return nothing
        answer = await self._broker.fetch(replace(op, max_wait_ms=_ms_until(deadline)), trace)
        add_parked(answer.parked_us / 1e6)
        return answer

    def _begin(self, key: _Key, number: int, op: FetchOps, trace: TraceContext | None) -> _Poll:
        loop = asyncio.get_running_loop()
        task = loop.create_task(self._broker.fetch(op, trace))
        began = loop.time()
        ends = began + op.max_wait_ms / 1000
        moment, generation = self._broker.acks.now, self._broker.lease.generation
        poll = self._polls[number] = _Poll(key, task, began, ends, moment, generation)
        task.add_done_callback(lambda _: self._remove(number, poll))
        return poll

    def _remove(self, number: int, poll: _Poll) -> None:
        if self._polls.get(number) is poll:
            del self._polls[number]

    async def _wait(self, number: int, poll: _Poll, until: float | None) -> FetchOpsResp | None:
        """The poll's answer; None if loop time `until` comes first."""
        poll.waiters += 1
        loop = asyncio.get_running_loop()
        joined_at = loop.time()
        try:
            timeout = None if until is None else until - joined_at
            done, _ = await asyncio.wait({poll.task}, timeout=timeout)
            now = loop.time()
            if not done:
                add_parked(now - joined_at)
                return None
            answer = poll.task.result()
            # The non-parked time is at the end of the op: late joiners are charged it, too.
            at_work = now - poll.began - answer.parked_us / 1e6
            add_parked(now - joined_at - at_work)
            return answer
        finally:
            poll.waiters -= 1
            if not poll.waiters and not poll.task.done():
                self._remove(number, poll)
                poll.task.cancel()


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


def _ms_until(deadline: float) -> int:
    return max(0, int((deadline - asyncio.get_running_loop().time()) * 1000))
