"""Op 0x02, produce: check batches, append them, answer when they are durable.

A failing partition never spoils the others. Ops of one stream reach the log in the order in which
they arrived: nothing is awaited before the append, but room for it.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from itertools import islice
from time import time_ns

from quafka_broker.admission import admit
from quafka_broker.producers import NO_PRODUCER, Batch, SequenceError
from quafka_broker.state import BrokerState
from quafka_broker.topics import unknown_topic
from quafka_broker.virtual_topics import VirtualTopic
from quafka_broker.wal.errors import InDoubtError, StorageError
from quafka_broker.wal.group import WriteTimes
from quafka_mesh_ops import semconv
from quafka_mesh_ops.ops import ProduceOp, ProduceOpResp, ProduceOps, ProduceOpsResp
from quafka_mesh_ops.server import OpContext
from quafka_mesh_ops.tracing import MAX_LINKS, Span, TraceContext, Tracer, fail_with
from quafka_proto.errors import BatchError, ErrorCode
from quafka_proto.records import BatchHeader, split_batches

_WRITES_TRACED = 4


@dataclass(slots=True)
class _RefusedError(Exception):
    """This partition's records are not stored."""

    code: ErrorCode
    message: str = ""


@dataclass(slots=True, eq=False)
class _Write:
    """One partition's batches on their way: new ones, and repeats of earlier ones."""

    topic: VirtualTopic
    records: int
    pending: asyncio.Future[list[int]] | None = None
    repeated: Batch | None = None
    append_time: int = -1
    offsets: list[int] | None = None


async def handle(state: BrokerState, context: OpContext, op: ProduceOps) -> ProduceOpsResp:
    """Append every partition's batches."""
    await state.log.wait_for_room()
    with context.tracer.start(semconv.STORE, context.trace) as span:
        context.ack_parent = span.context
        writes: list[WriteTimes] | None = None if span.context is None else []
        begun = [_begin(state, context.org_id, part, writes) for part in op.partitions]
        with context.tracer.start(semconv.COMMIT, span.context) as commit:
            answers = [await _finish(state, write) for write in begun]
        if span.context is not None:
            _describe(span, op, begun, answers)
            _trace_writes(context.tracer, commit.context, writes or [])
            _remember(state, span.context, begun)
    return ProduceOpsResp(answers)


def _begin(
    state: BrokerState, org: int, part: ProduceOp, writes: list[WriteTimes] | None
) -> _Write | ProduceOpResp:
    try:
        return _queue(state, org, part, writes)
    except (BatchError, SequenceError, _RefusedError) as e:
        message = e.message if isinstance(e, _RefusedError) else str(e)
        return _refusal(e.code, message)


def _queue(
    state: BrokerState, org: int, part: ProduceOp, writes: list[WriteTimes] | None
) -> _Write:
    topic = state.find(org, part.topic, part.topic_id)
    if topic is None:
        raise _RefusedError(unknown_topic(part.topic, part.topic_id))
    if not topic.has(part.partition):
        raise _RefusedError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    policy = state.policy(topic)
    batches = admit(policy, split_batches(part.records), now_ms := time_ns() // 1_000_000)
    write = _append(state, state.log.topic(topic.virtual(part.partition)), batches, writes)
    if policy.log_append_time:
        write.append_time = now_ms if write.repeated is None else write.repeated.timestamp
    return write


def _append(
    state: BrokerState,
    virtual: VirtualTopic,
    batches: list[tuple[BatchHeader, memoryview]],
    writes: list[WriteTimes] | None,
) -> _Write:
    write = _Write(virtual, sum(header.record_count for header, _ in batches))
    idempotent = [header for header, _ in batches if header.producer_id != NO_PRODUCER]
    if not idempotent:
        write.pending = state.log.append(virtual, batches, writes=writes)
        return write
    if len(batches) > 1:
        raise _RefusedError(
            ErrorCode.INVALID_RECORD, "an idempotent producer sends one batch a request"
        )
    header = idempotent[0]
    if header.producer_id < 0 or header.producer_epoch < 0 or header.base_sequence < 0:
        raise _RefusedError(
            ErrorCode.INVALID_RECORD, "an idempotent producer's id, epoch or sequence is negative"
        )
    write.repeated = state.producers.duplicate_of(virtual.id, header)
    if write.repeated is None:
        write.pending = state.log.append(virtual, batches, writes=writes)
        state.producers.begin(virtual.id, header, write.pending)
    return write


async def _finish(state: BrokerState, write: _Write | ProduceOpResp) -> ProduceOpResp:
    if isinstance(write, ProduceOpResp):
        return write
    try:
        if write.repeated is not None:
            offset = await _offset_of(write.repeated)
        else:
            assert write.pending is not None
            offsets = await asyncio.shield(write.pending)
            write.offsets = offsets
            offset = offsets[0]
    except InDoubtError as e:
        return _refusal(ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND, str(e))
    except StorageError as e:
        return _refusal(ErrorCode.KAFKA_STORAGE_ERROR, str(e))
    return ProduceOpResp(
        offset, log_append_time=write.append_time, log_start_offset=write.topic.log_start
    )


async def _offset_of(batch: Batch) -> int:
    """Where the first copy went; it may still be on its way."""
    if batch.offset is not None:
        return batch.offset
    assert batch.pending is not None
    return (await asyncio.shield(batch.pending))[0]


def _refusal(code: ErrorCode, message: str) -> ProduceOpResp:
    return ProduceOpResp(-1, error_code=code, log_start_offset=-1, error_message=message)


def _describe(
    span: Span,
    op: ProduceOps,
    begun: list[_Write | ProduceOpResp],
    answers: list[ProduceOpResp],
) -> None:
    writes = [write for write in begun if isinstance(write, _Write)]
    span.set(
        {
            semconv.VIRTUAL_TOPIC: writes[0].topic.id.key if writes else "",
            semconv.PARTITIONS: len(answers),
            semconv.BASE_OFFSET: answers[0].base_offset if answers else -1,
            semconv.MESSAGE_COUNT: sum(write.records for write in writes),
            semconv.BODY_SIZE: sum(len(part.records) for part in op.partitions),
        }
    )
    fail_with(span, (answer.error_code for answer in answers))


def _trace_writes(tracer: Tracer, commit: TraceContext | None, writes: list[WriteTimes]) -> None:
    """The log's own writes, which other produces shared: each trace has spans of its own of them.

    What lies between the beginning of the commit and that of the write was spent in the queue,
    behind the write before.
    """
    for write in writes[:_WRITES_TRACED]:
        shared = {semconv.COMMIT_APPENDS: write.appends, semconv.COMMIT_BYTES: write.bytes}
        span = tracer.start(semconv.WAL_WRITE, commit, shared, begun=write.began)
        span.end(write.written)
        if write.synced > write.written:
            span = tracer.start(semconv.WAL_FSYNC, commit, shared, begun=write.written)
            span.end(write.synced)


def _remember(state: BrokerState, trace: TraceContext, begun: list[_Write | ProduceOpResp]) -> None:
    """Who fetches these batches is told which trace wrote them."""
    written = [w for w in begun if isinstance(w, _Write) and w.offsets is not None]
    places = ((write.topic.id, offset) for write in written for offset in write.offsets or ())
    for topic, offset in islice(places, MAX_LINKS):
        state.produced_by.note(topic, offset, trace)
