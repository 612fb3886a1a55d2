"""Ops 0x10 to 0x13: members join, sync, send heartbeats, and leave."""

from __future__ import annotations

from dataclasses import replace

from quafka_broker.state import BrokerState
from quafka_loop import clock
from quafka_loop.slices import listed
from quafka_mesh_ops.handlers import OpContext
from quafka_mesh_ops.ops.groups import (
    Heartbeat,
    HeartbeatResp,
    JoinGroup,
    JoinGroupResp,
    LeaveGroup,
    LeaveGroupResp,
    SyncGroup,
    SyncGroupResp,
)
from quafka_telemetry import semconv


async def join(state: BrokerState, context: OpContext, op: JoinGroup) -> JoinGroupResp:
    """Join a group; parked until the generation begins."""
    with context.tracer.start(semconv.GROUP_PARK, context.trace) as span:
        began = clock.perf_counter()
        answer = await state.groups.classic.join(context.org_id, op)
        if span.context is not None:
            span.set(
                {
                    semconv.GROUP: op.group,
                    semconv.GENERATION: answer.generation,
                    semconv.MEMBERS: len(answer.members or ()),
                }
            )
        return replace(answer, parked_us=clock.microseconds_since(began))


async def sync(state: BrokerState, context: OpContext, op: SyncGroup) -> SyncGroupResp:
    """Get an assignment; parked until the leader has sent it."""
    with context.tracer.start(semconv.GROUP_PARK, context.trace) as span:
        span.set({semconv.GROUP: op.group, semconv.GENERATION: op.generation})
        began = clock.perf_counter()
        answer = await state.groups.classic.sync(context.org_id, op)
        return replace(answer, parked_us=clock.microseconds_since(began))


async def heartbeat(state: BrokerState, context: OpContext, op: Heartbeat) -> HeartbeatResp:
    """Extend the sessions of members."""
    groups, org = state.groups.classic, context.org_id
    code = groups.heartbeat(org, op)
    if not op.others:
        return HeartbeatResp(code)
    codes = await listed(int(groups.heartbeat(org, each)) for each in op.others)
    return HeartbeatResp(code, codes)


async def leave(state: BrokerState, context: OpContext, op: LeaveGroup) -> LeaveGroupResp:
    """Remove members."""
    error, leavers = state.groups.classic.leave(context.org_id, op)
    return LeaveGroupResp(error, [int(code) for code in leavers])
