"""ListOffsets (key 2), versions 1-10: earliest (-2), latest (-1) and what else the broker knows."""

from __future__ import annotations

from quafka_gateway.context import RequestContext
from quafka_mesh_ops.ops import ListOffsetsOp, ListOffsetsOpResp, ListOffsetsOps
from quafka_proto.schema.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)


async def handle(request: ListOffsetsRequest, context: RequestContext) -> ListOffsetsResponse:
    """Resolve each partition's timestamp to an offset."""
    op = ListOffsetsOps(
        [
            ListOffsetsOp(
                topic.name,
                partition.partition_index,
                partition.timestamp,
                partition.current_leader_epoch,
            )
            for topic in request.topics
            for partition in topic.partitions
        ],
        isolation_level=request.isolation_level,
    )
    with context.child("rafka.gateway.kafka.list_offsets") as span:
        answers = iter(await context.broker.list_offsets(op, span.context))
    return ListOffsetsResponse(
        topics=[
            ListOffsetsTopicResponse(
                name=topic.name,
                partitions=[
                    _partition(partition.partition_index, next(answers))
                    for partition in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


def _partition(index: int, answer: ListOffsetsOpResp) -> ListOffsetsPartitionResponse:
    return ListOffsetsPartitionResponse(
        partition_index=index,
        error_code=answer.error_code,
        timestamp=answer.timestamp,
        offset=answer.offset,
        leader_epoch=answer.leader_epoch,
    )
