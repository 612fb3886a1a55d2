"""Fetch, as the gateway answers it: from memory where it may, otherwise by asking the broker.

What a partition's part in a fetch may be, while the lease is valid and its watermarks are fresh
(docs/adr, leases; `watermarks.py`):

- *here*: batches from its offset on are in the cache;
- *behind*: it is known that there are some, below the high watermark, but not here;
- anything else: only the broker knows. A poll at the tail is parked there.

Of partitions that are behind, a chunk is read into the cache first. If what is here then satisfies
min_bytes, it is the answer; the broker is asked, without waiting, only for the partitions of the
third kind. Otherwise the fetch goes to the broker as it is, and with it the errors, the minimum
and the wait.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from quafka_gateway.cluster.broker_link import BrokerLink
from quafka_gateway.fetch.acknowledged import Acknowledged, Moment
from quafka_gateway.fetch.backfill import Fills
from quafka_gateway.fetch.cache import CachedPartition, FetchCache
from quafka_gateway.fetch.lease import ReadLease
from quafka_gateway.fetch.shared_polls import Covers, SharedPolls
from quafka_gateway.fetch.watermarks import Watermarks
from quafka_gateway.memory import RESPONSE_FLOOR, ResponseMemory
from quafka_mesh_ops.ops.leases import Change
from quafka_mesh_ops.ops.records import (
    MOST_BATCHES,
    FetchOp,
    FetchOpResp,
    FetchOps,
    FetchOpsResp,
    ProduceOpResp,
    ProduceOps,
)
from quafka_proto.records import base_offset, end_offset
from quafka_telemetry import semconv
from quafka_telemetry.tracing import ProducedBy, TraceContext, Tracer, parse_traceparent

_POLL_BYTES = 256 << 10
"""What is asked for at the tail: if there is more, the next fetch finds itself behind."""
_FIRST_BYTES = 1 << 20
_WORTHWHILE = 64 << 10
_FILLS = 8
"""Partitions of one fetch that are caught up with at a time."""


@dataclass(slots=True)
class _Part:
    """One partition's part in a fetch."""

    op: FetchOp
    partition: CachedPartition | None = None
    answer: FetchOpResp | None = None
    size: int = 0
    end: int = -1
    behind: bool = False
    at_tail: bool = False
    stale: bool = False


@dataclass(slots=True)
class _Room:
    """What an answer may still hold: bytes and batches; `first`: one batch however large."""

    left: int
    batches: int
    first: bool


