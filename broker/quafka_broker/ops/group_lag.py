"""Ops 0x1A and 0x1B: the lag of groups, as groups/lag.py defines it."""

from __future__ import annotations

from quafka_broker.groups import lag
from quafka_broker.groups.states import State
from quafka_broker.groups.table import Committed
from quafka_broker.state import BrokerState
from quafka_mesh_ops.handlers import OpContext
from quafka_mesh_ops.ops.lag import (
    GroupLag,
    GroupLagResp,
    LaggingMember,
    LagOfGroup,
    LagOfOffsets,
    LagOfOffsetsResp,
    PartitionLag,
)
from quafka_proto.errors import ErrorCode


async def handle(state: BrokerState, context: OpContext, op: GroupLag) -> GroupLagResp:
    """Compute the lag of each group."""
    found = [await _of_group(state, context.org_id, name, op.elsewhere) for name in op.groups]
    return GroupLagResp(state.groups.now_ms(), found)


async def of_offsets(state: BrokerState, context: OpContext, op: LagOfOffsets) -> LagOfOffsetsResp:
    """Compute the lag of each offset."""
    offsets = {
        (each.topic, each.partition): Committed("", each.committed, -1, "", each.committed_at_ms)
        for each in op.partitions
    }
    found = await state.groups.lags.of_offsets(
        (context.org_id, op.group), offsets, state.groups.now_ms()
    )
    return LagOfOffsetsResp([_partition(each) for each in found])


async def _of_group(state: BrokerState, org: int, name: str, elsewhere: bool) -> LagOfGroup:
    entry = state.groups.find(org, name)
    if entry is None:
        error = ErrorCode.GROUP_ID_NOT_FOUND if name else ErrorCode.INVALID_GROUP_ID
        return LagOfGroup(name, error, State.DEAD)
    group = entry.group
    lags = await state.groups.lags.of_group(
        (org, name), entry, state.groups.now_ms(), exact=True, elsewhere=elsewhere
    )
    members = [
        LaggingMember(member.id, member.instance_id, member.client_id, member.client_host)
        for member in group.members.values()
    ]
    return LagOfGroup(
        name,
        0,
        group.state,
        group.protocol_type,
        group.protocol or "",
        members,
        [_partition(each) for each in lags],
    )


def _partition(each: lag.PartitionLag) -> PartitionLag:
    return PartitionLag(
        each.topic,
        each.partition,
        each.log_start,
        each.high_watermark,
        each.committed if each.committed is not None else -1,
        each.records if each.records is not None else -1,
        _ms(each.seconds),
        _ms(each.catch_up_seconds),
        each.owner.id if each.owner is not None else "",
        each.committed_at_ms,
        each.topic_id,
    )


def _ms(seconds: float | None) -> int:
    return -1 if seconds is None else round(seconds * 1000)
