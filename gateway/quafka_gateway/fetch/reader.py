"""The top of the fetch path: answers fetches from memory where possible, otherwise by the broker.

A fetch passes downwards only:

1. `cache_lookup` finds what the cache has, while the lease is valid. Watermarks that are too old
   for this are refreshed first (`watermark_refresh`).
2. Of partitions with missing batches, a chunk is read into the cache (`backfill`).
3. If the cached records now satisfy min_bytes, they are the answer. The broker is asked, without
   a wait, only for partitions about which the cache knows nothing.
4. Otherwise the whole fetch goes to the broker (`shared_polls`), which decides on errors, on the
   minimum and on the wait. A fetch that follows a moving tail goes there without a read of its own.

All four read from the broker through `broker_fetch`, which keeps the answers in the cache.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from quafka_gateway.fair_budget import OrgShare
from quafka_gateway.fetch.backfill import Backfill
from quafka_gateway.fetch.broker_fetch import BrokerFetch, ReadableBroker
from quafka_gateway.fetch.broker_files import BrokerFiles
from quafka_gateway.fetch.cache import FetchCache
from quafka_gateway.fetch.cache_lookup import (
    PartitionLookup,
    cached_answer,
    is_enough,
    look_up,
    nothing_cached,
)
from quafka_gateway.fetch.cached_partition import CachedPartition, PartitionKey
from quafka_gateway.fetch.file_slice import end_offset
from quafka_gateway.fetch.lease import ReadLease
from quafka_gateway.fetch.placed_broker import PlacedBroker
from quafka_gateway.fetch.produce_acks import ProduceAcks
from quafka_gateway.fetch.shared_polls import SharedPolls
from quafka_gateway.fetch.standing_polls import StandingPolls
from quafka_gateway.fetch.store_objects import StoreObjects
from quafka_gateway.fetch.watermark_refresh import WatermarkRefresh
from quafka_gateway.memory import RESPONSE_FLOOR, OrgResponses
from quafka_mesh_ops.ops.records import (
    FetchOp,
    FetchOpResp,
    FetchOps,
    FetchOpsResp,
    ProduceOpResp,
    ProduceOps,
)
from quafka_telemetry import semconv
from quafka_telemetry.tracing import TraceContext, Tracer

_POLL_BYTES = 256 << 10
"""Bytes requested at the tail. If there is more, the next fetch finds batches missing."""
_FIRST_BYTES = 1 << 20
_RECENT = 1_000
"""Records behind the high watermark of a consumer that keeps up."""
_FILLS = 8
"""Partitions of one fetch that the backfill reads for at a time."""


class FetchReader:
    """Reads from one broker for all connections of a gateway."""

    def __init__(
        self,
        broker: ReadableBroker,
        memory: OrgResponses,
        cache_bytes: int,
        backfill_bytes: int,
        tracer: Tracer | None = None,
        files: BrokerFiles | None = None,
        share: OrgShare | None = None,
        objects: StoreObjects | None = None,
    ) -> None:
        """`files`: of a broker that may be on this host; None: its records come by value. Other
        readers may share them; their creator closes them.
        `share`: the org's share of the cache bytes, which all orgs have together.
        `objects`: the store of a broker whose log is in one; None: it is read through the broker.
        """
        self.files = files
        broker = self.placed = PlacedBroker(broker, files, objects)
        self._memory = memory
        self._tracer = tracer or Tracer()
        self._cache_bytes = cache_bytes
        self._cache = FetchCache(cache_bytes, share)
        if files is not None:
            files.when_gone(self._cache.drop_files)
        self._lease = ReadLease(broker, self._cache)
        self._acks = ProduceAcks()
        self._broker = BrokerFetch(broker, memory, self._cache, self._lease, self._acks)
        self._watermarks = WatermarkRefresh(self._broker)
        self._backfill = Backfill(self._broker, backfill_bytes, self._tracer)
        self._polls = SharedPolls(self._broker, self._tracer)
        self.standing = StandingPolls(self._broker, memory)
        self.hits = self.misses = 0
        """Fetches answered from memory, and those for which a chunk was read first."""
        self._polled = self._parked = 0

    @property
    def cached_bytes(self) -> int:
        """Bytes that the cache holds."""
        return self._cache.size

    @property
    def polls(self) -> int:
        """Fetches left to the broker."""
        return self._polled + self.standing.begun

    @property
    def parked(self) -> int:
        """Fetches left to the broker that have no answer yet."""
        return self._parked + self.standing.waiting

    async def close(self) -> None:
        """Cancel the reads in the background and stop holding the lease."""
        self.standing.close()
        await self._backfill.close()
        await self._watermarks.close()
        await self._lease.close()
        if self.files is not None:
            self.files.forget(self._cache.drop_files)
        self._cache.clear()

    async def fetch(self, op: FetchOps, trace: TraceContext | None) -> list[FetchOpResp]:
        """One answer per partition, in their order. Never raises: errors are in the answers."""
        # A replica may read uncommitted records, which the cache must not hold.
        if not self._cache_bytes or op.replica_id >= 0:
            return (await self._broker.fetch_accounted(op, trace)).partitions
        self._lease.use()
        with self._tracer.start(semconv.CACHE, trace) as span:
            found = await self._look_up_fresh(op, span.context)
            missing = any(part.missing for part in found)
            at_tail = all(part.at_tail for part in found) or self._follows_tail(found)
            if missing and not at_tail:
                self.misses += 1
                found = await self._fill(op, found, span.context)
            if span.context is not None:
                sizes = [part.size for part in found if part.answer is not None]
                span.set({semconv.CACHE_HITS: len(sizes), semconv.CACHE_BYTES: sum(sizes)})
        if not is_enough(op, found):
            return (await self._poll(op, found, at_tail, trace)).partitions
        self.hits += not missing
        return await self._complete(op, found, trace)

    def produce_acknowledged(self, op: ProduceOps, answers: Sequence[ProduceOpResp]) -> None:
        """Record a produce of this gateway that the broker has answered, before the client has
        the answer."""
        now = 0.0
        for wanted, answer in zip(op.partitions, answers, strict=True):
            if answer.error_code or not answer.topic_id:
                continue
            before = self._acks.record(answer.topic_id, wanted.partition)
            partition = self._cache.find_by_id(answer.topic_id, wanted.partition)
            if partition is not None and partition.leader_epoch == answer.leader_epoch:
                partition.raise_watermarks(answer.high_watermark, answer.last_stable_offset)
                if partition.includes_acks >= before:  # so they include every earlier one as well
                    partition.includes_acks = self._acks.now
                now = now or asyncio.get_running_loop().time()
                partition.received_at = now

    def produced_by(self, op: FetchOp, answer: FetchOpResp) -> Iterator[TraceContext]:
        """The traces that wrote the batches of an answer, as far as they are known."""
        return self._broker.produced_by(op, answer)

    def tail_of(
        self, op: FetchOps, answers: Sequence[FetchOpResp]
    ) -> Sequence[PartitionKey] | None:
        """The partitions of a fetch that found nothing, if a standing op may answer it next time.

        None: it asks for more than the next record, or the answers are not all those of partitions
        at the tail that the lease covers.
        """
        if not self._lease.valid or op.min_bytes > 1 or op.replica_id >= 0:
            return None
        keys: list[PartitionKey] = []
        for wanted, answer in zip(op.partitions, answers, strict=True):
            partition = None if answer.records else self._cache.find(wanted)
            if partition is None or not _is_at_tail(partition, wanted, answer):
                return None
            keys.append(partition.key)
        return keys

    # --- from memory ------------------------------------------------------------------------

    def _look_up(
        self, op: FetchOps, is_fresh: Callable[[CachedPartition], bool]
    ) -> list[PartitionLookup]:
        if not self._lease.valid:
            return nothing_cached(op)
        return look_up(self._cache, op, self._memory.allowance(op.max_bytes), is_fresh)

    async def _look_up_fresh(
        self, op: FetchOps, trace: TraceContext | None
    ) -> list[PartitionLookup]:
        """Look up with fresh watermarks; the broker may have to be asked for them."""
        arrived = asyncio.get_running_loop().time()

        def is_fresh(partition: CachedPartition) -> bool:
            return self._watermarks.is_fresh(partition, arrived)

        found = self._look_up(op, is_fresh)
        # The answer of an op that was in flight may be too old again: then another op is sent.
        for join in (True, False):
            stale = {id(p.partition): p.partition for p in found if p.stale and p.partition}
            if not stale or self._follows_tail(found):
                break
            await self._watermarks.refresh(list(stale.values()), trace, join=join)
            found = self._look_up(op, is_fresh)
        return found

    async def _fill(
        self, op: FetchOps, found: list[PartitionLookup], trace: TraceContext | None
    ) -> list[PartitionLookup]:
        """Look up again once the backfill has read what is missing."""
        fresh = {part.partition for part in found if not part.stale}
        missing = [part for part in found if part.missing][:_FILLS]
        # A read that another fetch began may end before this fetch has enough. If the second read
        # does so as well, the broker answers.
        for _ in range(2):
            reads = [
                self._backfill.fill(part.partition, part.end, trace)
                for part in missing
                if part.partition is not None
            ]
            await (reads[0] if len(reads) == 1 else asyncio.gather(*reads))
            found = self._look_up(op, lambda partition: partition in fresh)
            filled = {id(part.op) for part in missing}
            missing = [part for part in found if part.missing and id(part.op) in filled]
            if not missing:
                break
        return found

    async def _complete(
        self, op: FetchOps, found: Sequence[PartitionLookup], trace: TraceContext | None
    ) -> list[FetchOpResp]:
        """The cached answers, with the broker's for unknown partitions; and read ahead."""
        for part in found:
            if part.partition is None:
                continue
            if part.answer is not None and part.size:
                self._cache.mark_read(part.partition, part.op.fetch_offset, part.end)
                self._backfill.read_ahead(part.partition, part.op.fetch_offset, part.end)
            elif part.missing:
                self._backfill.fill_soon(part.partition, part.end)
                first = part.op.fetch_offset
                part.answer = cached_answer(part.partition, op.isolation_level, [], first, first)
        unknown = [part for part in found if part.answer is None]
        if unknown:
            left = self._memory.allowance(op.max_bytes) - sum(part.size for part in found)
            rest = replace(
                op,
                partitions=[part.op for part in unknown],
                max_wait_ms=0,
                min_bytes=0,
                max_bytes=max(0, min(left, _FIRST_BYTES)),
                at_least_one=False,
            )
            answers = await self._broker.fetch_accounted(rest, trace)
            for part, answer in zip(unknown, answers.partitions, strict=True):
                part.answer = answer
        return [part.answer for part in found if part.answer is not None]

    # --- from the broker --------------------------------------------------------------------

    def _follows_tail(self, found: Sequence[PartitionLookup]) -> bool:
        """Whether all that is missing arrived since a consumer at the tail fetched last.

        Then one op brings the records, with fresh watermarks.
        """
        return self._backfill.tail_is_live and all(
            part.at_tail or ((part.missing or part.stale) and _is_recent(part)) for part in found
        )

    async def _poll(
        self,
        op: FetchOps,
        found: Sequence[PartitionLookup],
        at_tail: bool,
        trace: TraceContext | None,
    ) -> FetchOpsResp:
        """Leave the fetch to the broker, with its wait."""
        wanted = max(_POLL_BYTES if at_tail else _FIRST_BYTES, op.min_bytes)
        allowed = self._memory.allowance(min(wanted, op.max_bytes))
        # Many polls wait at the tail at a time, and few of them get much at once.
        accounted = min(allowed, RESPONSE_FLOOR) if at_tail else allowed
        self._memory.hold(accounted)
        self._polled += 1
        self._parked += 1
        try:
            known = [part.partition for part in found]
            asked = op if op.max_bytes == allowed else replace(op, max_bytes=allowed)
            answer = await self._polls.fetch(asked, known, trace)
        finally:
            self._parked -= 1
            self._memory.release(accounted)
        for wish, part in zip(op.partitions, answer.partitions, strict=True):
            if not part.records:
                continue
            end = end_offset(part.records[-1])
            tail = part.last_stable_offset if op.isolation_level else part.high_watermark
            if at_tail or end >= tail:
                self._backfill.tail_moved()
            partition = self._cache.find(wish)
            if partition is not None:
                partition.expect_reader(end, 0)
        return answer


def _is_at_tail(partition: CachedPartition, op: FetchOp, answer: FetchOpResp) -> bool:
    """Whether all of an answer is known under the lease, and the partition has no record more."""
    return (
        not answer.error_code
        and answer.diverging_epoch is None
        and op.fetch_offset == answer.high_watermark == partition.high_watermark
        and answer.last_stable_offset == partition.last_stable_offset
        and answer.log_start_offset == partition.log_start
    )


def _is_recent(part: PartitionLookup) -> bool:
    """Whether few records are left to read, and the cache has none of them."""
    partition, offset = part.partition, part.op.fetch_offset
    if partition is None or partition.high_watermark - offset > _RECENT:
        return False
    return not partition.cached_from(offset, 1)[1]
