"""Serves the ops of the previous version's gateways; see quafka_mesh_ops.ops.previous."""

from __future__ import annotations

from quafka_broker.ops import consumer_groups, share_groups
from quafka_broker.state import BrokerState
from quafka_loop.slices import Slices, listed
from quafka_mesh_ops.handlers import OpContext
from quafka_mesh_ops.ops import previous as ops
from quafka_mesh_ops.ops.consumer_groups import DescribeConsumerGroups
from quafka_mesh_ops.ops.share_groups import DescribeShareGroups
from quafka_proto.schema.consumer_groups import (
    CLASSIC_MEMBER,
    ConsumerGroupDescribeAssignment,
    ConsumerGroupDescribeMember,
    ConsumerGroupDescribeResponse,
)


async def describe_consumer_groups(
    state: BrokerState, context: OpContext, op: ops.PreviousDescribeConsumerGroups
) -> ops.PreviousDescriptions:
    """See DescribeConsumerGroups."""
    found = await consumer_groups.describe(state, context, DescribeConsumerGroups(op.groups))
    return await _descriptions(found)


async def describe_share_groups(
    state: BrokerState, context: OpContext, op: ops.PreviousDescribeShareGroups
) -> ops.PreviousDescriptions:
    """See DescribeShareGroups."""
    found = await share_groups.describe(state, context, DescribeShareGroups(op.groups))
    return await _descriptions(found)


async def _descriptions(found: ConsumerGroupDescribeResponse) -> ops.PreviousDescriptions:
    groups: list[ops.PreviousDescription] = []
    slices = Slices(20)
    for group in found.groups:
        await slices.done()
        groups.append(
            ops.PreviousDescription(
                group.group_id, group.error_code, group.error_message or "", group.group_state,
                group.group_epoch, group.assignment_epoch, group.assignor_name,
                None if group.error_code else await listed(map(_member, group.members)),
            )
        )  # fmt: skip
    return ops.PreviousDescriptions(groups)


def _member(member: ConsumerGroupDescribeMember) -> ops.PreviousMember:
    return ops.PreviousMember(
        member.member_id, member.instance_id or "", member.rack_id or "", member.member_epoch,
        member.client_id, member.client_host, member.subscribed_topic_names,
        member.subscribed_topic_regex or "", _partitions(member.assignment),
        _partitions(member.target_assignment), member.member_type == CLASSIC_MEMBER,
    )  # fmt: skip


def _partitions(assignment: ConsumerGroupDescribeAssignment) -> list[ops.PreviousPartitions]:
    return [
        ops.PreviousPartitions(each.topic_name, each.topic_id, each.partitions)
        for each in assignment.topic_partitions
    ]
