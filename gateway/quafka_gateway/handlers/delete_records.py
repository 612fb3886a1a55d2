"""DeleteRecords (key 21), versions 0-2: deletes the records before an offset of a partition."""

from __future__ import annotations

from quafka_gateway.cluster.cluster import RouteBy
from quafka_gateway.context import RequestContext
from quafka_gateway.handlers.authorized import DELETE_TOPIC
from quafka_gateway.handlers.items import Items, topic_results
from quafka_gateway.handlers.kafka_api import Api
from quafka_gateway.handlers.order import Order, SeenState
from quafka_loop.slices import in_slices
from quafka_mesh_ops.ops.records import DeleteRecordsOp, DeleteRecordsOpResp, DeleteRecordsOps
from quafka_proto.message import Versions
from quafka_proto.schema.partitions import (
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)

_PARTITIONS = Items[DeleteRecordsOp, DeleteRecordsOpResp](
    span="gateway.kafka.delete_records",
    right=DELETE_TOPIC,
    route=RouteBy.PARTITION,
    failed=lambda _op, code, _message: DeleteRecordsOpResp(-1, code),
)


async def handle(request: DeleteRecordsRequest, context: RequestContext) -> DeleteRecordsResponse:
    """Move the log start offset of each partition, durably."""
    ops = (
        DeleteRecordsOp(topic.name, partition.partition_index, partition.offset)
        for topic in request.topics
        for partition in topic.partitions
    )
    answers = await _PARTITIONS.answers(
        ops, DeleteRecordsOps, lambda resp: resp.partitions, context
    )
    results = topic_results(
        ((topic.name, topic.partitions) for topic in request.topics),
        answers,
        lambda asked, found: DeleteRecordsPartitionResult(
            asked.partition_index, found.low_watermark, found.error_code
        ),
        DeleteRecordsTopicResult,
    )
    return DeleteRecordsResponse(topics=await in_slices(results))


API = Api(
    key=21,
    versions=Versions(0, 2),
    request=DeleteRecordsRequest,
    handle=handle,
    items=_PARTITIONS,
    access=(DELETE_TOPIC,),
    order=Order(reads=SeenState.TOPICS, writes=SeenState.RECORDS),
    audited=True,
)
