"""What ConsumerGroupDescribe and ShareGroupDescribe have in common: which groups are shown.

As in Kafka, a group that uses a topic that the client may not describe is refused as a whole. A
group that the request names twice is described once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from quafka_gateway.cluster.group_coordinator import GroupCoordinator
from quafka_gateway.context import RequestContext
from quafka_gateway.handlers.authorized import DENIED, DESCRIBE_GROUP, DESCRIBE_TOPIC, denied
from quafka_loop.slices import Slices, listed
from quafka_mesh_ops.ops.base import Op
from quafka_mesh_ops.ops.consumer_groups import ConsumerGroup, DescribeConsumerGroupsResp
from quafka_proto.errors import ErrorCode

_HIDDEN = "The group has described topic(s) that the client is not authorized to describe."
_PER_SLICE = 100


async def described(
    asked: Iterable[str],
    op: Callable[[list[str]], Op[DescribeConsumerGroupsResp]],
    span_name: str,
    context: RequestContext,
) -> list[ConsumerGroup]:
    """The groups by `op`; those that the client may not see have nothing but an error."""
    names = await listed(dict.fromkeys(asked))
    hidden = await denied(names, DESCRIBE_GROUP, context)
    code = ErrorCode.GROUP_AUTHORIZATION_FAILED
    shown = await listed(ConsumerGroup(name, code, DENIED) for name in names if name in hidden)
    wanted = await listed(name for name in names if name not in hidden)
    with context.child(span_name) as span:

        async def call(coordinator: GroupCoordinator, its: list[str]) -> list[ConsumerGroup]:
            return (await coordinator.call(op(its), span.context)).groups

        found = await context.tenant.groups.about(wanted, call, ConsumerGroup)
    slices = Slices(_PER_SLICE)
    for group in found:
        if not group.error_code and await denied(_topics_of(group), DESCRIBE_TOPIC, context):
            code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            group = ConsumerGroup(group.group, code, _HIDDEN)
        shown.append(group)
        await slices.done()
    return shown


def _topics_of(group: ConsumerGroup) -> Iterable[str]:
    for member in group.members or ():
        yield from member.topics
        for part in member.assignment:
            yield part.topic
        for part in member.target:
            yield part.topic
