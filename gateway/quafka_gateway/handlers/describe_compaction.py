"""DescribeCompaction (key 20552, Quafka's own), version 0: the compaction of a topic."""

from __future__ import annotations

from quafka_gateway.context import RequestContext
from quafka_gateway.handlers.authorized import DESCRIBE_TOPIC
from quafka_gateway.handlers.kafka_api import Api, ResponseLength
from quafka_gateway.handlers.order import Order, SeenState
from quafka_proto.errors import ErrorCode
from quafka_proto.message import Versions
from quafka_proto.schema.quafka import (
    DescribeCompactionRequest,
    DescribeCompactionResponse,
)


async def handle(
    request: DescribeCompactionRequest, context: RequestContext
) -> DescribeCompactionResponse:
    """Ask the topic's broker."""
    if not context.may(DESCRIBE_TOPIC, request.topic):
        return DescribeCompactionResponse(error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    with context.child("gateway.kafka.describe_compaction") as span:
        found = await context.tenant.admin.describe_compaction(request.topic, span.context)
    return DescribeCompactionResponse(error_code=found.error_code, partitions=found.partitions)


API = Api(
    key=20552,
    versions=Versions(0, 0),
    request=DescribeCompactionRequest,
    handle=handle,
    access=(DESCRIBE_TOPIC,),
    order=Order(reads=SeenState.RECORDS | SeenState.CONFIGS | SeenState.TOPICS),
    response_length=ResponseLength.LONG,
    quafka_only=True,
)
