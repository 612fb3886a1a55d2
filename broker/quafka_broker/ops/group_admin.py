"""Ops 0x16 to 0x19: list, describe and delete consumer groups, and delete their offsets."""

from __future__ import annotations

from quafka_broker.groups.classic.group import ClassicGroup
from quafka_broker.groups.classic.states import ClassicState
from quafka_broker.groups.group import DEAD, GroupType, Place
from quafka_broker.groups.served_classic import CLASSIC_GROUPS
from quafka_broker.partitions.errors import StorageError
from quafka_broker.state import BrokerState
from quafka_loop.slices import Slices, listed
from quafka_mesh_ops.handlers import OpContext
from quafka_mesh_ops.ops.group_offsets import DeleteOffsets, DeleteOffsetsResp
from quafka_mesh_ops.ops.groups import (
    DeleteGroups,
    DeleteGroupsResp,
    DescribedMember,
    DescribeGroups,
    DescribeGroupsResp,
    GroupDescription,
    ListGroups,
    ListGroupsResp,
)
from quafka_proto.consumer_protocol import CONSUMER
from quafka_proto.errors import ErrorCode
from quafka_proto.schema.group_admin import ListedGroup

_BETWEEN = (ClassicState.COMPLETING, ClassicState.STABLE)
_PER_SLICE = 500


async def list_groups(state: BrokerState, context: OpContext, op: ListGroups) -> ListGroupsResp:
    """List the org's groups. States and kinds are compared without regard to case."""
    states = set(await listed(name.lower() for name in op.states))
    kinds = set(await listed(name.lower() for name in op.kinds))
    groups = [entry.group for entry in state.groups.groups(context.org_id)]
    return ListGroupsResp(
        await listed(
            ListedGroup(group.name, group.protocol_type, group.state, group.kind)
            for group in groups
            if (not states or group.state.lower() in states) and (not kinds or group.kind in kinds)
        )
    )


async def describe(
    state: BrokerState, context: OpContext, op: DescribeGroups
) -> DescribeGroupsResp:
    """Describe groups and their members."""
    found: list[GroupDescription] = []
    slices = Slices(_PER_SLICE)
    for name in op.groups:
        await slices.done()
        entry = state.groups.find(context.org_id, name)
        group = CLASSIC_GROUPS.of(entry)
        if group is not None:
            found.append(await _description(group))
        else:
            kind = "" if entry is None else entry.group.kind
            found.append(GroupDescription(name, ErrorCode.GROUP_ID_NOT_FOUND, DEAD, kind))
    return DescribeGroupsResp(found)


async def _description(group: ClassicGroup) -> GroupDescription:
    """Describe a group; like Kafka, with metadata of the selected protocol only.

    Assignments are shown in all states: until members have new ones, they have the last.
    """
    protocol = (group.protocol or "") if group.state in _BETWEEN else ""
    state = group.state
    return GroupDescription(
        group.name,
        0,
        state,
        group.protocol_type,
        protocol,
        await listed(
            DescribedMember(
                member.id,
                member.instance_id,
                member.client_id,
                member.client_host,
                member.protocols.get(protocol, b""),
                member.assignment,
            )
            for member in list(group.members.values())
        ),
    )


async def delete(state: BrokerState, context: OpContext, op: DeleteGroups) -> DeleteGroupsResp:
    """Delete groups one by one, with their offsets in open transactions."""
    errors: list[int] = []
    slices = Slices(_PER_SLICE)
    for name in op.groups:
        await slices.done()
        try:
            error = await state.groups.delete_group(context.org_id, name)
            if not error:
                await state.transactions.coordinator.drop_group(context.org_id, name)
            errors.append(error)
        except StorageError:
            errors.append(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    return DeleteGroupsResp(errors)


async def delete_offsets(
    state: BrokerState, context: OpContext, op: DeleteOffsets
) -> DeleteOffsetsResp:
    """Delete offsets, except in topics that members are subscribed to."""
    entry = state.groups.find(context.org_id, op.group)
    if entry is None or entry.group.state == DEAD or entry.group.kind is GroupType.SHARE:
        unknown = ErrorCode.GROUP_ID_NOT_FOUND if op.group else ErrorCode.INVALID_GROUP_ID
        return DeleteOffsetsResp(unknown, [])
    group = entry.group
    if group.member_count and group.protocol_type != CONSUMER:
        return DeleteOffsetsResp(ErrorCode.NON_EMPTY_GROUP, [])
    used = group.subscribed()
    errors: list[int] = []
    places: list[Place] = []
    slices = Slices(_PER_SLICE)
    for question in op.topics:
        await slices.done()
        error = ErrorCode.NONE
        if used is None or question.topic in used:
            error = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
        topic = state.registry.by_name(context.org_id, question.topic)
        for partition in question.partitions:
            await slices.done()
            in_range = topic is not None and topic.has(partition)
            in_range = in_range or question.elsewhere
            errors.append(error if in_range else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            if not errors[-1] and (question.topic, partition) in entry.offsets:
                places.append((question.topic, partition))
    if group.state == DEAD or group.subscribed() != used:
        return await delete_offsets(state, context, op)  # members have joined or left meanwhile
    if places:
        try:
            await state.groups.offsets.delete(context.org_id, op.group, places)
        except StorageError:
            return DeleteOffsetsResp(ErrorCode.COORDINATOR_NOT_AVAILABLE, [])
    return DeleteOffsetsResp(0, errors)
