"""DeleteRecords (key 21), versions 0-2: deletes the records before an offset of a partition."""

from __future__ import annotations

from collections.abc import Collection, Generator, Iterator

from quafka_gateway.context import RequestContext
from quafka_gateway.handlers.authorized import DELETE_TOPIC, denied
from quafka_gateway.handlers.kafka_api import Api
from quafka_gateway.handlers.order import Order, State
from quafka_loop.slices import in_slices, listed
from quafka_mesh_ops.ops.records import DeleteRecordsOp, DeleteRecordsOpResp, DeleteRecordsOps
from quafka_proto.errors import ErrorCode
from quafka_proto.message import Versions
from quafka_proto.schema.partitions import (
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)


async def handle(request: DeleteRecordsRequest, context: RequestContext) -> DeleteRecordsResponse:
    """Move the log start offset of each partition, durably."""
    hidden = await denied((topic.name for topic in request.topics), DELETE_TOPIC, context)
    op = DeleteRecordsOps(
        await listed(
            DeleteRecordsOp(topic.name, partition.partition_index, partition.offset)
            for topic in request.topics
            if topic.name not in hidden
            for partition in topic.partitions
        )
    )
    with context.child("gateway.kafka.delete_records") as span:
        delete = context.tenant.topics.delete_records
        answers = iter(await delete(op, span.context) if op.partitions or not hidden else ())
    return await in_slices(_response(request, answers, hidden))


API = Api(
    key=21,
    versions=Versions(0, 2),
    request=DeleteRecordsRequest,
    handle=handle,
    access=(DELETE_TOPIC,),
    order=Order(reads=State.TOPICS, writes=State.RECORDS),
    audited=True,
)


_DENIED = DeleteRecordsOpResp(-1, ErrorCode.TOPIC_AUTHORIZATION_FAILED)


def _response(
    request: DeleteRecordsRequest,
    answers: Iterator[DeleteRecordsOpResp],
    hidden: Collection[str],
) -> Generator[None, None, DeleteRecordsResponse]:
    topics: list[DeleteRecordsTopicResult] = []
    for topic in request.topics:
        partitions: list[DeleteRecordsPartitionResult] = []
        is_hidden = topic.name in hidden
        for partition in topic.partitions:
            answer = _DENIED if is_hidden else next(answers)
            partitions.append(
                DeleteRecordsPartitionResult(
                    partition_index=partition.partition_index,
                    low_watermark=answer.low_watermark,
                    error_code=answer.error_code,
                )
            )
            yield
        topics.append(DeleteRecordsTopicResult(name=topic.name, partitions=partitions))
        yield
    return DeleteRecordsResponse(topics=topics)
