"""DeleteRecords (key 21), versions 0-2: what is below an offset is not served any more."""

from __future__ import annotations

from quafka_gateway.context import RequestContext
from quafka_mesh_ops.ops import DeleteRecordsOp, DeleteRecordsOps
from quafka_proto.schema.partitions import (
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)


async def handle(request: DeleteRecordsRequest, context: RequestContext) -> DeleteRecordsResponse:
    """Move the log start of each partition, durably."""
    op = DeleteRecordsOps(
        [
            DeleteRecordsOp(topic.name, partition.partition_index, partition.offset)
            for topic in request.topics
            for partition in topic.partitions
        ]
    )
    with context.child("gateway.kafka.delete_records") as span:
        answers = iter(await context.broker.delete_records(op, span.context))
    return DeleteRecordsResponse(
        topics=[
            DeleteRecordsTopicResult(
                name=topic.name,
                partitions=[
                    DeleteRecordsPartitionResult(
                        partition_index=partition.partition_index,
                        low_watermark=answer.low_watermark,
                        error_code=answer.error_code,
                    )
                    for partition, answer in zip(topic.partitions, answers, strict=False)
                ],
            )
            for topic in request.topics
        ]
    )
