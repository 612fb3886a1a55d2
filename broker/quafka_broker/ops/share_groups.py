"""Ops 0x86, 0x87, 0x8C, 0x8E and 0x14D: share groups (KIP-932): members, topics, creation."""

from __future__ import annotations

from quafka_broker.groups.served_share import SHARE_GROUPS, ServedShareGroup
from quafka_broker.state import BrokerState
from quafka_loop.slices import Slices, in_slices
from quafka_mesh_ops.errors import OpFailedError
from quafka_mesh_ops.handlers import OpContext
from quafka_mesh_ops.ops.consumer_groups import (
    ConsumerHeartbeat,
    ConsumerHeartbeatResp,
)
from quafka_mesh_ops.ops.share_groups import (
    CreateShareGroup,
    CreateShareGroupResp,
    DescribeShareGroups,
    ForgetShareTopics,
    ForgetShareTopicsResp,
    ShareGroupTopics,
    ShareGroupTopicsResp,
    ShareHeartbeat,
)
from quafka_proto.errors import ErrorCode
from quafka_proto.schema.consumer_groups import (
    ConsumerGroupDescribeResponse,
    DescribedConsumerGroup,
)
from quafka_telemetry import semconv

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
) -> ConsumerGroupDescribeResponse:
    """Describe share groups and their members."""
    found: list[DescribedConsumerGroup] = []
    slices = Slices(_PER_SLICE)
    for name in op.groups:
        found.append(await state.groups.share.describe(context.org_id, name))
        await slices.done()
    return ConsumerGroupDescribeResponse(groups=found)


async def create(
    state: BrokerState, context: OpContext, op: CreateShareGroup
) -> CreateShareGroupResp:
    """Create a share group without members."""
    found = await state.groups.share.create(context.org_id, op.group)
    if found.error_code or not op.topics:
        return CreateShareGroupResp(found.error_code, found.error_message or "")
    group = _find(state, context, op.group)
    if group is None or not await group.learn_first(op.topics):
        return CreateShareGroupResp(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    return CreateShareGroupResp(0)


async def topics(
    state: BrokerState, context: OpContext, op: ShareGroupTopics
) -> ShareGroupTopicsResp:
    """The partitions that topics had when a group learnt them; no group knows none."""
    group = _find(state, context, op.group)
    if group is None:
        return ShareGroupTopicsResp([-1] * len(op.topic_ids))
    if not await group.changes.all_stored():
        raise OpFailedError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    return ShareGroupTopicsResp(await in_slices(group.first_partitions(op.topic_ids)))


async def forget(
    state: BrokerState, context: OpContext, op: ForgetShareTopics
) -> ForgetShareTopicsResp:
    """Make a group without members forget topics."""
    group = _find(state, context, op.group)
    if group is None:
        return ForgetShareTopicsResp(ErrorCode.GROUP_ID_NOT_FOUND)
    if group.member_count:
        return ForgetShareTopicsResp(ErrorCode.NON_EMPTY_GROUP)
    group.forget(op.topic_ids)
    stored = await group.changes.all_stored()
    return ForgetShareTopicsResp(0 if stored else ErrorCode.COORDINATOR_NOT_AVAILABLE)


def _find(state: BrokerState, context: OpContext, name: str) -> ServedShareGroup | None:
    return SHARE_GROUPS.of(state.groups.find(context.org_id, name))
