"""ListGroups (key 16), versions 0-5: groups, filtered by state from version 4, by type from 5."""

from __future__ import annotations

from collections.abc import Collection

from quafka_gateway.cluster.broker_link import BrokerUnavailableError
from quafka_gateway.context import RequestContext
from quafka_gateway.handlers.authorized import (
    DESCRIBE_CLUSTER,
    DESCRIBE_GROUP,
    denied,
    may_on_cluster,
)
from quafka_gateway.handlers.kafka_api import Api, ResponseLength
from quafka_gateway.handlers.order import Order, SeenState
from quafka_loop.slices import listed
from quafka_mesh_ops.ops.groups import ListGroups
from quafka_proto.message import Versions
from quafka_proto.schema.group_admin import ListGroupsRequest, ListGroupsResponse


async def handle(request: ListGroupsRequest, context: RequestContext) -> ListGroupsResponse:
    """List the groups of all coordinators."""
    op = ListGroups(request.states_filter, request.types_filter)
    with context.child("gateway.kafka.list_groups") as span:
        try:
            answers = await context.tenant.groups.call_all(op, span.context)
        except BrokerUnavailableError as e:
            return ListGroupsResponse(error_code=e.code)
    groups = await listed(group for answer in answers for group in answer.groups)
    hidden: Collection[str] = ()
    if not may_on_cluster(DESCRIBE_CLUSTER, context):
        hidden = await denied((each.group_id for each in groups), DESCRIBE_GROUP, context)
    return ListGroupsResponse(groups=await listed(g for g in groups if g.group_id not in hidden))


API = Api(
    key=16,
    versions=Versions(0, 5),
    request=ListGroupsRequest,
    handle=handle,
    access=(DESCRIBE_CLUSTER, DESCRIBE_GROUP),
    order=Order(reads=SeenState.GROUPS | SeenState.OFFSETS),
    response_length=ResponseLength.LONG,
)
