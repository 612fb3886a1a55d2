"""OffsetForLeaderEpoch (key 23), versions 0-4: the end offset of a leader epoch (KIP-320)."""

from __future__ import annotations

from quafka_gateway.cluster.cluster import RouteBy
from quafka_gateway.context import RequestContext
from quafka_gateway.handlers.authorized import CLUSTER_ACTION, DESCRIBE_TOPIC
from quafka_gateway.handlers.items import Items, topic_results
from quafka_gateway.handlers.kafka_api import Api
from quafka_gateway.handlers.order import Order, SeenState
from quafka_loop.slices import in_slices
from quafka_mesh_ops.ops.offsets import EpochEndOp, EpochEndOpResp, EpochEndOps, EpochEndResp
from quafka_proto.message import Versions
from quafka_proto.schema.leader_epochs import (
    LeaderEpochEnd,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderTopicResult,
)

_PARTITIONS = Items[EpochEndOp, EpochEndOpResp](
    span="gateway.kafka.offset_for_leader_epoch",
    right=DESCRIBE_TOPIC,
    unless=CLUSTER_ACTION,
    route=RouteBy.PARTITION,
    failed=lambda _op, code, _message: EpochEndOpResp(EpochEndResp(-1, -1), code),
)


async def handle(
    request: OffsetForLeaderEpochRequest, context: RequestContext
) -> OffsetForLeaderEpochResponse:
    """Look up the end offset of the epoch for each partition."""
    ops = (
        EpochEndOp(
            topic.topic,
            partition.partition,
            partition.leader_epoch,
            partition.current_leader_epoch,
        )
        for topic in request.topics
        for partition in topic.partitions
    )
    answers = await _PARTITIONS.answers(ops, EpochEndOps, lambda resp: resp.partitions, context)
    results = topic_results(
        ((topic.topic, topic.partitions) for topic in request.topics),
        answers,
        lambda asked, found: LeaderEpochEnd(
            found.error_code, asked.partition, found.end.leader_epoch, found.end.end_offset
        ),
        OffsetForLeaderTopicResult,
    )
    return OffsetForLeaderEpochResponse(topics=await in_slices(results))


API = Api(
    key=23,
    versions=Versions(0, 4),
    request=OffsetForLeaderEpochRequest,
    handle=handle,
    items=_PARTITIONS,
    access=(CLUSTER_ACTION, DESCRIBE_TOPIC),
    order=Order(reads=SeenState.RECORDS | SeenState.TOPICS),
)
