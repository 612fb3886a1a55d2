"""DeleteGroups (key 42), versions 0-2: deletes groups without members, and their offsets."""

from __future__ import annotations

from quafka_gateway.context import RequestContext
from quafka_gateway.handlers.authorized import DELETE_GROUP, denied
from quafka_gateway.handlers.kafka_api import Api
from quafka_gateway.handlers.order import Order, State
from quafka_mesh_ops.ops.groups import DeleteGroups
from quafka_proto.errors import ErrorCode
from quafka_proto.message import Versions
from quafka_proto.schema.group_admin import (
    DeletableGroupResult,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
)


async def handle(request: DeleteGroupsRequest, context: RequestContext) -> DeleteGroupsResponse:
    """Delete each group, durably."""
    hidden = await denied(request.groups_names, DELETE_GROUP, context)
    names = [name for name in request.groups_names if name not in hidden]
    with context.child("gateway.kafka.delete_groups") as span:
        op = DeleteGroups(names)
        errors = await context.tenant.groups.delete_groups(op, span.context) if names else []
    rest = iter(errors)
    refused = ErrorCode.GROUP_AUTHORIZATION_FAILED
    return DeleteGroupsResponse(
        results=[
            DeletableGroupResult(
                group_id=name, error_code=refused if name in hidden else next(rest)
            )
            for name in request.groups_names
        ]
    )


API = Api(
    key=42,
    versions=Versions(0, 2),
    request=DeleteGroupsRequest,
    handle=handle,
    access=(DELETE_GROUP,),
    order=Order(writes=State.GROUPS | State.OFFSETS),
    audited=True,
)
