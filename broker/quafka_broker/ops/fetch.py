"""Op 0x03, fetch: read, and park until there is enough to read.

One op carries all partitions of a Kafka fetch. It is answered when `min_bytes` can be read over
all of them, when any has an error, or at `max_wait_ms`. Batches are whole; the first of the first
partition that has any is returned however large (KIP-74). What is not durable is never read.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from quafka_broker.state import BrokerState
from quafka_broker.virtual_topics import OffsetGoneError, VirtualTopic
from quafka_broker.wal.log import StorageError
from quafka_mesh_ops.ops import FetchOp, FetchOpResp, FetchOps, FetchOpsResp
from quafka_mesh_ops.server import OpContext
from quafka_mesh_ops.tracing import Span, fail_with
from quafka_proto.errors import ErrorCode
from quafka_proto.records import read_header

_LEADER_EPOCH = 0


@dataclass(frozen=True, slots=True)
class _Target:
    """One partition to read: where, or why not."""

    op: FetchOp
    topic: VirtualTopic | None
    error: ErrorCode = ErrorCode.NONE

    @property
    def failed(self) -> bool:
        return self.error != ErrorCode.NONE


async def handle(state: BrokerState, context: OpContext, op: FetchOps) -> FetchOpsResp:
    """Answer with what there is, at once or later."""
    until = asyncio.get_running_loop().time() + op.max_wait_ms / 1000
    targets = _targets(state, context.org_id, op)
    if not _enough(state, targets, op):
        with context.tracer.start("broker.fetch.park", context.trace):
            targets = await _park(state, context.org_id, op, targets, until)
    with context.tracer.start("rafka.broker.fetch.read", context.trace) as span:
        answers = await _read(state, op, targets)
        if span.context is not None:
            _describe(span, targets, answers)
    return FetchOpsResp(answers)


async def _park(
    state: BrokerState, org: int, op: FetchOps, targets: list[_Target], until: float
) -> list[_Target]:
    while True:
        waiting = [target.topic.id for target in targets if target.topic is not None]
        in_time = await state.purgatory.wait(waiting, until)
        targets = _targets(state, org, op)
        if not in_time or _enough(state, targets, op):
            return targets


def _targets(state: BrokerState, org: int, op: FetchOps) -> list[_Target]:
    return [_target(state, org, part) for part in op.partitions]


def _target(state: BrokerState, org: int, op: FetchOp) -> _Target:
    topic = state.find(org, op.topic, op.topic_id)
    if topic is None:
        by_id = op.topic_id and not op.topic
        unknown = ErrorCode.UNKNOWN_TOPIC_ID if by_id else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return _Target(op, None, unknown)
    if not 0 <= op.partition < topic.partitions:
        return _Target(op, None, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    virtual = state.log.topic(topic.virtual(op.partition))
    if op.current_leader_epoch > _LEADER_EPOCH:
        return _Target(op, virtual, ErrorCode.UNKNOWN_LEADER_EPOCH)
    if not virtual.log_start <= op.fetch_offset <= virtual.high_watermark:
        return _Target(op, virtual, ErrorCode.OFFSET_OUT_OF_RANGE)
    return _Target(op, virtual)


def _enough(state: BrokerState, targets: list[_Target], op: FetchOps) -> bool:
    """Whether the op can be answered now."""
    if op.min_bytes <= 0 or any(target.failed for target in targets):
        return True
    wanted = min(op.min_bytes, op.max_bytes)
    found = 0
    for target in targets:
        if target.topic is None or target.op.fetch_offset >= target.topic.high_watermark:
            continue
        # As in Kafka, a partition counts for no more than may be returned of it.
        most = max(0, target.op.max_bytes)
        enough = min(most, wanted - found)
        try:
            size = state.log.readable_bytes(target.topic, target.op.fetch_offset, enough)
        except StorageError:
            return True  # reading will fail too, and that is the answer
        found += min(most, size)
        if found >= wanted:
            return True
    return False


async def _read(state: BrokerState, op: FetchOps, targets: list[_Target]) -> list[FetchOpResp]:
    answers: list[FetchOpResp] = []
    left = op.max_bytes
    empty = True
    for target in targets:
        answer = await _read_one(state, target, left, empty)
        size = sum(len(batch) for batch in answer.records)
        left -= size
        empty = empty and not size
        answers.append(answer)
    return answers


async def _read_one(state: BrokerState, target: _Target, left: int, first: bool) -> FetchOpResp:
    topic, error = target.topic, target.error
    batches: list[memoryview] = []
    if not target.failed and topic is not None:
        limit = max(0, min(target.op.max_bytes, left))
        try:
            batches = await state.log.read(topic, target.op.fetch_offset, limit, at_least_one=first)
        except StorageError:
            error = ErrorCode.KAFKA_STORAGE_ERROR
        except OffsetGoneError:  # while another partition was read
            error = ErrorCode.OFFSET_OUT_OF_RANGE
    if topic is None:
        return FetchOpResp([], high_watermark=-1, error_code=error)
    return FetchOpResp(
        list(batches),
        high_watermark=topic.high_watermark,
        error_code=error,
        log_start_offset=topic.log_start,
        last_stable_offset=topic.high_watermark,
    )


def _describe(span: Span, targets: list[_Target], answers: list[FetchOpResp]) -> None:
    first = targets[0] if targets else None
    batches = [batch for answer in answers for batch in answer.records]
    span.set(
        {
            "messaging.system": "kafka",
            "virtual_topic": first.topic.id.key if first and first.topic else "",
            "partitions": len(targets),
            "fetch_offset": first.op.fetch_offset if first else -1,
            "returned_count": sum(read_header(batch).record_count for batch in batches),
            "bytes": sum(map(len, batches)),
            "high_watermark": answers[0].high_watermark if answers else -1,
        }
    )
    fail_with(span, (answer.error_code for answer in answers))
