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
from quafka_mesh_ops.ops import consumer_groups as ops
from quafka_proto.message import Versions
from quafka_proto.schema.consumer_groups import (
    ConsumerGroupDescribeAssignment,
    ConsumerGroupDescribeMember,
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    ConsumerGroupDescribeTopicPartitions,
    DescribedConsumerGroup,
)

_CLASSIC, _CONSUMER = 0, 1
"""Types of members."""
_GROUPS = items("gateway.kafka.consumer_group_describe")


async def handle(
    request: ConsumerGroupDescribeRequest, context: RequestContext
) -> ConsumerGroupDescribeResponse:
    """Describe each group of the request."""
    groups = await described(
        _GROUPS, ops.DescribeConsumerGroups, _member, DescribedConsumerGroup, request, context
    )
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


def _member(member: ops.ConsumerMember) -> ConsumerGroupDescribeMember:
    return ConsumerGroupDescribeMember(
        member_id=member.member_id,
        instance_id=member.instance_id or None,
        rack_id=member.rack_id or None,
        member_epoch=member.member_epoch,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=member.topics,
        subscribed_topic_regex=member.pattern,
        assignment=_assignment(member.assignment),
        target_assignment=_assignment(member.target),
        member_type=_CLASSIC if member.is_classic else _CONSUMER,
    )


def _assignment(parts: list[ops.NamedPartitions]) -> ConsumerGroupDescribeAssignment:
    return ConsumerGroupDescribeAssignment(
        topic_partitions=[
            ConsumerGroupDescribeTopicPartitions(
                topic_id=part.topic_id, topic_name=part.topic, partitions=part.partitions
            )
            for part in parts
        ]
    )
