"""DeleteGroups (key 42), versions 0-2: deletes groups without members, and their offsets.

A group that the request names twice has one result, as in Kafka.
"""

from __future__ import annotations

from quafka_gateway.cluster.broker_link import BrokerUnavailableError
from quafka_gateway.cluster.cluster import RouteBy, Send
from quafka_gateway.context import RequestContext
from quafka_gateway.handlers.authorized import DELETE_GROUP
from quafka_gateway.handlers.items import Items
from quafka_gateway.handlers.kafka_api import Api
from quafka_gateway.handlers.order import Order, SeenState
from quafka_loop.slices import Slices, listed
from quafka_mesh_ops.ops.groups import DeleteGroups
from quafka_mesh_ops.ops.share_groups import DescribeShareGroups
from quafka_mesh_ops.ops.shares import DeleteShareOffsets
from quafka_proto.errors import ErrorCode
from quafka_proto.message import Versions
from quafka_proto.schema.consumer_groups import ConsumerGroupDescribeResponse
from quafka_proto.schema.group_admin import (
    DeletableGroupResult,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
)
from quafka_telemetry.tracing import TraceContext

_PER_SLICE = 20


_GROUPS = Items[str, int](
    span="gateway.kafka.delete_groups",
    right=DELETE_GROUP,
    route=RouteBy.GROUP,
    failed=lambda _name, code, _message: code,
)


async def handle(request: DeleteGroupsRequest, context: RequestContext) -> DeleteGroupsResponse:
    """Delete each group, durably."""

    async def delete(send: Send, its: list[str], trace: TraceContext | None) -> list[int]:
        described = await send(DescribeShareGroups(its))
        failed = await _forget_shares(described, context, trace)
        rest = DeleteGroups(await listed(name for name in its if name not in failed))
        codes = iter((await send(rest)).groups if rest.groups else ())
        return [failed[name] if name in failed else next(codes) for name in its]

    names = await listed(dict.fromkeys(request.groups_names))
    codes = await _GROUPS.answers_by(delete, names, context)
    return DeleteGroupsResponse(results=await listed(map(DeletableGroupResult, names, codes)))


API = Api(
    key=42,
    versions=Versions(0, 2),
    request=DeleteGroupsRequest,
    handle=handle,
    items=_GROUPS,
    access=(DELETE_GROUP,),
    order=Order(
        reads=SeenState.TOPICS, writes=SeenState.GROUPS | SeenState.OFFSETS | SeenState.SHARES
    ),
    audited=True,
)


async def _forget_shares(
    described: ConsumerGroupDescribeResponse, context: RequestContext, trace: TraceContext | None
) -> dict[str, int]:
    """Free what empty share groups have at the brokers of their partitions; the failures.

    A share group is deleted only after that: otherwise the next of its name would inherit the rest.
    """
    failed: dict[str, int] = {}
    slices = Slices(_PER_SLICE)
    for group in described.groups:
        await slices.done()
        if group.error_code or group.members:
            continue
        try:
            everything = DeleteShareOffsets(group.group_id, [])
            await context.tenant.shares.change(everything, trace)
        except BrokerUnavailableError as e:
            failed[group.group_id] = e.code_or(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    return failed
