"""ShareGroupDescribe (key 77), version 1: share groups (KIP-932) and their members.

As in Kafka, a group that uses a topic that the client may not describe is refused as a whole. A
group that the request names twice is described once.
"""

from __future__ import annotations

from quafka_gateway.context import RequestContext
from quafka_gateway.handlers.authorized import DESCRIBE_GROUP, DESCRIBE_TOPIC, group_operations
from quafka_gateway.handlers.described_groups import described
from quafka_gateway.handlers.kafka_api import Api, ResponseLength
from quafka_gateway.handlers.order import Order, State
from quafka_loop.slices import Slices, listed
from quafka_mesh_ops.ops import consumer_groups as ops
from quafka_mesh_ops.ops.share_groups import DescribeShareGroups
from quafka_proto.message import Versions
from quafka_proto.schema.share_groups import (
    DescribedGroup,
    Member,
    ShareGroupDescribeAssignment,
    ShareGroupDescribeRequest,
    ShareGroupDescribeResponse,
    ShareGroupDescribeTopicPartitions,
)

_PER_SLICE = 100


async def handle(
    request: ShareGroupDescribeRequest, context: RequestContext
) -> ShareGroupDescribeResponse:
    """Describe each group of the request."""
    found = await described(
        request.group_ids, DescribeShareGroups, "gateway.kafka.share_group_describe", context
    )
    groups: list[DescribedGroup] = []
    slices = Slices(_PER_SLICE)
    for group in found:
        groups.append(await _group(group, request, context))
        await slices.done()
    return ShareGroupDescribeResponse(groups=groups)


API = Api(
    key=77,
    versions=Versions(1, 1),
    request=ShareGroupDescribeRequest,
    handle=handle,
    access=(DESCRIBE_GROUP, DESCRIBE_TOPIC),
    order=Order(reads=State.GROUPS | State.TOPICS),
    response_length=ResponseLength.LONG,
)


async def _group(
    group: ops.ConsumerGroup, request: ShareGroupDescribeRequest, context: RequestContext
) -> DescribedGroup:
    if group.error_code:
        return DescribedGroup(
            error_code=group.error_code, error_message=group.error or None, group_id=group.group
        )
    return DescribedGroup(
        group_id=group.group,
        group_state=group.state,
        group_epoch=group.epoch,
        assignment_epoch=group.assignment_epoch,
        assignor_name=group.assignor,
        members=await listed(map(_member, group.members or ())),
        authorized_operations=group_operations(
            group.group, context, requested=request.include_authorized_operations
        ),
    )


def _member(member: ops.ConsumerMember) -> Member:
    return Member(
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
