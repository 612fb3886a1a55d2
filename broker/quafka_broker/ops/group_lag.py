"""Ops 0x1A and 0x1B: the lag of groups, as groups/lag.py defines it."""

from __future__ import annotations

from quafka_broker.groups import lag
from quafka_broker.groups.group import DEAD, Place
from quafka_broker.groups.table import Committed
from quafka_broker.state import BrokerState
from quafka_loop.slices import Slices, listed
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

_GROUPS_PER_SLICE = 100


async def handle(state: BrokerState, context: OpContext, op: GroupLag) -> GroupLagResp:
    """Compute the lag of each group."""
    found: list[LagOfGroup] = []
    slices = Slices(_GROUPS_PER_SLICE)
    for name in op.groups:
        found.append(await _of_group(state, context.org_id, name, op.elsewhere))
        await slices.done()
    return GroupLagResp(state.groups.now_ms(), found)


async def of_offsets(state: BrokerState, context: OpContext, op: LagOfOffsets) -> LagOfOffsetsResp:
    """Compute the lag of each offset."""
    offsets = dict(await listed(map(_committed, op.partitions)))
    found = await state.groups.lags.of_offsets(
        (context.org_id, op.group), offsets, state.groups.now_ms()
    )
    return LagOfOffsetsResp(await listed(map(_partition, found)))


def _committed(each: PartitionLag) -> tuple[Place, Committed]:
    return (each.topic, each.partition), Committed("", each.committed, -1, "", each.committed_at_ms)


async def _of_group(state: BrokerState, org: int, name: str, elsewhere: bool) -> LagOfGroup:
    entry = state.groups.find(org, name)
    if entry is None:
        error = ErrorCode.GROUP_ID_NOT_FOUND if name else ErrorCode.INVALID_GROUP_ID
        return LagOfGroup(name, error, DEAD)
    group = entry.group
    lags = await state.groups.lags.of_group(
        (org, name), entry, state.groups.now_ms(), exact=True, elsewhere=elsewhere
    )
    members = await listed(
        LaggingMember(member.id, member.instance_id, member.client_id, member.client_host)
        for member in group.every_member()
    )
    return LagOfGroup(
        name,
        0,
        group.state,
        group.protocol_type,
        group.protocol or "",
        members,
        await listed(map(_partition, lags)),
    )


def _partition(each: lag.GroupPartitionLag) -> PartitionLag:
    return PartitionLag(
        each.topic,
        each.partition,
        each.log_start,
        each.high_watermark,
        each.committed if each.committed is not None else -1,
        each.records if each.records is not None else -1,
        _ms(each.seconds),
        _ms(each.catch_up_seconds),
        each.owner,
        each.committed_at_ms,
        each.topic_id,
    )


def _ms(seconds: float | None) -> int:
    return -1 if seconds is None else round(seconds * 1000)
