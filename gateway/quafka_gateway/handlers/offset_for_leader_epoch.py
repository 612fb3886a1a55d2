"""OffsetForLeaderEpoch (key 23), versions 0-4: the end offset of a leader epoch (KIP-320)."""

from __future__ import annotations

from collections.abc import Collection, Generator, Iterator

from quafka_gateway.context import RequestContext
from quafka_gateway.handlers.authorized import (
    CLUSTER_ACTION,
    DESCRIBE_TOPIC,
    denied,
    may_on_cluster,
)
from quafka_gateway.handlers.kafka_api import Api
from quafka_gateway.handlers.order import Order, State
from quafka_loop.slices import in_slices, listed
from quafka_mesh_ops.ops.offsets import EpochEnd, EpochEndOp, EpochEndOpResp, EpochEndOps
from quafka_proto.errors import ErrorCode
from quafka_proto.message import Versions
from quafka_proto.schema.leader_epochs import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderTopicResult,
)


async def handle(
    request: OffsetForLeaderEpochRequest, context: RequestContext
) -> OffsetForLeaderEpochResponse:
    """Look up the end offset of the epoch for each partition."""
    hidden: Collection[str] = ()
    if not may_on_cluster(CLUSTER_ACTION, context):
        hidden = await denied((topic.topic for topic in request.topics), DESCRIBE_TOPIC, context)
    op = EpochEndOps(
        await listed(
            EpochEndOp(
                topic.topic,
                partition.partition,
                partition.leader_epoch,
                partition.current_leader_epoch,
            )
            for topic in request.topics
            if topic.topic not in hidden
            for partition in topic.partitions
        )
    )
    with context.child("gateway.kafka.offset_for_leader_epoch") as span:
        ask = context.tenant.topics.epoch_ends
        answers = iter(await ask(op, span.context) if op.partitions or not hidden else ())
    return await in_slices(_response(request, answers, hidden))


API = Api(
    key=23,
    versions=Versions(0, 4),
    request=OffsetForLeaderEpochRequest,
    handle=handle,
    access=(CLUSTER_ACTION, DESCRIBE_TOPIC),
    order=Order(reads=State.RECORDS | State.TOPICS),
)


_DENIED = EpochEndOpResp(EpochEnd(-1, -1), ErrorCode.TOPIC_AUTHORIZATION_FAILED)


def _response(
    request: OffsetForLeaderEpochRequest,
    answers: Iterator[EpochEndOpResp],
    hidden: Collection[str],
) -> Generator[None, None, OffsetForLeaderEpochResponse]:
    topics: list[OffsetForLeaderTopicResult] = []
    for topic in request.topics:
        partitions: list[EpochEndOffset] = []
        is_hidden = topic.topic in hidden
        for partition in topic.partitions:
            answer = _DENIED if is_hidden else next(answers)
            partitions.append(
                EpochEndOffset(
                    error_code=answer.error_code,
                    partition=partition.partition,
                    leader_epoch=answer.end.leader_epoch,
                    end_offset=answer.end.end_offset,
                )
            )
            yield
        topics.append(OffsetForLeaderTopicResult(topic=topic.topic, partitions=partitions))
        yield
    return OffsetForLeaderEpochResponse(topics=topics)
