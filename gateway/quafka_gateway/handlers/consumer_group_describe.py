"""ConsumerGroupDescribe (key 69), versions 0-1: groups of the protocol of KIP-848, and members.

As in Kafka, a group that uses a topic that the client may not describe is refused as a whole. A
group that the request names twice is described once.
"""

from __future__ import annotations

from quafka_gateway.context import RequestContext
from quafka_gateway.handlers.authorized import DESCRIBE_GROUP, DESCRIBE_TOPIC
from quafka_gateway.handlers.described_groups import described, items
from quafka_gateway.handlers.kafka_api import Api, ResponseLength
from quafka_gateway.handlers.order import Order, SeenState
from quafka_mesh_ops.ops.consumer_groups import DescribeConsumerGroups
from quafka_proto.message import Versions
from quafka_proto.schema.consumer_groups import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
)

_GROUPS = items("gateway.kafka.consumer_group_describe")


async def handle(
    request: ConsumerGroupDescribeRequest, context: RequestContext
) -> ConsumerGroupDescribeResponse:
    """Describe each group of the request."""
    groups = await described(_GROUPS, DescribeConsumerGroups, request, context)
    return ConsumerGroupDescribeResponse(groups=groups)


API = Api(
    key=69,
    versions=Versions(0, 1),
    request=ConsumerGroupDescribeRequest,
    handle=handle,
    items=_GROUPS,
    access=(DESCRIBE_GROUP, DESCRIBE_TOPIC),
    order=Order(reads=SeenState.GROUPS | SeenState.TOPICS),
    response_length=ResponseLength.LONG,
)
