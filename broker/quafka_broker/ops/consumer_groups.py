"""Ops 0x78 and 0x145: heartbeats of the consumer group protocol (KIP-848), and its groups."""

from __future__ import annotations

from quafka_broker.state import BrokerState
from quafka_loop.slices import Slices
from quafka_mesh_ops.handlers import OpContext
from quafka_mesh_ops.ops.consumer_groups import (
    ConsumerHeartbeat,
    ConsumerHeartbeatResp,
    DescribeConsumerGroups,
)
from quafka_proto.schema.consumer_groups import (
    ConsumerGroupDescribeResponse,
    DescribedConsumerGroup,
)
from quafka_telemetry import semconv

_PER_SLICE = 20


async def heartbeat(
    state: BrokerState, context: OpContext, op: ConsumerHeartbeat
) -> ConsumerHeartbeatResp:
    """Join, stay or leave; answered when the content of the answer is durable."""
    with context.tracer.start(semconv.GROUP_HEARTBEAT, context.trace) as span:
        answer = await state.groups.consumer.heartbeat(context.org_id, op)
        if span.context is not None:
            span.set({semconv.GROUP: op.group, semconv.MEMBER_EPOCH: answer.member_epoch})
        return answer


async def describe(
    state: BrokerState, context: OpContext, op: DescribeConsumerGroups
) -> ConsumerGroupDescribeResponse:
    """Describe groups and their members."""
    found: list[DescribedConsumerGroup] = []
    slices = Slices(_PER_SLICE)
    for name in op.groups:
        found.append(await state.groups.consumer.describe(context.org_id, name))
        await slices.done()
    return ConsumerGroupDescribeResponse(groups=found)
