"""Ops 0x8C to 0x8E: share groups (KIP-932): heartbeats, descriptions, creation."""

from __future__ import annotations

from quafka_broker.state import BrokerState
from quafka_mesh_ops.handlers import OpContext
from quafka_mesh_ops.ops.consumer_groups import (
    ConsumerGroup,
    ConsumerHeartbeat,
    ConsumerHeartbeatResp,
    DescribeConsumerGroupsResp,
)
from quafka_mesh_ops.ops.share_groups import (
    CreateShareGroup,
    CreateShareGroupResp,
    DescribeShareGroups,
    ShareHeartbeat,
)
from quafka_telemetry import semconv
from quafka_telemetry.slices import Slices

_PER_SLICE = 20


async def heartbeat(
    state: BrokerState, context: OpContext, op: ShareHeartbeat
) -> ConsumerHeartbeatResp:
    """Join, stay or leave; answered when the content of the answer is durable."""
    beat = ConsumerHeartbeat(
        op.group, op.member_id, op.member_epoch, rack_id=op.rack_id, topics=op.topics,
        client_id=op.client_id, client_host=op.client_host, is_whole=op.is_whole, known=op.known,
    )  # fmt: skip
    with context.tracer.start(semconv.GROUP_HEARTBEAT, context.trace) as span:
        answer = await state.groups.share.heartbeat(context.org_id, beat)
        if span.context is not None:
            span.set({semconv.GROUP: op.group, semconv.MEMBER_EPOCH: answer.member_epoch})
        return answer


async def describe(
    state: BrokerState, context: OpContext, op: DescribeShareGroups
) -> DescribeConsumerGroupsResp:
    """Describe share groups and their members."""
    found: list[ConsumerGroup] = []
    slices = Slices(_PER_SLICE)
    for name in op.groups:
        found.append(await state.groups.share.describe(context.org_id, name))
        await slices.done()
    return DescribeConsumerGroupsResp(found)


async def create(
    state: BrokerState, context: OpContext, op: CreateShareGroup
) -> CreateShareGroupResp:
    """Create a share group without members."""
    found = await state.groups.share.create(context.org_id, op.group)
    return CreateShareGroupResp(found.error_code, found.error)