class FetchReader:
    """Reads for all connections of a gateway."""

    def __init__(
        self,
        broker: BrokerLink,
        memory: ResponseMemory,
        cache_bytes: int,
        backfill_bytes: int,
        tracer: Tracer | None = None,
    ) -> None:
        self._broker = broker
        self._memory = memory
        self._cache_bytes = cache_bytes
        self._cache = FetchCache(cache_bytes)
        self._lease = ReadLease(broker.hold_lease, self._changed, self._forget)
        self._tracer = tracer or Tracer()
        self._acks = Acknowledged()
        self._watermarks = Watermarks(self._ask_counted, self._acks)
        self._polls = SharedPolls(
            self._ask, lambda: self._lease.valid, self._tracer, lambda: self._acks.now
        )
        self._fills = Fills(self._ask_counted, backfill_bytes, self._tracer)
        self._produced_by = ProducedBy()
        self._generation = 0
        self.hits = self.misses = self.polls = 0
        """Fetches that were answered from memory, for which a chunk was read first, and that were
        left to the broker."""
        self.parked = 0
        """Of the last, those that are there now."""

    @property
    def readers(self) -> Sequence[FetchReader]:
        """The only one; several brokers have as many."""
        return (self,)

    @property
    def cached_bytes(self) -> int:
        """What the cache holds."""
        return self._cache.size

    async def close(self) -> None:
        """Stop reading ahead and let the lease go."""
        await self._fills.close()
        await self._watermarks.close()
        await self._lease.close()

    async def fetch(self, op: FetchOps, trace: TraceContext | None) -> list[FetchOpResp]:
        """One answer per partition, in their order. Never raises: errors are in the answers."""
        # A replica reads what is not committed, which is nobody else's.
        if not self._cache_bytes or op.replica_id >= 0:
            return (await self._ask_counted(op, trace)).partitions
        self._lease.use()
        with self._tracer.start(semconv.CACHE, trace) as span:
            parts = await self._look_fresh(op, span.context)
            behind = any(part.behind for part in parts)
            if behind:
                self.misses += 1
                parts = await self._catch_up(op, parts, span.context)
            if span.context is not None:
                sizes = [part.size for part in parts if part.answer is not None]
                span.set({semconv.CACHE_HITS: len(sizes), semconv.CACHE_BYTES: sum(sizes)})
        if not _enough(op, parts):
            return (await self._poll(op, parts, trace)).partitions
        self.hits += not behind
        return await self._complete(op, parts, trace)

    def acknowledged(self, op: ProduceOps, answers: Sequence[ProduceOpResp]) -> None:
        """The broker has answered a produce of this gateway. Call it before the client is."""
        now = asyncio.get_running_loop().time()
        for wanted, answer in zip(op.partitions, answers, strict=True):
            if answer.error_code or not answer.topic_id:
                continue
            before = self._acks.note(answer.topic_id, wanted.partition)
            partition = self._cache.known(answer.topic_id, wanted.partition)
            if partition is not None and partition.leader_epoch == answer.leader_epoch:
                partition.grow(answer.high_watermark, answer.last_stable_offset)
                if partition.told >= before:  # what came before is in it as well
                    partition.told = self._acks.now
                partition.heard = now

    def produced_by(self, op: FetchOp, answer: FetchOpResp) -> Iterator[TraceContext]:
        """The traces that wrote the batches of an answer, as far as they are known."""
        cached = None if answer.topic_id or op.topic_id else self._cache.find(op)
        topic_id = answer.topic_id or op.topic_id or (cached.key.topic_id if cached else b"")
        for batch in answer.records:
            offset = base_offset(batch)
            trace = self._produced_by.find((topic_id, op.partition), offset)
            if trace is not None:
                yield trace

    # --- from memory ------------------------------------------------------------------------

    async def _look_fresh(self, op: FetchOps, trace: TraceContext | None) -> list[_Part]:
        """What is here by watermarks that are fresh, which the broker may have to be asked for."""
        arrived = asyncio.get_running_loop().time()

        def is_fresh(partition: CachedPartition) -> bool:
            return self._watermarks.is_fresh(partition, arrived)

        parts = self._look(op, is_fresh)
        # The answer to a question that was on its way may be too old again: then there is another.
        for join in (True, False):
            stale = {id(p.partition): p.partition for p in parts if p.stale and p.partition}
            if not stale:
                break
            await self._watermarks.ask_again(list(stale.values()), trace, join=join)
            parts = self._look(op, is_fresh)
        return parts

    async def _catch_up(
        self, op: FetchOps, parts: list[_Part], trace: TraceContext | None
    ) -> list[_Part]:
        """What is here once those that are behind have been read."""
        fresh = {part.partition for part in parts if not part.stale}
        behind = [part for part in parts if part.behind][:_FILLS]
        # A read that others had begun may end before what this fetch has to show. If the second
        # does so as well, the broker answers.
        for _ in range(2):
            reads = (
                self._fills.fill(part.partition, part.end, trace)
                for part in behind
                if part.partition is not None
            )
            await asyncio.gather(*reads)
            parts = self._look(op, lambda partition: partition in fresh)
            filled = {id(part.op) for part in behind}
            behind = [part for part in parts if part.behind and id(part.op) in filled]
            if not behind:
                break
        return parts

    def _look(self, op: FetchOps, is_fresh: Callable[[CachedPartition], bool]) -> list[_Part]:
        """What is here, within the limits of the fetch; nothing where the lease is not valid.

        Fewer bytes than _WORTHWHILE that end before the high watermark do not count as here.
        """
        if not self._lease.valid:
            return [_Part(part) for part in op.partitions]
        room = _Room(self._memory.allowance(op.max_bytes), MOST_BATCHES, op.at_least_one)
        parts: list[_Part] = []
        for wanted in op.partitions:
            part = _Part(wanted, self._cache.find(wanted))
            parts.append(part)
            if part.partition is not None:
                part.at_tail = wanted.fetch_offset == part.partition.high_watermark
                part.stale = not part.at_tail and not is_fresh(part.partition)
                if not part.stale:
                    self._look_at(part, op.isolation_level, room)
            if part.answer is not None:
                room.left -= part.size
                room.batches -= len(part.answer.records)
                room.first = room.first and not part.size
            elif not part.at_tail:
                # It comes first (KIP-74), whatever is here of those behind it.
                room.left -= min(wanted.max_bytes, max(room.left, 0))
                room.first = False
        return parts

    def _look_at(self, part: _Part, isolation_level: int, room: _Room) -> None:
        partition, wanted = part.partition, part.op
        limit, first = max(0, min(wanted.max_bytes, room.left)), room.first
        assert partition is not None
        upto = partition.readable_to(isolation_level)
        if not partition.log_start <= wanted.fetch_offset < upto:
            return
        if wanted.current_leader_epoch not in partition.epochs or wanted.last_fetched_epoch >= 0:
            return
        batches, size, end = self._cache.take(
            partition, wanted.fetch_offset, upto, limit, at_least_one=first, most=room.batches
        )
        part.end = end
        ended_by_limit = partition.ahead_of(end, 1)[1] > 0
        if ended_by_limit or end >= upto or (batches and size >= _WORTHWHILE):
            part.answer = _answer(partition, isolation_level, batches)
            part.size = size
        elif limit or first:
            part.behind = True
        else:  # there is no room for it in this answer
            part.answer = _answer(partition, isolation_level, [])

    async def _complete(
        self, op: FetchOps, parts: Sequence[_Part], trace: TraceContext | None
    ) -> list[FetchOpResp]:
        """There is enough here. Ask for what is not known, and read ahead."""
        for part in parts:
            if part.partition is None:
                continue
            if part.answer is not None and part.size:
                self._cache.was_read(part.partition, part.op.fetch_offset, part.end)
                self._fills.advance(part.partition, part.op.fetch_offset, part.end)
            elif part.behind:
                self._fills.begin(part.partition, part.end)
                part.answer = _answer(part.partition, op.isolation_level, [])
        unknown = [part for part in parts if part.answer is None]
        if unknown:
            left = self._memory.allowance(op.max_bytes) - sum(part.size for part in parts)
            rest = replace(
                op,
                partitions=[part.op for part in unknown],
                max_wait_ms=0,
                min_bytes=0,
                max_bytes=max(0, min(left, _FIRST_BYTES)),
                at_least_one=False,
            )
            answers = await self._ask_counted(rest, trace)
            for part, answer in zip(unknown, answers.partitions, strict=True):
                part.answer = answer
        return [part.answer for part in parts if part.answer is not None]

    # --- from the broker --------------------------------------------------------------------

    async def _poll(
        self, op: FetchOps, parts: Sequence[_Part], trace: TraceContext | None
    ) -> FetchOpsResp:
        """Ask the broker, with its wait; share the answer with who asks the same."""
        parked = all(part.at_tail for part in parts)
        wanted = max(_POLL_BYTES if parked else _FIRST_BYTES, op.min_bytes)
        allowed = self._memory.allowance(min(wanted, op.max_bytes))
        # Many are parked at a time, and few of them are given much at once.
        counted = min(allowed, RESPONSE_FLOOR) if parked else allowed
        self._memory.hold(counted)
        self.polls += 1
        self.parked += 1
        try:
            answer = await self._polls.fetch(
                replace(op, max_bytes=allowed), trace, lambda moment: self._covers(parts, moment)
            )
        finally:
            self.parked -= 1
            self._memory.release(counted)
        if parked and any(part.records for part in answer.partitions):
            self._fills.tail_moved()
        for wish, part in zip(op.partitions, answer.partitions, strict=True):
            partition = self._cache.find(wish)
            if part.records and partition is not None:
                partition.expect(_end(part), 0)
        return answer

    def _covers(self, parts: Sequence[_Part], moment: Moment) -> Covers:
        """What must be in an answer to these that was asked for at an earlier moment, and is given
        to a fetch that has come now."""
        if self._acks.now == moment:
            return lambda _: True
        at_least: list[int] = []
        for part in parts:
            known = part.partition
            if known is None or self._acks.since(known.told, *known.key):
                return lambda _: False  # what was acknowledged is not known
            at_least.append(known.high_watermark)
        return lambda answer: all(
            part.high_watermark >= least
            for part, least in zip(answer.partitions, at_least, strict=True)
        )

    async def _ask(self, op: FetchOps, trace: TraceContext | None) -> FetchOpsResp:
        generation = self._generation
        asked, told = asyncio.get_running_loop().time(), self._acks.now
        answer = await self._broker.fetch(op, trace)
        for wanted, part in zip(op.partitions, answer.partitions, strict=True):
            if part.produced_by:
                self._note_traces(wanted, part)
        if generation == self._generation and self._lease.valid:
            self._learn(op, answer, asked, told)
        return answer

    async def _ask_counted(self, op: FetchOps, trace: TraceContext | None) -> FetchOpsResp:
        self._memory.hold(op.max_bytes)
        try:
            return await self._ask(op, trace)
        finally:
            self._memory.release(op.max_bytes)

    # --- what is known ----------------------------------------------------------------------

    def _learn(self, op: FetchOps, answer: FetchOpsResp, asked: float, told: Moment) -> None:
        """Keep an answer, unless the broker says that it may be old already."""
        if not answer.leased:
            return
        now = asyncio.get_running_loop().time()
        alone = sum(bool(part.records) for part in answer.partitions) == 1
        for wanted, part in zip(op.partitions, answer.partitions, strict=True):
            if not part.error_code and part.diverging_epoch is None:
                self._cache.learn(wanted, part, now, asked=asked, told=told, alone=alone)

    def _note_traces(self, op: FetchOp, answer: FetchOpResp) -> None:
        partition = answer.topic_id or op.topic_id, op.partition
        for each in answer.produced_by or ():
            trace = parse_traceparent(each.traceparent)
            if trace is not None:
                self._produced_by.note(partition, each.base_offset, trace)

    def _changed(self, changes: list[Change]) -> None:
        self._generation += 1
        self._polls.detach()
        for change in changes:
            self._cache.drop(change.topic, change.topic_id, change.partition)

    def _forget(self) -> None:
        self._generation += 1
        self._polls.detach()
        self._cache.clear()


def _enough(op: FetchOps, parts: Sequence[_Part]) -> bool:
    size = sum(part.size for part in parts)
    if size >= min(op.min_bytes, op.max_bytes):
        return size > 0
    answers = (part.answer for part in parts if part.answer is not None)
    return sum(len(answer.records) for answer in answers) >= MOST_BATCHES


def _answer(
    partition: CachedPartition, isolation_level: int, batches: list[bytes | bytearray | memoryview]
) -> FetchOpResp:
    return FetchOpResp(
        batches,
        high_watermark=partition.high_watermark,
        log_start_offset=partition.log_start,
        last_stable_offset=partition.last_stable_offset,
        aborted_transactions=[] if isolation_level else None,
        leader_epoch=partition.leader_epoch,
    )


def _end(answer: FetchOpResp) -> int:
    """The offset behind an answer's last batch."""
    return end_offset(answer.records[-1])
