"""ShareGroupDescribe (key 77), version 1: share groups (KIP-932) and their members.

As in Kafka, a group that uses a topic that the client may not describe is refused as a whole. A
group that the request names twice is described once.
"""

from __future__ import annotations

from quafka_gateway.context import RequestContext
from quafka_gateway.handlers.authorized import DESCRIBE_GROUP, DESCRIBE_TOPIC
from quafka_gateway.handlers.described_groups import described, items
from quafka_gateway.handlers.kafka_api import Api, ResponseLength
from quafka_gateway.handlers.order import Order, SeenState
from quafka_mesh_ops.ops import consumer_groups as ops
from quafka_mesh_ops.ops.share_groups import DescribeShareGroups
from quafka_proto.message import Versions
from quafka_proto.schema.share_groups import (
    DescribedShareGroup,
    ShareGroupDescribeAssignment,
    ShareGroupDescribeMember,
    ShareGroupDescribeRequest,
    ShareGroupDescribeResponse,
    ShareGroupDescribeTopicPartitions,
)

_GROUPS = items("gateway.kafka.share_group_describe")


async def handle(
    request: ShareGroupDescribeRequest, context: RequestContext
) -> ShareGroupDescribeResponse:
    """Describe each group of the request."""
    groups = await described(
        _GROUPS, DescribeShareGroups, _member, DescribedShareGroup, request, context
    )
    return ShareGroupDescribeResponse(groups=groups)


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


def _member(member: ops.ConsumerMember) -> ShareGroupDescribeMember:
    return ShareGroupDescribeMember(
        member_id=member.member_id,
        rack_id=member.rack_id or None,
        member_epoch=member.member_epoch,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=member.topics,
        assignment=_assignment(member.assignment),
    )


def _assignment(parts: list[ops.NamedPartitions]) -> ShareGroupDescribeAssignment:
    return ShareGroupDescribeAssignment(
        topic_partitions=[
            ShareGroupDescribeTopicPartitions(
                topic_id=part.topic_id, topic_name=part.topic, partitions=part.partitions
            )
            for part in parts
        ]
    )
