"""What ConsumerGroupDescribe and ShareGroupDescribe have in common: the groups that are shown.

As in Kafka, a group that uses a topic that the client may not describe is refused as a whole. A
group that the request names twice is described once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Protocol

from quafka_gateway.cluster.cluster import RouteBy
from quafka_gateway.context import RequestContext
from quafka_gateway.handlers.authorized import (
    DESCRIBE_GROUP,
    DESCRIBE_TOPIC,
    denied,
    group_operations,
)
from quafka_gateway.handlers.items import Items, Refused
from quafka_loop.slices import Slices
from quafka_mesh_ops.ops.base import Op
from quafka_proto.errors import ErrorCode
from quafka_proto.schema.consumer_groups import (
    ConsumerGroupDescribeResponse,
    DescribedConsumerGroup,
)

_HIDDEN = "The group has described topic(s) that the client is not authorized to describe."
_PER_SLICE = 100


def items(span: str) -> Items[str, DescribedConsumerGroup]:
    """The groups of an API."""
    return Items(
        span=span,
        right=DESCRIBE_GROUP,
        route=RouteBy.GROUP,
        failed=lambda name, code, text: DescribedConsumerGroup(code, text or None, name),
        refused=Refused.FIRST,
    )


class _Request(Protocol):
    group_ids: list[str]
    include_authorized_operations: bool


async def described(
    groups: Items[str, DescribedConsumerGroup],
    op: Callable[[list[str]], Op[ConsumerGroupDescribeResponse]],
    request: _Request,
    context: RequestContext,
) -> list[DescribedConsumerGroup]:
    """The groups by `op`; those that the client may not see have nothing but an error."""
    names = dict.fromkeys(request.group_ids)
    results: list[DescribedConsumerGroup] = []
    slices = Slices(_PER_SLICE)
    for group in await groups.answers(names, op, lambda resp: resp.groups, context):
        await slices.done()
        shown = group
        if not group.error_code:
            if await denied(_topics_of(group), DESCRIBE_TOPIC, context):
                error = ErrorCode.TOPIC_AUTHORIZATION_FAILED
                shown = DescribedConsumerGroup(error, _HIDDEN, group.group_id)
            else:
                shown.authorized_operations = group_operations(
                    group.group_id, context, requested=request.include_authorized_operations
                )
        results.append(shown)
    return results


def _topics_of(group: DescribedConsumerGroup) -> Iterable[str]:
    for member in group.members:
        yield from member.subscribed_topic_names
        for part in member.assignment.topic_partitions:
            yield part.topic_name
        for part in member.target_assignment.topic_partitions:
            yield part.topic_name
