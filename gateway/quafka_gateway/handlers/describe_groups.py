"""DescribeGroups (key 15), versions 0-6: the state, protocol and members of groups.

An unknown group is described as Dead, without an error below version 6 (KIP-1043). A group that the
request names twice is described once: a request of 1 MB could name a large group 100,000 times.
"""

from __future__ import annotations

from quafka_gateway.cluster.group_coordinator import GroupCoordinator
from quafka_gateway.context import RequestContext
from quafka_gateway.handlers.authorized import DENIED, DESCRIBE_GROUP, denied, group_operations
from quafka_gateway.handlers.kafka_api import Api, ResponseLength
from quafka_gateway.handlers.order import Order, State
from quafka_loop.slices import Slices, listed
from quafka_mesh_ops.ops.groups import DescribedGroup as Described
from quafka_mesh_ops.ops.groups import DescribeGroups
from quafka_proto.errors import ErrorCode
from quafka_proto.message import Versions
from quafka_proto.schema.group_admin import (
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)

_GROUPS_PER_SLICE = 100


async def handle(request: DescribeGroupsRequest, context: RequestContext) -> DescribeGroupsResponse:
    """Describe each group of the request."""
    hidden = await denied(request.groups, DESCRIBE_GROUP, context)
    names = await listed(name for name in dict.fromkeys(request.groups) if name not in hidden)
    with context.child("gateway.kafka.describe_groups") as span:

        async def call(coordinator: GroupCoordinator, its: list[str]) -> list[Described]:
            return (await coordinator.call(DescribeGroups(its), span.context)).groups

        found = await context.tenant.groups.about(names, call, Described)
    described: list[DescribedGroup] = []
    slices = Slices(_GROUPS_PER_SLICE)
    for group in found:
        described.append(
            await _group(group, context, with_operations=request.include_authorized_operations)
        )
        await slices.done()
    return DescribeGroupsResponse(groups=[*await listed(map(_refused, hidden)), *described])


API = Api(
    key=15,
    versions=Versions(0, 6),
    request=DescribeGroupsRequest,
    handle=handle,
    access=(DESCRIBE_GROUP,),
    order=Order(reads=State.GROUPS),
    response_length=ResponseLength.LONG,
)


def _refused(name: str) -> DescribedGroup:
    code = ErrorCode.GROUP_AUTHORIZATION_FAILED
    return DescribedGroup(error_code=code, group_id=name, error_message=DENIED)


async def _group(
    group: Described, context: RequestContext, *, with_operations: bool
) -> DescribedGroup:
    error, message, kind = group.error_code, None, group.protocol_type
    if error == ErrorCode.GROUP_ID_NOT_FOUND:
        what = f"is not a classic group ({kind} group)" if kind else "not found"
        error, message = (
            (0, None) if context.version < 6 else (error, f"Group {group.group} {what}.")
        )
        kind = ""
    return DescribedGroup(
        error_code=error,
        error_message=message,
        group_id=group.group,
        group_state=group.state,
        protocol_type=kind,
        protocol_data=group.protocol,
        members=await listed(
            DescribedGroupMember(
                member_id=member.member_id,
                group_instance_id=member.instance_id or None,
                client_id=member.client_id,
                client_host=member.client_host,
                member_metadata=member.metadata,
                member_assignment=member.assignment,
            )
            for member in group.members or []
        ),
        authorized_operations=group_operations(
            group.group, context, requested=with_operations and not error
        ),
    )
