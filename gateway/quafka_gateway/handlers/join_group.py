"""JoinGroup (key 11), versions 0-9: answered when the group's next generation begins.

Long poll. From version 4 on, a new member receives its id and must join again with it (KIP-394).
From version 9 on, the response can tell the leader to skip the assignment (KIP-814).
"""

from __future__ import annotations

from quafka_gateway.context import RequestContext
from quafka_gateway.handlers.authorized import READ_GROUP
from quafka_gateway.handlers.kafka_api import Api
from quafka_gateway.handlers.order import Order, SeenState
from quafka_loop.slices import listed
from quafka_mesh_ops.ops.groups import JoinGroup
from quafka_proto.errors import ErrorCode
from quafka_proto.message import Versions
from quafka_proto.schema.groups import (
    JoinGroupRequest,
    JoinGroupResponse,
    JoinGroupResponseMember,
)


async def handle(request: JoinGroupRequest, context: RequestContext) -> JoinGroupResponse:
    """Join at the group's coordinator."""
    if not context.may(READ_GROUP, request.group_id):
        return _refused(context)
    op = JoinGroup(
        request.group_id,
        request.member_id,
        request.group_instance_id or "",
        request.protocol_type,
        request.protocols,
        request.session_timeout_ms,
        request.rebalance_timeout_ms,
        context.client_id or "",
        context.client_host,
        require_member_id=context.version >= 4,
        knows_skip_assignment=context.version >= 9,
    )
    with context.child("gateway.kafka.join_group") as span:
        answer = await context.tenant.groups.of(op.group).join_group(op, span.context)
    if not context.may(READ_GROUP, request.group_id):  # revoked while the op was parked
        return _refused(context)
    protocol = answer.protocol
    return JoinGroupResponse(
        error_code=answer.error_code,
        generation_id=answer.generation,
        protocol_type=answer.protocol_type,
        protocol_name=protocol if context.version >= 7 else protocol or "",
        leader=answer.leader,
        skip_assignment=answer.skip_assignment,
        member_id=answer.member_id,
        members=await listed(
            JoinGroupResponseMember(
                member_id=member.member_id,
                group_instance_id=member.instance_id or None,
                metadata=member.metadata,
            )
            for member in answer.members or []
        ),
    )


API = Api(
    key=11,
    versions=Versions(0, 9),
    request=JoinGroupRequest,
    handle=handle,
    access=(READ_GROUP,),
    order=Order(writes=SeenState.GROUPS, long_poll=True),
)


def _refused(context: RequestContext) -> JoinGroupResponse:
    return JoinGroupResponse(
        error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED,
        generation_id=-1,
        protocol_name=None if context.version >= 7 else "",
    )
