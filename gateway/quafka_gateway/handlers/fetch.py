"""Fetch (key 1), versions 4-18.

One request becomes one op that carries all its partitions: the broker parks it, where the append
happens, until min_bytes can be read or max_wait_ms has passed. Stored batches pass through
unchanged. Versions 13 and up name topics by id.

Every request is served as a full fetch and no fetch session is kept (KIP-227 lets a broker
decline one by answering session id 0): a request within a session is told that it is unknown.
"""

from __future__ import annotations

from quafka_gateway.context import RequestContext
from quafka_mesh_ops.ops import FetchOp, FetchOpResp, FetchOps
from quafka_mesh_ops.tracing import Span, fail_with
from quafka_proto.errors import ErrorCode
from quafka_proto.schema.fetch import (
    AbortedTransaction,
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    PartitionData,
)

_MAX_WAIT_MS = 60_000
_MAX_BYTES = 57_671_680  # Kafka's fetch.max.bytes, 55 MiB: what one response may hold
_INITIAL_EPOCH, _FINAL_EPOCH = 0, -1


async def handle(request: FetchRequest, context: RequestContext) -> FetchResponse:
    """Read from each partition."""
    session_error = _session_error(request)
    if session_error:
        return FetchResponse(error_code=session_error)
    with context.child("rafka.gateway.kafka.fetch") as span:
        answers = await context.broker.fetch(_op(request), span.context)
        if span.context is not None:
            _describe(span, request, answers)
    remaining = iter(answers)
    return FetchResponse(
        responses=[
            FetchableTopicResponse(
                topic=topic.topic,
                topic_id=topic.topic_id,
                partitions=[
                    _partition(partition.partition, next(remaining))
                    for partition in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


def _session_error(request: FetchRequest) -> int:
    if request.session_epoch in (_INITIAL_EPOCH, _FINAL_EPOCH):
        return ErrorCode.NONE
    if request.session_id == 0:
        return ErrorCode.INVALID_FETCH_SESSION_EPOCH
    return ErrorCode.FETCH_SESSION_ID_NOT_FOUND


def _op(request: FetchRequest) -> FetchOps:
    replica = request.replica_state.replica_id if request.replica_id < 0 else request.replica_id
    return FetchOps(
        [
            FetchOp(
                topic.topic,
                partition.partition,
                partition.fetch_offset,
                partition.partition_max_bytes,
                topic.topic_id if any(topic.topic_id) else b"",
                partition.current_leader_epoch,
            )
            for topic in request.topics
            for partition in topic.partitions
        ],
        max_wait_ms=max(0, min(request.max_wait_ms, _MAX_WAIT_MS)),
        min_bytes=request.min_bytes,
        max_bytes=min(request.max_bytes, _MAX_BYTES),
        isolation_level=request.isolation_level,
        replica_id=replica,
    )


def _partition(index: int, answer: FetchOpResp) -> PartitionData:
    aborted = answer.aborted_transactions
    return PartitionData(
        partition_index=index,
        error_code=answer.error_code,
        high_watermark=answer.high_watermark,
        last_stable_offset=answer.last_stable_offset,
        log_start_offset=answer.log_start_offset,
        aborted_transactions=None
        if aborted is None
        else [
            AbortedTransaction(producer_id=a.producer_id, first_offset=a.first_offset)
            for a in aborted
        ],
        records=answer.records,
    )


def _describe(span: Span, request: FetchRequest, answers: list[FetchOpResp]) -> None:
    returned = sum(len(batch) for answer in answers for batch in answer.records)
    span.set({"kafka.partitions": len(answers), "kafka.fetch.bytes": returned})
    if len(request.topics) == 1 and request.topics[0].topic:
        span.set({"messaging.destination.name": request.topics[0].topic})
    fail_with(span, (answer.error_code for answer in answers))
