"""Op 0x02, produce: check each partition's batch, append it, answer when it is durable.

A partition's error does not affect the others. Batches of one partition reach the log in the order
in which their ops arrived, even if some take long to check.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import islice
from time import time_ns

from quafka_broker.admission.checks import Admitted
from quafka_broker.admission.queue import SHORT_BYTES, SHORT_RECORDS, Verdict, claimed_records
from quafka_broker.partitions.errors import InDoubtError, StorageError
from quafka_broker.partitions.partition import Partition, PartitionId
from quafka_broker.partitions.producer_state import Batch, SequenceError
from quafka_broker.partitions.producers import NO_PRODUCER
from quafka_broker.state import BrokerState
from quafka_broker.topics.topic import Topic, unknown_topic
from quafka_broker.wal.commit_group import WriteTimes
from quafka_mesh_ops.handlers import OpContext
from quafka_mesh_ops.ops.records import (
    ProduceOp,
    ProduceOpResp,
    ProduceOps,
    ProduceOpsResp,
    RecordError,
)
from quafka_proto.errors import BatchError, ErrorCode
from quafka_telemetry import semconv
from quafka_telemetry.eager_task import DirectFuture
from quafka_telemetry.slices import Slices
from quafka_telemetry.tracing import MAX_LINKS, Span, TraceContext, Tracer, fail_with

_WRITES_TRACED = 4
_APPENDS_A_SLICE, _ANSWERS_A_SLICE = 64, 512
_PER_BATCH = 16  # the cost of a batch besides its records, in records


@dataclass(slots=True)
class _RefusedError(Exception):
    """This partition's records are refused."""

    code: ErrorCode
    message: str = ""


@dataclass(slots=True, eq=False)
class _Write:
    """One partition's batch on its way to the log: a new batch, or a repeat of an earlier one."""

    partition: Partition
    records: int
    uuid: bytes = b""
    pending: DirectFuture[list[int]] | None = None
    repeated: Batch | None = None
    append_time: int = -1
    offsets: list[int] | None = None


async def handle(state: BrokerState, context: OpContext, op: ProduceOps) -> ProduceOpsResp:
    """Append every partition's batch."""
    await state.log.wait_for_room()
    with context.tracer.start(semconv.STORE, context.trace) as span:
        context.ack_parent = span.context
        writes: list[WriteTimes] | None = None if span.context is None else []
        begun = await _Request(state, context.org_id, op, writes).begin()
        with context.tracer.start(semconv.COMMIT, span.context) as commit:
            answers: list[ProduceOpResp] = []
            slices = Slices(_ANSWERS_A_SLICE)
            for write in begun:
                answers.append(await _finish(state, write))
                await slices.done()
        if span.context is not None:
            _describe(span, op, begun, answers)
            _trace_writes(context.tracer, commit.context, writes or [])
            _remember(state, span.context, begun)
    return ProduceOpsResp(answers)


