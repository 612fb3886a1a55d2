"""DescribeGroups (key 15), versions 0-6: the state, protocol and members of groups.

An unknown group is described as Dead, without an error below version 6 (KIP-1043). A group that the
request names twice is described once: a request of 1 MB could name a large group 100,000 times.
"""

from __future__ import annotations

from quafka_gateway.cluster.cluster import RouteBy
from quafka_gateway.context import RequestContext
from quafka_gateway.handlers.authorized import DESCRIBE_GROUP, group_operations
from quafka_gateway.handlers.items import Items, Refused
from quafka_gateway.handlers.kafka_api import Api, ResponseLength
from quafka_gateway.handlers.order import Order, SeenState
from quafka_loop.slices import Slices, listed
from quafka_mesh_ops.ops.groups import DescribeGroups, GroupDescription
from quafka_proto.errors import ErrorCode
from quafka_proto.message import Versions
from quafka_proto.schema.group_admin import (
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)

_GROUPS_PER_SLICE = 100


_Found = tuple[GroupDescription, str]
"""What is known of a group, and why the client may not know more."""
_GROUPS = Items[str, _Found](
    span="gateway.kafka.describe_groups",
    right=DESCRIBE_GROUP,
    route=RouteBy.GROUP,
    failed=lambda name, code, message: (GroupDescription(name, code), message),
    refused=Refused.FIRST,
)


async def handle(request: DescribeGroupsRequest, context: RequestContext) -> DescribeGroupsResponse:
    """Describe each group of the request."""
    found = await _GROUPS.answers(
        dict.fromkeys(request.groups),
        DescribeGroups,
        lambda resp: [(each, "") for each in resp.groups],
        context,
    )
    groups: list[DescribedGroup] = []
    slices = Slices(_GROUPS_PER_SLICE)
    for group, message in found:
        groups.append(await _group(group, message, request, context))
        await slices.done()
    return DescribeGroupsResponse(groups=groups)


API = Api(
    key=15,
    versions=Versions(0, 6),
    request=DescribeGroupsRequest,
    handle=handle,
    items=_GROUPS,
    access=(DESCRIBE_GROUP,),
    order=Order(reads=SeenState.GROUPS),
    response_length=ResponseLength.LONG,
)


async def _group(
    group: GroupDescription, refusal: str, request: DescribeGroupsRequest, context: RequestContext
) -> DescribedGroup:
    error, message, kind = group.error_code, refusal or None, group.protocol_type
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
            group.group, context, requested=request.include_authorized_operations and not error
        ),
    )
