"""ListOffsets (key 2), versions 0-11: the offsets of timestamps and of Kafka's named positions.

A named position (a negative timestamp) is served from the version on in which Kafka introduced it.
Below that version it is UNSUPPORTED_VERSION, as is an unknown named position.
"""

from __future__ import annotations

from quafka_gateway.cluster.cluster import RouteBy
from quafka_gateway.context import RequestContext
from quafka_gateway.handlers import list_offsets_v0
from quafka_gateway.handlers.authorized import DESCRIBE_TOPIC
from quafka_gateway.handlers.destinations import describe_partitions
from quafka_gateway.handlers.items import Items, topic_results
from quafka_gateway.handlers.kafka_api import Api, ResponseLength
from quafka_gateway.handlers.order import Order, SeenState
from quafka_loop.slices import in_slices
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


_PARTITIONS = Items[ListOffsetsOp, ListOffsetsOpResp](
    span=semconv.GATEWAY_LIST_OFFSETS,
    right=DESCRIBE_TOPIC,
    route=RouteBy.PARTITION,
    failed=lambda _op, code, _message: ListOffsetsOpResp(-1, error_code=code),
    describe=describe_partitions,
)


async def handle(request: ListOffsetsRequest, context: RequestContext) -> ListOffsetsResponse:
    """Resolve each partition's timestamp to an offset."""
    if context.version == 0:
        return await list_offsets_v0.handle(request, context, _PARTITIONS)
    ops = (
        ListOffsetsOp(
            topic.name,
            partition.partition_index,
            partition.timestamp,
            partition.current_leader_epoch,
        )
        for topic in request.topics
        for partition in topic.partitions
    )
    answers = await _PARTITIONS.answers(
        ops,
        lambda its: ListOffsetsOps(its, request.isolation_level),
        lambda resp: resp.partitions,
        context,
        lambda op: None if _is_supported(op.timestamp, context.version) else _UNSUPPORTED,
    )
    results = topic_results(
        ((topic.name, topic.partitions) for topic in request.topics),
        answers,
        _partition,
        ListOffsetsTopicResponse,
    )
    return ListOffsetsResponse(topics=await in_slices(results))


API = Api(
    key=2,
    versions=Versions(0, 11),
    request=ListOffsetsRequest,
    handle=handle,
    items=_PARTITIONS,
    access=(DESCRIBE_TOPIC,),
    order=Order(reads=SeenState.RECORDS | SeenState.TOPICS),
    response_length=ResponseLength.BY_REQUEST,
)


_UNSUPPORTED = ListOffsetsOpResp(-1, error_code=ErrorCode.UNSUPPORTED_VERSION)


def _is_supported(timestamp: int, version: int) -> bool:
    return timestamp >= 0 or version >= _NAMED_SINCE.get(timestamp, version + 1)


def _partition(
    asked: ListOffsetsPartition, found: ListOffsetsOpResp
) -> ListOffsetsPartitionResponse:
    return ListOffsetsPartitionResponse(
        partition_index=asked.partition_index,
        error_code=found.error_code,
        timestamp=found.timestamp,
        offset=found.offset,
        leader_epoch=found.leader_epoch,
    )
