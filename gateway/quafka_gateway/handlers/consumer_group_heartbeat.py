"""ConsumerGroupHeartbeat (key 68), versions 0-1: members of the protocol of KIP-848.

The broker that coordinates the group knows no ACLs, and of the topics only its own. It asks for the
topics of other brokers, and for those that a member's pattern matches, and the heartbeat is sent
again with them. A pattern matches only topics that the client may describe.

Version 0 has the server choose a new member's id; the client chooses it from version 1 on.
"""

from __future__ import annotations

from base64 import urlsafe_b64encode
from collections.abc import Generator, Iterable
from dataclasses import replace
from uuid import uuid4

from quafka_gateway.cluster.broker_link import BrokerUnavailableError, coordinator_code
from quafka_gateway.context import RequestContext
from quafka_gateway.handlers.authorized import (
    DENIED,
    DESCRIBE_TOPIC,
    READ_GROUP,
    denied,
    rule_changes,
    visible,
)
from quafka_gateway.handlers.kafka_api import Api
from quafka_gateway.handlers.order import Order, SeenState
from quafka_loop.slices import in_slices, turn
from quafka_mesh_ops.ops.consumer_groups import (
    ConsumerHeartbeat,
    ConsumerHeartbeatResp,
)
from quafka_mesh_ops.ops.topics import DescribeTopics, TopicDescription
from quafka_proto.errors import ErrorCode
from quafka_proto.linear_pattern import LinearPattern, PatternError
from quafka_proto.message import Versions
from quafka_proto.schema.consumer_groups import (
    ConsumerGroupAssignment,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from quafka_telemetry.tracing import TraceContext

_SHORT_PATTERN = 100
_ROUNDS = 3
"""How often the coordinator may ask: topics may be created meanwhile."""


async def handle(
    request: ConsumerGroupHeartbeatRequest, context: RequestContext
) -> ConsumerGroupHeartbeatResponse:
    """Pass the heartbeat to the group's coordinator, with the topics that it asks for."""
    changed = rule_changes(context)
    refusal = await _refusal(request, context)
    if refusal is not None:
        return refusal
    try:
        if request.subscribed_topic_regex:
            await _compiled(request.subscribed_topic_regex)
    except PatternError as e:
        text = f"SubscribedTopicRegex is not a valid regular expression: {e}."
        return _error(ErrorCode.INVALID_REGULAR_EXPRESSION, text)
    op = ConsumerHeartbeat(
        request.group_id,
        request.member_id or _new_member_id(),
        request.member_epoch,
        request.instance_id,
        request.rack_id,
        request.rebalance_timeout_ms,
        request.subscribed_topic_names,
        request.subscribed_topic_regex,
        request.server_assignor,
        request.topic_partitions,
        context.client_id or "",
        context.client_host,
    )
    coordinator = context.tenant.groups.of(request.group_id)
    with context.child("gateway.kafka.consumer_group_heartbeat") as span:
        answer = await coordinator.consumer_heartbeat(op, span.context)
        for _ in range(_ROUNDS):
            if not answer.asks and not answer.asks_pattern:
                break
            try:
                asked = await _with_topics(op, answer, context, span.context)
            except BrokerUnavailableError as e:
                answer = ConsumerHeartbeatResp(coordinator_code(e))
                break
            answer = await coordinator.consumer_heartbeat(asked, span.context)
    while changed():  # the heartbeat was held, or looked up topics
        refusal = await _refusal(request, context)
        if refusal is not None:
            return refusal
    if answer.asks or answer.asks_pattern:
        answer = ConsumerHeartbeatResp(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    return _response(answer)


API = Api(
    key=68,
    versions=Versions(0, 1),
    request=ConsumerGroupHeartbeatRequest,
    handle=handle,
    access=(READ_GROUP, DESCRIBE_TOPIC),
    order=Order(reads=SeenState.TOPICS, writes=SeenState.GROUPS),
    held=True,
)


def _new_member_id() -> str:
    """A member id in Kafka's form: 22 characters of base64."""
    return urlsafe_b64encode(uuid4().bytes).rstrip(b"=").decode()


async def _refusal(
    request: ConsumerGroupHeartbeatRequest, context: RequestContext
) -> ConsumerGroupHeartbeatResponse | None:
    if not context.may(READ_GROUP, request.group_id):
        return _error(ErrorCode.GROUP_AUTHORIZATION_FAILED, DENIED)
    if await denied(request.subscribed_topic_names or (), DESCRIBE_TOPIC, context):
        return _error(ErrorCode.TOPIC_AUTHORIZATION_FAILED, DENIED)
    if not request.member_id and (context.version >= 1 or request.member_epoch):
        return _error(ErrorCode.INVALID_REQUEST, "MemberId can't be empty.")
    return None


async def _compiled(pattern: str) -> LinearPattern:
    """Compile a pattern in its own turn: a long one takes milliseconds. Raises PatternError."""
    if len(pattern) > _SHORT_PATTERN:
        await turn()
    return LinearPattern(pattern)


def _error(code: int, message: str) -> ConsumerGroupHeartbeatResponse:
    return ConsumerGroupHeartbeatResponse(error_code=code, error_message=message)


async def _with_topics(
    op: ConsumerHeartbeat,
    answer: ConsumerHeartbeatResp,
    context: RequestContext,
    trace: TraceContext | None,
) -> ConsumerHeartbeat:
    """The heartbeat again, with the topics that its answer asks for.

    Raises:
        BrokerUnavailableError: no broker answers.
    """
    names = list(answer.asks or ())
    matched: list[str] | None = None
    if answer.asks_pattern:
        async with context.tenant.groups.matching:
            matched = await _matching(answer.asks_pattern, context, trace)
        names += matched
    known = await context.tenant.groups.of(op.group).look_up(names, trace)
    return replace(op, known=known, matched=matched)


async def _matching(pattern: str, context: RequestContext, trace: TraceContext | None) -> list[str]:
    """The names of all topics that a pattern matches, and that the client may describe."""
    answer = await context.tenant.topics.describe(DescribeTopics(None), trace)
    topics = await visible(answer.topics, context)
    return await in_slices(_matched(await _compiled(pattern), topics))


def _matched(
    pattern: LinearPattern, topics: Iterable[TopicDescription]
) -> Generator[None, None, list[str]]:
    found: dict[str, None] = {}
    for topic in topics:
        if (yield from pattern.matches(topic.topic)):
            found[topic.topic] = None
    return list(found)


def _response(answer: ConsumerHeartbeatResp) -> ConsumerGroupHeartbeatResponse:
    assigned = answer.assignment
    return ConsumerGroupHeartbeatResponse(
        error_code=answer.error_code,
        error_message=answer.error or None,
        member_id=answer.member_id or None,
        member_epoch=answer.member_epoch,
        heartbeat_interval_ms=answer.heartbeat_interval_ms,
        assignment=None if assigned is None else ConsumerGroupAssignment(assigned),
    )
