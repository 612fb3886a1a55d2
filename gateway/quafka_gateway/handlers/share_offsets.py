"""What the APIs on the offsets of share groups have in common: the group, and the topics' ids."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from quafka_gateway.cluster.broker_link import BrokerUnavailableError
from quafka_gateway.context import RequestContext
from quafka_loop.slices import listed
from quafka_mesh_ops.ops.consumer_groups import KnownTopic
from quafka_mesh_ops.ops.share_groups import (
    CreateShareGroup,
    DescribeShareGroups,
    ForgetShareTopics,
)
from quafka_mesh_ops.ops.topics import DescribeTopics, TopicDescription
from quafka_proto.errors import ErrorCode
from quafka_telemetry.tracing import TraceContext

Refusal = tuple[int, str]
GOOD: Refusal = (ErrorCode.NONE, "")
NO_ID = bytes(16)
_NO_NAME: Refusal = (ErrorCode.INVALID_GROUP_ID, "The group id is empty.")


async def check_group(group: str, context: RequestContext, trace: TraceContext | None) -> Refusal:
    """Why the offsets of a group cannot be deleted; GOOD if they can.

    A member may join after this check. Its records are then delivered from the new offsets on.
    """
    if not group:
        return _NO_NAME
    try:
        answer = await context.tenant.groups.of(group).call(DescribeShareGroups([group]), trace)
    except BrokerUnavailableError as e:
        return e.code, str(e)
    found = answer.groups[0]
    if found.error_code:
        return found.error_code, found.error_message or ""
    if found.members:
        return ErrorCode.NON_EMPTY_GROUP, f"The group {group} is not empty."
    return GOOD


async def create_group(
    group: str,
    topics: Sequence[TopicDescription],
    context: RequestContext,
    trace: TraceContext | None,
) -> Refusal:
    """Create a group without members, unless there is one; why the offsets cannot be changed.

    The group learns the topics.
    """
    if not group:
        return _NO_NAME
    known = await listed(
        KnownTopic(each.topic, each.topic_id, each.partitions)
        for each in topics
        if not each.error_code
    )
    op = CreateShareGroup(group, known)
    try:
        answer = await context.tenant.groups.of(group).call(op, trace)
    except BrokerUnavailableError as e:
        return e.code, str(e)
    return answer.error_code, answer.error


async def forget_topics(
    group: str, topic_ids: Iterable[bytes], context: RequestContext, trace: TraceContext | None
) -> int:
    """Make a group find topics new, with all their partitions; returns the error code.

    Topics that do not exist have no id.
    """
    op = ForgetShareTopics(group, await listed(each for each in topic_ids if each))
    if not op.topic_ids:
        return 0
    try:
        return (await context.tenant.groups.of(group).call(op, trace)).error_code
    except BrokerUnavailableError as e:  # an earlier broker notes no partitions
        return 0 if e.code == ErrorCode.UNSUPPORTED_VERSION else e.code


async def described(
    names: Collection[str], context: RequestContext, trace: TraceContext | None
) -> list[TopicDescription]:
    """Describe topics; none if that is impossible now."""
    if not names:
        return []
    try:
        found = await context.tenant.topics.describe(DescribeTopics(await listed(names)), trace)
    except BrokerUnavailableError:
        return []
    return found.topics


async def ids_of(
    names: Collection[str], context: RequestContext, trace: TraceContext | None
) -> dict[str, bytes]:
    """The ids of those of the topics that are known now, by name."""
    topics = await described(names, context, trace)
    return dict(await listed((each.topic, each.topic_id) for each in topics))
