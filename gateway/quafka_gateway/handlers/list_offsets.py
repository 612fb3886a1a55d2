"""ListOffsets (key 2), versions 0-11: the offsets of timestamps and of Kafka's named positions.

A named position (a negative timestamp) is served from the version on in which Kafka introduced it.
Below that version it is UNSUPPORTED_VERSION, as is an unknown named position.
"""

from __future__ import annotations

from collections.abc import Collection, Generator, Iterator

from quafka_gateway.context import RequestContext
from quafka_gateway.handlers import list_offsets_v0
from quafka_gateway.handlers.authorized import DESCRIBE_TOPIC, denied
from quafka_gateway.handlers.destinations import describe_partitions
from quafka_gateway.handlers.kafka_api import Api, ResponseLength
from quafka_gateway.handlers.list_offsets_v0 import DENIED_OFFSET
from quafka_gateway.handlers.order import Order, State
from quafka_loop.slices import in_slices, listed
from quafka_mesh_ops.ops.offsets import ListOffsetsOp, ListOffsetsOpResp, ListOffsetsOps
from quafka_proto.errors import ErrorCode
from quafka_proto.message import Versions
from quafka_proto.schema.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from quafka_telemetry import semconv

_NAMED_SINCE = {-1: 1, -2: 1, -3: 7, -4: 8, -5: 9, -6: 11}


async def handle(request: ListOffsetsRequest, context: RequestContext) -> ListOffsetsResponse:
    """Resolve each partition's timestamp to an offset."""
    hidden = await denied((topic.name for topic in request.topics), DESCRIBE_TOPIC, context)
    if context.version == 0:
        return await list_offsets_v0.handle(request, context, hidden)
    op = ListOffsetsOps(
        await listed(
            ListOffsetsOp(
                topic.name,
                partition.partition_index,
                partition.timestamp,
                partition.current_leader_epoch,
            )
            for topic in request.topics
            if topic.name not in hidden
            for partition in topic.partitions
            if _supported(partition, context.version)
        ),
        isolation_level=request.isolation_level,
    )
    with context.child(semconv.GATEWAY_LIST_OFFSETS) as span:
        describe_partitions(span, op.partitions, context)
        ask = context.tenant.topics.list_offsets
        answers = iter(await ask(op, span.context) if op.partitions or not hidden else ())
    return await in_slices(_response(request, answers, context.version, hidden))


API = Api(
    key=2,
    versions=Versions(0, 11),
    request=ListOffsetsRequest,
    handle=handle,
    access=(DESCRIBE_TOPIC,),
    order=Order(reads=State.RECORDS | State.TOPICS),
    response_length=ResponseLength.BY_REQUEST,
)


def _response(
    request: ListOffsetsRequest,
    answers: Iterator[ListOffsetsOpResp],
    version: int,
    hidden: Collection[str],
) -> Generator[None, None, ListOffsetsResponse]:
    topics: list[ListOffsetsTopicResponse] = []
    for topic in request.topics:
        partitions: list[ListOffsetsPartitionResponse] = []
        is_hidden = topic.name in hidden
        for partition in topic.partitions:
            if is_hidden:
                answer = DENIED_OFFSET
            else:
                answer = next(answers) if _supported(partition, version) else _UNSUPPORTED
            partitions.append(_partition(partition.partition_index, answer))
            yield
        topics.append(ListOffsetsTopicResponse(name=topic.name, partitions=partitions))
        yield
    return ListOffsetsResponse(topics=topics)


_UNSUPPORTED = ListOffsetsOpResp(-1, error_code=ErrorCode.UNSUPPORTED_VERSION)


def _supported(partition: ListOffsetsPartition, version: int) -> bool:
    if partition.timestamp >= 0:
        return True
    return version >= _NAMED_SINCE.get(partition.timestamp, version + 1)


def _partition(index: int, answer: ListOffsetsOpResp) -> ListOffsetsPartitionResponse:
    return ListOffsetsPartitionResponse(
        partition_index=index,
        error_code=answer.error_code,
        timestamp=answer.timestamp,
        offset=answer.offset,
        leader_epoch=answer.leader_epoch,
    )
