"""What ConsumerGroupDescribe and ShareGroupDescribe have in common: the groups that are shown.

As in Kafka, a group that uses a topic that the client may not describe is refused as a whole. A
group that the request names twice is described once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Protocol, TypeVar

from quafka_gateway.cluster.cluster import RouteBy
from quafka_gateway.context import RequestContext
from quafka_gateway.handlers.authorized import (
    DESCRIBE_GROUP,
    DESCRIBE_TOPIC,
    denied,
    group_operations,
)
from quafka_gateway.handlers.items import Items, Refused
from quafka_loop.slices import Slices, listed
from quafka_mesh_ops.ops.base import Op
from quafka_mesh_ops.ops.consumer_groups import (
    ConsumerGroupDescription,
    ConsumerMember,
    DescribeConsumerGroupsResp,
)
from quafka_proto.errors import ErrorCode
from quafka_proto.message import Struct

_HIDDEN = "The group has described topic(s) that the client is not authorized to describe."
_PER_SLICE = 100

Group = TypeVar("Group", bound=Struct)


def items(span: str) -> Items[str, ConsumerGroupDescription]:
    """The groups of an API."""
    return Items(
        span=span,
        right=DESCRIBE_GROUP,
        route=RouteBy.GROUP,
        failed=ConsumerGroupDescription,
        refused=Refused.FIRST,
    )


class _Request(Protocol):
    group_ids: list[str]
    include_authorized_operations: bool


async def described(
    groups: Items[str, ConsumerGroupDescription],
    op: Callable[[list[str]], Op[DescribeConsumerGroupsResp]],
    member: Callable[[ConsumerMember], Struct],
    result: Callable[..., Group],
    request: _Request,
    context: RequestContext,
) -> list[Group]:
    """The groups by `op`; those that the client may not see have nothing but an error."""
    names = dict.fromkeys(request.group_ids)
    results: list[Group] = []
    slices = Slices(_PER_SLICE)
    for group in await groups.answers(names, op, lambda resp: resp.groups, context):
        await slices.done()
        code, message = group.error_code, group.error
        if not code and await denied(_topics_of(group), DESCRIBE_TOPIC, context):
            code, message = ErrorCode.TOPIC_AUTHORIZATION_FAILED, _HIDDEN
        if code:
            refusal = result(error_code=code, error_message=message or None, group_id=group.group)
            results.append(refusal)
            continue
        shown = result(
            group_id=group.group,
            group_state=group.state,
            group_epoch=group.epoch,
            assignment_epoch=group.assignment_epoch,
            assignor_name=group.assignor,
            members=await listed(map(member, group.members or ())),
            authorized_operations=group_operations(
                group.group, context, requested=request.include_authorized_operations
            ),
        )
        results.append(shown)
    return results


def _topics_of(group: ConsumerGroupDescription) -> Iterable[str]:
    for member in group.members or ():
        yield from member.topics
        for part in member.assignment:
            yield part.topic
        for part in member.target:
            yield part.topic