class _Request:
    """All partitions of an op on their way to the log."""

    def __init__(
        self, state: BrokerState, org: int, op: ProduceOps, writes: list[WriteTimes] | None
    ) -> None:
        self._state = state
        self._org = org
        self._op = op
        self._writes = writes
        self._now_ms = time_ns() // 1_000_000

    async def begin(self) -> list[_Write | ProduceOpResp]:
        """Check the batches and append them to the log.

        No other op runs before the first await; from then on, `in_order` keeps the order of ops.
        """
        parts, admissions = self._op.partitions, self._state.admissions
        verdicts: list[Verdict | ProduceOpResp | None] = [None] * len(parts)
        if self._is_short():
            verdicts = [self._check(part) for part in parts]
            if None not in verdicts and admissions.is_clear(self._topics()):
                return [self._append(*each) for each in zip(parts, verdicts, strict=True)]
        with admissions.in_order(self._topics()) as ahead:
            await self._check_rest(verdicts)
            if ahead:
                await asyncio.wait(ahead)
            begun: list[_Write | ProduceOpResp] = []
            slices = Slices(_APPENDS_A_SLICE)
            for part, verdict in zip(parts, verdicts, strict=True):
                begun.append(self._append(part, verdict))
                await slices.done()
        return begun

    def _is_short(self) -> bool:
        """Whether the whole op can be checked without a turn for others."""
        parts = self._op.partitions
        if len(parts) > _APPENDS_A_SLICE or sum(len(p.records) for p in parts) > SHORT_BYTES:
            return False
        return sum(claimed_records(part.records) for part in parts) <= SHORT_RECORDS

    def _topics(self) -> Iterator[PartitionId]:
        """The partitions of the op that exist."""
        for part in self._op.partitions:
            topic = self._state.registry.find(self._org, part.topic, part.topic_id)
            if topic is not None:
                yield topic.partition_id(part.partition)

    def _check(self, part: ProduceOp) -> Verdict | ProduceOpResp | None:
        """The verdict on a partition's batch; None where the check takes long."""
        try:
            topic = _find(self._state, self._org, part)
        except _RefusedError as e:
            return _refusal(e)
        policy = self._state.configs.policy(topic)
        return self._state.admissions.check_now(policy, part.records, self._now_ms)

    async def _check_rest(self, verdicts: list[Verdict | ProduceOpResp | None]) -> None:
        """Check the unchecked batches: short ones here, in slices, long ones in a thread."""
        later: list[tuple[int, asyncio.Future[Verdict]]] = []
        slices = Slices(SHORT_RECORDS)
        try:
            for at, part in enumerate(self._op.partitions):
                if verdicts[at] is not None:
                    continue
                verdicts[at] = self._check(part)
                if verdicts[at] is None:
                    later.append((at, self._check_later(part)))
                await slices.done(_PER_BATCH + claimed_records(part.records))
            for at, checked in later:
                verdicts[at] = await checked
        finally:
            for _, checked in later:
                checked.cancel()

    def _check_later(self, part: ProduceOp) -> asyncio.Future[Verdict]:
        policy = self._state.configs.policy(_find(self._state, self._org, part))
        return self._state.admissions.check_in_thread(self._org, policy, part.records, self._now_ms)

    def _append(
        self, part: ProduceOp, verdict: Verdict | ProduceOpResp | None
    ) -> _Write | ProduceOpResp:
        assert verdict is not None, "every batch has been checked"
        if isinstance(verdict, ProduceOpResp):
            return verdict
        state = self._state
        try:
            if isinstance(verdict, BatchError):
                raise verdict
            topic = _find(state, self._org, part)  # it may have been deleted meanwhile
        except (BatchError, _RefusedError) as e:
            return _refusal(e)
        try:
            partition = state.log.partition(topic.partition_id(part.partition))
            write = _append(state, partition, verdict, self._writes)
        except SequenceError as e:
            # Java waits for the log start before it begins another epoch.
            start, _ = state.log.offsets(topic.partition_id(part.partition))
            return replace(_refusal(e), log_start_offset=start)
        except (BatchError, _RefusedError) as e:
            return _refusal(e)
        write.uuid = topic.uuid
        if state.configs.policy(topic).log_append_time:
            write.append_time = self._now_ms if write.repeated is None else write.repeated.timestamp
        return write


def _find(state: BrokerState, org: int, part: ProduceOp) -> Topic:
    topic = state.registry.find(org, part.topic, part.topic_id)
    if topic is None:
        raise _RefusedError(unknown_topic(part.topic, part.topic_id))
    if not topic.has(part.partition):
        raise _RefusedError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    return topic


