"""Heartbeat (key 12), versions 0-4: keeps a group member alive and announces a rebalance."""

from __future__ import annotations

from quafka_gateway.context import RequestContext
from quafka_gateway.handlers.authorized import READ_GROUP
from quafka_gateway.handlers.kafka_api import Api
from quafka_gateway.handlers.order import Order, SeenState
from quafka_mesh_ops.ops.groups import Heartbeat
from quafka_proto.errors import ErrorCode
from quafka_proto.message import Versions
from quafka_proto.schema.groups import HeartbeatRequest, HeartbeatResponse


async def handle(request: HeartbeatRequest, context: RequestContext) -> HeartbeatResponse:
    """Pass the heartbeat to the group's coordinator."""
    if not context.may(READ_GROUP, request.group_id):
        return HeartbeatResponse(error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED)
    op = Heartbeat(
        request.group_id,
        request.generation_id,
        request.member_id,
        request.group_instance_id or "",
    )
    with context.child("gateway.kafka.heartbeat") as span:
        code = await context.tenant.groups.of(op.group).heartbeat(op, span.context)
    if not context.may(READ_GROUP, request.group_id):  # revoked while it was held
        code = ErrorCode.GROUP_AUTHORIZATION_FAILED
    return HeartbeatResponse(error_code=code)


API = Api(
    key=12,
    versions=Versions(0, 4),
    request=HeartbeatRequest,
    handle=handle,
    access=(READ_GROUP,),
    order=Order(writes=SeenState.GROUPS),
    held=True,
)
