"""ShareGroupDescribe (key 77), version 1: share groups (KIP-932) and their members.

As in Kafka, a group that uses a topic that the client may not describe is refused as a whole. A
group that the request names twice is described once.
"""

from __future__ import annotations

from typing import cast

from quafka_gateway.context import RequestContext
from quafka_gateway.handlers.authorized import DESCRIBE_GROUP, DESCRIBE_TOPIC
from quafka_gateway.handlers.described_groups import described, items
from quafka_gateway.handlers.kafka_api import Api, ResponseLength
from quafka_gateway.handlers.order import Order, SeenState
from quafka_mesh_ops.ops.share_groups import DescribeShareGroups
from quafka_proto.message import Versions
from quafka_proto.schema.share_groups import (
    DescribedShareGroup,
    ShareGroupDescribeRequest,
    ShareGroupDescribeResponse,
)

_GROUPS = items("gateway.kafka.share_group_describe")


async def handle(
    request: ShareGroupDescribeRequest, context: RequestContext
) -> ShareGroupDescribeResponse:
    """Describe each group of the request."""
    groups = await described(_GROUPS, DescribeShareGroups, request, context)
    # Fields are encoded by their names; those of a share group are also a consumer group's.
    return ShareGroupDescribeResponse(groups=cast("list[DescribedShareGroup]", groups))


API = Api(
    key=77,
    versions=Versions(1, 1),
    request=ShareGroupDescribeRequest,
    handle=handle,
    items=_GROUPS,
    access=(DESCRIBE_GROUP, DESCRIBE_TOPIC),
    order=Order(reads=SeenState.GROUPS | SeenState.TOPICS),
    response_length=ResponseLength.LONG,
)