def _append(
    state: BrokerState, partition: Partition, admitted: Admitted, writes: list[WriteTimes] | None
) -> _Write:
    header = admitted.header
    write = _Write(partition, header.record_count)
    if header.producer_id == NO_PRODUCER:
        write.pending = state.log.append(partition, [admitted], writes=writes)
        return write
    if header.producer_id < 0 or header.producer_epoch < 0 or header.base_sequence < 0:
        raise _RefusedError(
            ErrorCode.INVALID_RECORD, "an idempotent producer's id, epoch or sequence is negative"
        )
    write.repeated = state.producers.duplicate_of(partition.id, header)
    if write.repeated is None:
        settle = state.producers.begin_append(partition.id, header)
        write.pending = state.log.append(partition, [admitted], writes=writes, settle=settle)
    return write


async def _finish(state: BrokerState, write: _Write | ProduceOpResp) -> ProduceOpResp:
    if isinstance(write, ProduceOpResp):
        return write
    try:
        if write.repeated is not None:
            offset = await write.repeated.stored()
        else:
            assert write.pending is not None
            write.offsets = await write.pending
            offset = write.offsets[0]
    except StorageError as e:
        return _refusal(e)
    return ProduceOpResp(
        offset,
        log_append_time=write.append_time,
        log_start_offset=write.partition.log_start,
        topic_id=write.uuid,
        high_watermark=write.partition.high_watermark,
        last_stable_offset=write.partition.high_watermark,
        leader_epoch=state.log.epochs.current,
    )


def _refusal(error: BatchError | SequenceError | _RefusedError | StorageError) -> ProduceOpResp:
    message = error.message if isinstance(error, _RefusedError) else str(error)
    named = error.records if isinstance(error, BatchError) else ()
    return ProduceOpResp(
        -1,
        error_code=_code_of(error),
        log_start_offset=-1,
        error_message=message,
        record_errors=[RecordError(*each) for each in named] or None,
    )


def _code_of(error: BatchError | SequenceError | _RefusedError | StorageError) -> ErrorCode:
    if isinstance(error, InDoubtError):
        return ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
    return ErrorCode.KAFKA_STORAGE_ERROR if isinstance(error, StorageError) else error.code


def _describe(
    span: Span,
    op: ProduceOps,
    begun: list[_Write | ProduceOpResp],
    answers: list[ProduceOpResp],
) -> None:
    writes = [write for write in begun if isinstance(write, _Write)]
    span.set(
        {
            semconv.VIRTUAL_TOPIC: writes[0].partition.id.key if writes else "",
            semconv.PARTITIONS: len(answers),
            semconv.BASE_OFFSET: answers[0].base_offset if answers else -1,
            semconv.MESSAGE_COUNT: sum(write.records for write in writes),
            semconv.BODY_SIZE: sum(len(part.records) for part in op.partitions),
        }
    )
    fail_with(span, (answer.error_code for answer in answers))


def _trace_writes(tracer: Tracer, commit: TraceContext | None, writes: list[WriteTimes]) -> None:
    """Trace the log's writes; other produce ops share them, and each trace has its own spans.

    The time between the beginning of the commit and of the write was spent in the queue, until
    the write before had ended.
    """
    for write in writes[:_WRITES_TRACED]:
        shared = {semconv.COMMIT_APPENDS: write.appends, semconv.COMMIT_BYTES: write.bytes}
        span = tracer.start(semconv.WAL_WRITE, commit, shared, begun=write.began)
        span.end(write.written)
        if write.synced > write.written:
            span = tracer.start(semconv.WAL_FSYNC, commit, shared, begun=write.written)
            span.end(write.synced)


def _remember(state: BrokerState, trace: TraceContext, begun: list[_Write | ProduceOpResp]) -> None:
    """Record which trace wrote these batches, for the traces that fetch them."""
    written = [w for w in begun if isinstance(w, _Write) and w.offsets is not None]
    places = ((write.partition.id, offset) for write in written for offset in write.offsets or ())
    for partition, offset in islice(places, MAX_LINKS):
        state.produced_by.record(partition, offset, trace)
