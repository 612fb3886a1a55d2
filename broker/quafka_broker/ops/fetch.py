"""Op 0x03, fetch: park until there is enough to read, then read.

One op carries all partitions of a Kafka fetch. It is answered when `min_bytes` can be read from all
of them together, when they have as many batches as an answer may hold, when one has an error, or
after `max_wait_ms`. Batches are whole; the first batch of the first partition that has any is
returned regardless of its size (KIP-74). Only durable records are read.

Reads of committed records end at the last stable offset. Under read_committed the list of aborted
transactions is empty, not missing, if there are none.

A partition whose source cannot be read yet (`PartitionSource.unready`) counts as one without new
records, so that it does not delay others; the fetch parks until the source wakes it.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from quafka_broker.ops.destinations import destinations
from quafka_broker.partitions.errors import CorruptError, OffsetGoneError, StorageError
from quafka_broker.partitions.leader_epochs import UNDEFINED
from quafka_broker.partitions.partition import PartitionId
from quafka_broker.sources.source import FoundBatches, PartitionSource, Reading
from quafka_broker.state import BrokerState
from quafka_broker.topics.topic import unknown_topic
from quafka_broker.wal.reader import ReadTimes
from quafka_broker.wal.runs import Room
from quafka_loop import clock
from quafka_loop.slices import Slices
from quafka_mesh_ops.handlers import OpContext
from quafka_mesh_ops.ops.offsets import EpochEndResp
from quafka_mesh_ops.ops.places import extents_of
from quafka_mesh_ops.ops.records import (
    MOST_BATCHES,
    BatchTrace,
    FetchOp,
    FetchOpResp,
    FetchOps,
    FetchOpsResp,
)
from quafka_proto.errors import ErrorCode
from quafka_proto.records import BATCH_HEADER_SIZE, read_header
from quafka_telemetry import semconv
from quafka_telemetry.destinations import describe_destinations
from quafka_telemetry.tracing import MAX_LINKS, Span, TraceContext, fail_with, parse_traceparent

_READ_COMMITTED = 1
_ASK_SECONDS = 0.2  # a fetch that must not wait allows a source this long for its bounds
_READS_TRACED = 8
_PARTITIONS_PER_SLICE = 200
_TURN_NS = 1_000_000  # shorter waits for a turn get no span


async def handle(state: BrokerState, context: OpContext, op: FetchOps) -> FetchOpsResp:
    """Read now if there is enough, otherwise after a wait."""
    now = asyncio.get_running_loop().time
    until = now() + op.max_wait_ms / 1000
    parked = 0.0
    stamp = state.leases.stamp()
    poll = _Poll(state, context.org_id, op)
    await poll.look()
    if poll.must_wait:
        with context.tracer.start(semconv.FETCH_PARK, context.trace):
            began = now()
            await poll.park(until if op.max_wait_ms > 0 else until + _ASK_SECONDS)
            parked = now() - began
    await _take_turn(context)
    with context.tracer.start(semconv.FETCH_READ, context.trace) as span:
        times: list[ReadTimes] | None = None if span.context is None else []
        place = state.places.of_reader(context.peer, op.places, objects=op.objects)
        reading = Reading(op.isolation_level == _READ_COMMITTED, None, place)
        answers = await _read(state, op, poll.targets, times, reading)
        if span.context is not None:
            _describe(span, poll.targets, answers)
            describe_destinations(span, destinations(state, context.org_id, op.partitions))
            _trace_reads(context, span.context, times or [])
    return FetchOpsResp(
        answers, leased=state.leases.unchanged_since(stamp), parked_us=round(parked * 1e6)
    )


async def _take_turn(context: OpContext) -> None:
    asked = 0 if context.trace is None else clock.time_ns()
    await context.may_read()
    if asked and clock.time_ns() - asked > _TURN_NS:
        context.tracer.start(semconv.QUEUED, context.trace, begun=asked).end()


@dataclass(slots=True)
class _Target:
    """One partition to read, or the error that prevents it.

    Attributes:
        counted: bytes that count for min_bytes.
        counted_to: the offset up to which bytes are counted, so that only the growth of a partition
            is counted again.
        asking: the request to the partition's source that must be answered before a read.
    """

    op: FetchOp
    partition: PartitionSource | None
    error: ErrorCode = ErrorCode.NONE
    diverging: EpochEndResp | None = None
    asking: asyncio.Future[None] | None = None
    counted: int = 0
    counted_to: int = 0
    uuid: bytes = b""

    @property
    def final(self) -> bool:
        """Whether the answer is known without reading: then no wait is needed."""
        return self.error != ErrorCode.NONE or self.diverging is not None

    def has_changed(self, committed: bool) -> bool:
        """Whether the partition has records beyond the counted ones, or is now ready."""
        if self.asking is not None:
            return self.asking.done()
        return self.partition is not None and self.partition.end(committed) > self.counted_to


class _Poll:
    """All partitions of an op, and whether it can be answered yet."""

    def __init__(self, state: BrokerState, org: int, op: FetchOps) -> None:
        self._state = state
        self._org = org
        self._wanted = min(op.min_bytes, op.max_bytes)
        self._found = 0
        self._batches = 0
        self._answerable = not op.partitions
        self._stamp = state.leases.stamp()
        self._op = op
        self._committed = op.isolation_level == _READ_COMMITTED
        self._asking = 0
        self.targets: list[_Target] = []

    async def look(self) -> None:
        """Look at every partition, in slices."""
        slices = Slices(_PARTITIONS_PER_SLICE)
        for part in self._op.partitions:
            target = _target(self._state, self._org, part)
            self.targets.append(target)
            self._look(target)
            await slices.done()

    @property
    def enough(self) -> bool:
        """Whether the answer has an error, or enough records."""
        full = self._batches >= MOST_BATCHES
        return self._answerable or full or self._found >= self._wanted

    @property
    def must_wait(self) -> bool:
        """Whether to park: for records, or for the bounds of partitions if there are no records."""
        if self._asking and not self._found and not self._answerable:
            return True
        return self._op.max_wait_ms > 0 and not self.enough

    async def park(self, until: float) -> None:
        """Wait until there is enough, or loop time `until`."""
        places: dict[PartitionId, int] = {}
        more: dict[PartitionId, list[int]] = {}  # of partitions that are named more than once
        slices = Slices(_PARTITIONS_PER_SLICE)
        for place, target in enumerate(self.targets):
            part = target.partition
            if part is not None and places.setdefault(part.id, place) != place:
                more.setdefault(part.id, []).append(place)
            await slices.done()
        is_long = len(self.targets) >= _PARTITIONS_PER_SLICE
        with self._state.parked_fetches.park(places, until) as parked:
            self._expect_growth()
            if is_long:
                await self._look_at_changed(slices)
            while self.must_wait:
                for partition in await parked.changed():
                    for place in (places[partition], *more.get(partition, ())):
                        self._look_again(place)
                        await slices.done()
                if parked.over:
                    break

    def _expect_growth(self) -> None:
        for target in self.targets:
            if target.partition is not None:
                target.partition.expect_growth()

    async def _look_at_changed(self, slices: Slices) -> None:
        """Look again at partitions that have changed in the slices before the fetch was parked."""
        deleted = not self._state.leases.unchanged_since(self._stamp)
        for place, target in enumerate(self.targets):
            if deleted or target.has_changed(self._committed):
                self._look_again(place)
                await slices.done()

    def _look_again(self, place: int) -> None:
        before = self.targets[place]
        target = self.targets[place] = _target(self._state, self._org, before.op)
        target.counted, target.counted_to = before.counted, before.counted_to
        self._asking -= before.asking is not None
        self._look(target)

    def _look(self, target: _Target) -> None:
        """Count the readable bytes of a partition that are not counted yet."""
        partition = target.partition
        if target.final or partition is None:
            self._answerable = True
            return
        if target.asking is not None:
            self._asking += 1
            return
        target.counted_to = max(target.counted_to, target.op.fetch_offset)
        # As in Kafka, a partition counts for no more bytes than may be returned of it.
        missing = min(target.op.max_bytes - target.counted, self._wanted - self._found)
        room = MOST_BATCHES - self._batches
        end = partition.end(self._committed)
        if target.counted_to >= end or missing <= 0 or room <= 0:
            return
        try:
            if missing <= BATCH_HEADER_SIZE:  # one batch is enough: min_bytes is usually 1
                size, batches = missing, 1
            else:
                size, batches = partition.readable(
                    target.counted_to, missing, room, self._committed
                )
        except StorageError:
            self._answerable = True  # the read will fail, too, and its failure is the answer
            return
        target.counted_to = end
        target.counted += min(size, missing)
        self._batches += batches
        self._found += min(size, missing)


def _target(state: BrokerState, org: int, op: FetchOp) -> _Target:
    topic = state.registry.find(org, op.topic, op.topic_id)
    if topic is None:
        return _Target(op, None, unknown_topic(op.topic, op.topic_id))
    if op.topic_id and op.topic_id != topic.uuid:
        return _Target(op, None, ErrorCode.INCONSISTENT_TOPIC_ID)
    if not topic.has(op.partition):
        return _Target(op, None, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    partition = state.sources.partition(topic, op.partition)
    unready = partition.unready(op.fetch_offset)
    if unready is not None:
        if isinstance(unready, ErrorCode):
            return _Target(op, partition, unready, uuid=topic.uuid)
        return _Target(op, partition, asking=unready, uuid=topic.uuid)
    return _bounded(op, partition, topic.uuid)


def _bounded(op: FetchOp, partition: PartitionSource, uuid: bytes) -> _Target:
    """The target in a partition whose bounds are known."""
    error = partition.check_epoch(op.current_leader_epoch)
    if error:
        return _Target(op, partition, error)
    if op.last_fetched_epoch >= 0 and op.fetch_offset >= partition.log_start:
        end = partition.end_of_epoch(op.last_fetched_epoch)
        if end == UNDEFINED:
            return _Target(op, partition, ErrorCode.OFFSET_OUT_OF_RANGE)
        if op.last_fetched_epoch > end.leader_epoch or op.fetch_offset > end.end_offset:
            return _Target(op, partition, diverging=EpochEndResp(*end))
    if not partition.log_start <= op.fetch_offset <= partition.high_watermark:
        return _Target(op, partition, ErrorCode.OFFSET_OUT_OF_RANGE)
    return _Target(op, partition, uuid=uuid)


async def _read(
    state: BrokerState,
    op: FetchOps,
    targets: list[_Target],
    times: list[ReadTimes] | None,
    reading: Reading,
) -> list[FetchOpResp]:
    answers: list[FetchOpResp] = []
    left, batches_left = op.max_bytes, MOST_BATCHES
    empty = op.at_least_one
    slices = Slices(_PARTITIONS_PER_SLICE)
    for target in targets:
        await slices.done()
        partition, error = target.partition, target.error
        found = _NOTHING
        if partition is None:
            answers.append(FetchOpResp([], high_watermark=-1, error_code=error))
            continue
        if target.asking is not None:
            error = _error_if_asking(partition)
        elif not target.final and target.op.fetch_offset < partition.end(reading.committed):
            timed = None if times is None or len(times) >= _READS_TRACED else ReadTimes()
            limit = max(0, min(target.op.max_bytes, left))
            room = Room(limit, batches_left, at_least_one=empty)
            offset = target.op.fetch_offset
            found, error = await _read_one(partition, offset, room, reading._replace(times=timed))
            if times is not None and timed is not None:
                times.append(timed)
            left -= found.size
            batches_left -= found.count
            empty = empty and not found.size
        answers.append(
            FetchOpResp(
                found.records,
                high_watermark=partition.high_watermark,
                error_code=error,
                log_start_offset=partition.log_start,
                last_stable_offset=partition.last_stable_offset,
                aborted_transactions=list(found.aborted) if reading.committed else None,
                diverging_epoch=target.diverging,
                topic_id=b"" if target.op.topic_id else target.uuid,
                produced_by=_produced_by(state, partition, found) if found.size else None,
                leader_epoch=partition.leader_epoch,
                places=found.places,
            )
        )
    return answers


def _error_if_asking(partition: PartitionSource) -> ErrorCode:
    """No records yet, if the bounds are known; otherwise an error that clients retry."""
    known = partition.high_watermark >= 0
    return ErrorCode.NONE if known else ErrorCode.KAFKA_STORAGE_ERROR


def _produced_by(
    state: BrokerState, partition: PartitionSource, batches: FoundBatches
) -> list[BatchTrace] | None:
    """The traces that wrote the first of these batches, as far as they are remembered."""
    if not len(state.produced_by):
        return None
    found: list[BatchTrace] = []
    for offset in batches.offsets(MAX_LINKS):
        trace = state.produced_by.find(partition.id, offset)
        if trace is not None:
            found.append(BatchTrace(offset, trace.traceparent))
    return found or None


async def _read_one(
    partition: PartitionSource, offset: int, room: Room, reading: Reading
) -> tuple[FoundBatches, ErrorCode]:
    try:
        return await partition.read(offset, room, reading), ErrorCode.NONE
    except CorruptError:
        return _NOTHING, ErrorCode.CORRUPT_MESSAGE
    except StorageError:
        return _NOTHING, ErrorCode.KAFKA_STORAGE_ERROR
    except OffsetGoneError:  # it was deleted while another partition was read
        return _NOTHING, ErrorCode.OFFSET_OUT_OF_RANGE


_NOTHING = FoundBatches([])


def _describe(span: Span, targets: list[_Target], answers: list[FetchOpResp]) -> None:
    first = targets[0] if targets else None
    batches = [batch for answer in answers for batch in answer.records]
    placed = [each for answer in answers for each in extents_of(answer.places)]
    count = sum(read_header(batch).record_count for batch in batches)
    count += sum(each.offsets for each in placed)
    span.set(
        {
            semconv.VIRTUAL_TOPIC: first.partition.id.key if first and first.partition else "",
            semconv.PARTITIONS: len(targets),
            semconv.FETCH_OFFSET: first.op.fetch_offset if first else -1,
            semconv.RETURNED_COUNT: count,
            semconv.MESSAGE_COUNT: count,
            semconv.RECORD_BYTES: sum(map(len, batches)) + sum(each.length for each in placed),
            semconv.HIGH_WATERMARK: answers[0].high_watermark if answers else -1,
        }
    )
    fail_with(span, (answer.error_code for answer in answers), FetchOps.__name__)
    traces = (parse_traceparent(each.traceparent) for a in answers for each in a.produced_by or ())
    span.link(trace for trace in traces if trace is not None)


def _trace_reads(context: OpContext, parent: TraceContext, times: list[ReadTimes]) -> None:
    """Record a span for each partition's time in the index, and one for its time in the log."""
    for read in times:
        if not read.indexed:
            continue  # the read failed
        context.tracer.start(semconv.WAL_INDEX, parent, begun=read.began).end(read.indexed)
        span = context.tracer.start(
            semconv.WAL_READ, parent, {semconv.FROM_DISK: read.from_disk}, begun=read.indexed
        )
        span.end(read.read)
