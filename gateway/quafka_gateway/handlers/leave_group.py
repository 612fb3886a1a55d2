"""LeaveGroup (key 13), versions 0-5: removes members; one per request up to version 2."""

from __future__ import annotations

from quafka_gateway.context import RequestContext
from quafka_gateway.handlers.authorized import READ_GROUP
from quafka_gateway.handlers.kafka_api import Api
from quafka_gateway.handlers.order import Order, SeenState
from quafka_loop.slices import listed
from quafka_mesh_ops.ops.groups import LeaveGroup, Leaver
from quafka_proto.errors import ErrorCode
from quafka_proto.message import Versions
from quafka_proto.schema.groups import LeaveGroupRequest, LeaveGroupResponse, MemberResponse


async def handle(request: LeaveGroupRequest, context: RequestContext) -> LeaveGroupResponse:
    """Remove the members at the group's coordinator."""
    if not context.may(READ_GROUP, request.group_id):
        return LeaveGroupResponse(error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED)
    if context.version < 3:
        leavers = [Leaver(request.member_id)]
    else:
        leavers = await listed(
            Leaver(each.member_id, each.group_instance_id or "") for each in request.members
        )
    with context.child("gateway.kafka.leave_group") as span:
        answer = await context.tenant.groups.of(request.group_id).leave_group(
            LeaveGroup(request.group_id, leavers), span.context
        )
    if context.version < 3:
        return LeaveGroupResponse(error_code=answer.error_code or sum(answer.leavers))
    return LeaveGroupResponse(
        error_code=answer.error_code,
        members=await listed(
            MemberResponse(
                member_id=leaver.member_id,
                group_instance_id=leaver.instance_id or None,
                error_code=code,
            )
            for leaver, code in zip(leavers, answer.leavers, strict=False)
        ),
    )


API = Api(
    key=13,
    versions=Versions(0, 5),
    request=LeaveGroupRequest,
    handle=handle,
    access=(READ_GROUP,),
    order=Order(writes=SeenState.GROUPS),
)
