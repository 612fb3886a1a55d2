"""DeleteGroups (key 42), versions 0-2: deletes groups without members, and their offsets.

A group that the request names twice has one result, as in Kafka.
"""

from __future__ import annotations

from quafka_gateway.cluster.broker_link import UnavailableError
from quafka_gateway.cluster.group_coordinator import GroupCoordinator
from quafka_gateway.context import RequestContext
from quafka_gateway.handlers.authorized import DELETE_GROUP, denied
from quafka_gateway.handlers.kafka_api import Api
from quafka_gateway.handlers.order import Order, State
from quafka_loop.slices import Slices, listed
from quafka_mesh_ops.ops.consumer_groups import ConsumerGroup
from quafka_mesh_ops.ops.share_groups import DescribeShareGroups
from quafka_mesh_ops.ops.shares import DeleteShareOffsets
from quafka_proto.errors import ErrorCode
from quafka_proto.message import Versions
from quafka_proto.schema.group_admin import (
    DeletableGroupResult,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
)
from quafka_telemetry.tracing import TraceContext

_PER_SLICE = 20


async def handle(request: DeleteGroupsRequest, context: RequestContext) -> DeleteGroupsResponse:
    """Delete each group, durably."""
    asked = await listed(dict.fromkeys(request.groups_names))
    hidden = await denied(asked, DELETE_GROUP, context)
    names = await listed(name for name in asked if name not in hidden)
    with context.child("gateway.kafka.delete_groups") as span:
        failed = await _forget_shares(names, context, span.context)
        rest = await listed(name for name in names if name not in failed)
        errors = iter(await context.tenant.groups.delete(rest, span.context))
    refused = ErrorCode.GROUP_AUTHORIZATION_FAILED
    return DeleteGroupsResponse(
        results=await listed(
            DeletableGroupResult(
                group_id=name,
                error_code=refused
                if name in hidden
                else failed[name]
                if name in failed
                else next(errors),
            )
            for name in asked
        )
    )


API = Api(
    key=42,
    versions=Versions(0, 2),
    request=DeleteGroupsRequest,
    handle=handle,
    access=(DELETE_GROUP,),
    order=Order(reads=State.TOPICS, writes=State.GROUPS | State.OFFSETS | State.SHARES),
    audited=True,
)


async def _forget_shares(
    names: list[str], context: RequestContext, trace: TraceContext | None
) -> dict[str, int]:
    """Free what empty share groups have at the brokers of their partitions; the failures.

    A share group is deleted only after that: otherwise the next of its name would inherit the rest.
    """
    failed: dict[str, int] = {}
    if not names:
        return failed

    async def call(coordinator: GroupCoordinator, its: list[str]) -> list[ConsumerGroup]:
        return (await coordinator.call(DescribeShareGroups(its), trace)).groups

    def not_described(name: str, code: int) -> ConsumerGroup:
        failed[name] = code
        return ConsumerGroup(name, code)

    slices = Slices(_PER_SLICE)
    for group in await context.tenant.groups.about(names, call, not_described):
        await slices.done()
        if group.error_code or group.members:
            continue
        try:
            await context.tenant.shares.change(DeleteShareOffsets(group.group, []), trace)
        except UnavailableError as e:
            failed[group.group] = e.code_or(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    return failed
