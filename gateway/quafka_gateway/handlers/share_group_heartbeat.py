"""ShareGroupHeartbeat (key 76), version 1: members of share groups (KIP-932).

The broker that coordinates the group assigns the partitions, several members to one partition if
there are too few. It knows only its own topics, and asks for those of other brokers.
"""

from __future__ import annotations

from dataclasses import replace

from quafka_gateway.context import RequestContext
from quafka_gateway.handlers.authorized import (
    DENIED,
    DESCRIBE_TOPIC,
    READ_GROUP,
    denied,
    rule_changes,
)
from quafka_gateway.handlers.kafka_api import Api
from quafka_gateway.handlers.order import Order, SeenState
from quafka_mesh_ops.ops.consumer_groups import ConsumerHeartbeatResp
from quafka_mesh_ops.ops.share_groups import ShareHeartbeat
from quafka_proto.errors import ErrorCode
from quafka_proto.message import Versions
from quafka_proto.schema.share_groups import (
    ShareGroupAssignment,
    ShareGroupHeartbeatRequest,
    ShareGroupHeartbeatResponse,
)

_ROUNDS = 3
"""How often the coordinator may ask: topics may be created meanwhile."""


async def handle(
    request: ShareGroupHeartbeatRequest, context: RequestContext
) -> ShareGroupHeartbeatResponse:
    """Pass the heartbeat to the group's coordinator, with the topics that it asks for."""
    changed = rule_changes(context)
    refusal = await _refusal(request, context)
    if refusal is not None:
        return refusal
    op = ShareHeartbeat(
        request.group_id, request.member_id, request.member_epoch, request.rack_id,
        request.subscribed_topic_names, context.client_id or "", context.client_host,
    )  # fmt: skip
    coordinator = context.tenant.groups.of(request.group_id)
    with context.child("gateway.kafka.share_group_heartbeat") as span:
        answer = await coordinator.share_heartbeat(op, span.context)
        for _ in range(_ROUNDS):
            if not answer.asks:
                break
            known = await coordinator.look_up(answer.asks, span.context)
            answer = await coordinator.share_heartbeat(replace(op, known=known), span.context)
    while changed():  # topics were looked up meanwhile
        refusal = await _refusal(request, context)
        if refusal is not None:
            return refusal
    if answer.asks:
        answer = ConsumerHeartbeatResp(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    return _response(answer)


API = Api(
    key=76,
    versions=Versions(1, 1),
    request=ShareGroupHeartbeatRequest,
    handle=handle,
    access=(READ_GROUP, DESCRIBE_TOPIC),
    order=Order(reads=SeenState.TOPICS, writes=SeenState.GROUPS),
)


async def _refusal(
    request: ShareGroupHeartbeatRequest, context: RequestContext
) -> ShareGroupHeartbeatResponse | None:
    if not context.may(READ_GROUP, request.group_id):
        return _error(ErrorCode.GROUP_AUTHORIZATION_FAILED)
    if await denied(request.subscribed_topic_names or (), DESCRIBE_TOPIC, context):
        return _error(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    return None


def _error(code: int) -> ShareGroupHeartbeatResponse:
    return ShareGroupHeartbeatResponse(error_code=code, error_message=DENIED)


def _response(answer: ConsumerHeartbeatResp) -> ShareGroupHeartbeatResponse:
    assigned = answer.assignment
    return ShareGroupHeartbeatResponse(
        error_code=answer.error_code,
        error_message=answer.error or None,
        member_id=answer.member_id or None,
        member_epoch=answer.member_epoch,
        heartbeat_interval_ms=answer.heartbeat_interval_ms,
        assignment=None if assigned is None else ShareGroupAssignment(assigned),
    )
