"""DeleteGroups (key 42), versions 0-2: deletes groups without members, and their offsets."""

from __future__ import annotations

from quafka_gateway.context import RequestContext
from quafka_gateway.handlers.kafka_api import Api
from quafka_gateway.handlers.order import Order, State
from quafka_mesh_ops.ops.groups import DeleteGroups
from quafka_proto.message import Versions
from quafka_proto.schema.group_admin import (
    DeletableGroupResult,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
)


async def handle(request: DeleteGroupsRequest, context: RequestContext) -> DeleteGroupsResponse:
    """Delete each group, durably."""
    op = DeleteGroups(request.groups_names)
    with context.child("gateway.kafka.delete_groups") as span:
        errors = await context.tenant.groups.delete_groups(op, span.context)
    return DeleteGroupsResponse(
        results=[
            DeletableGroupResult(group_id=name, error_code=error)
            for name, error in zip(request.groups_names, errors, strict=True)
        ]
    )


API = Api(
    key=42,
    versions=Versions(0, 2),
    request=DeleteGroupsRequest,
    handle=handle,
    order=Order(writes=State.GROUPS | State.OFFSETS),
    audited=True,
)
