"""SyncGroup (key 14), versions 0-5: a member's assignment, once the leader has sent it.

Long poll.
"""

from __future__ import annotations

from quafka_gateway.context import RequestContext
from quafka_gateway.handlers.authorized import READ_GROUP
from quafka_gateway.handlers.kafka_api import Api
from quafka_gateway.handlers.order import Order, SeenState
from quafka_mesh_ops.ops.groups import SyncGroup
from quafka_proto.errors import ErrorCode
from quafka_proto.message import Versions
from quafka_proto.schema.groups import (
    SyncGroupRequest,
    SyncGroupResponse,
)

_NAMES_PROTOCOL = 5


async def handle(request: SyncGroupRequest, context: RequestContext) -> SyncGroupResponse:
    """Wait for the assignment at the broker."""
    unnamed = request.protocol_type is None or request.protocol_name is None
    if context.version >= _NAMES_PROTOCOL and unnamed:
        return SyncGroupResponse(error_code=ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    if not context.may(READ_GROUP, request.group_id):
        return SyncGroupResponse(error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED)
    op = SyncGroup(
        request.group_id,
        request.generation_id,
        request.member_id,
        request.group_instance_id or "",
        request.assignments,
        request.protocol_type,
        request.protocol_name,
    )
    with context.child("gateway.kafka.sync_group") as span:
        answer = await context.tenant.groups.of(op.group).sync_group(op, span.context)
    if not context.may(READ_GROUP, request.group_id):  # revoked while the op was parked
        return SyncGroupResponse(error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED)
    return SyncGroupResponse(
        error_code=answer.error_code,
        protocol_type=answer.protocol_type,
        protocol_name=answer.protocol,
        assignment=answer.assignment,
    )


API = Api(
    key=14,
    versions=Versions(0, 5),
    request=SyncGroupRequest,
    handle=handle,
    access=(READ_GROUP,),
    order=Order(writes=SeenState.GROUPS, long_poll=True),
)
