"""DeleteTopics (key 20), versions 0-6: deletes topics by name; by name or id from version 6 on.

A client over its controller_mutation_rate is answered THROTTLING_QUOTA_EXCEEDED from version 5 on.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator

from quafka_gateway.context import RequestContext
from quafka_gateway.handlers.authorized import (
    DELETE_CLUSTER,
    DELETE_TOPIC,
    DESCRIBE_TOPIC,
    may_on_cluster,
    refusals,
)
from quafka_gateway.handlers.kafka_api import Api
from quafka_gateway.handlers.mutations import MESSAGE, REFUSED, Mutations
from quafka_gateway.handlers.order import Order, SeenState
from quafka_loop.slices import Slices, listed
from quafka_mesh_ops.ops.topics import DeleteTopic, DeleteTopicResp, DescribeTopics
from quafka_proto.errors import ErrorCode
from quafka_proto.message import Versions
from quafka_proto.schema.topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
)
from quafka_telemetry.tracing import TraceContext

_NO_ID = bytes(16)
_STRICT = 5
_AT_ONCE = 200
"""Topics that are deleted at the same time: they share writes of the broker's log."""
_NAMES_PER_SLICE = 500


async def handle(request: DeleteTopicsRequest, context: RequestContext) -> DeleteTopicsResponse:
    """Delete each topic, durably."""
    times: Counter[tuple[str, bytes]] = Counter()
    ops = await listed(_ops(request, context.version, times))
    refused = await _refusals(ops, times, context)
    results: list[DeletableTopicResult] = []
    mutations = Mutations(context, _STRICT)
    with context.child("gateway.kafka.delete_topics") as span:
        for first in range(0, len(ops), _AT_ONCE):
            some = ops[first : first + _AT_ONCE]
            sizes = await mutations.partitions(
                [op.topic for op in some if op.topic], [op.topic_id for op in some if op.topic_id]
            )
            faults = [
                (ErrorCode.NONE, "")
                if (op.topic, op.topic_id) in refused
                else _refusal(op, times, mutations, sizes)
                for op in some
            ]
            deletions = (
                _delete(op, fault, refused.get((op.topic, op.topic_id)), context, span.context)
                for op, fault in zip(some, faults, strict=True)
            )
            results += await asyncio.gather(*deletions)
    return DeleteTopicsResponse(responses=results)


async def _delete(
    op: DeleteTopic,
    refusal: tuple[int, str],
    answer: DeleteTopicResp | None,
    context: RequestContext,
    trace: TraceContext | None,
) -> DeletableTopicResult:
    """Delete one topic. `answer`: set if the client's rights have decided already."""
    code, message = refusal
    if answer is None and code:
        answer = DeleteTopicResp(op.topic, op.topic_id, code)
    elif answer is None:
        answer = await context.tenant.topics.delete(op, trace)
    nameless = None if context.version >= 6 else ""
    return DeletableTopicResult(
        name=answer.topic or op.topic or nameless,
        topic_id=answer.topic_id or op.topic_id or _NO_ID,
        error_code=answer.error_code,
        error_message=message or None,
    )


async def _refusals(
    ops: list[DeleteTopic], times: Counter[tuple[str, bytes]], context: RequestContext
) -> dict[tuple[str, bytes], DeleteTopicResp]:
    """The answers about topics that the client may not delete: without names that it may not
    know, and without revealing whether a topic that it may not describe exists.
    """
    access = context.access
    if access is None or may_on_cluster(DELETE_CLUSTER, context):
        return {}
    asked = await listed((op.topic, op.topic_id) for op in ops if not _fault(op, times))
    found = await refusals(asked, DELETE_TOPIC, context, context.trace)
    slices = Slices(_NAMES_PER_SLICE)
    answers: dict[tuple[str, bytes], DeleteTopicResp] = {}
    describable: list[str] = []
    for (name, topic_id), code in found.items():
        known = name or context.tenant.names.known(topic_id) or ""
        shown = name
        if known and code != ErrorCode.UNKNOWN_TOPIC_ID and context.may(DESCRIBE_TOPIC, known):
            shown = known
            if name:
                describable.append(name)
        answers[name, topic_id] = DeleteTopicResp(shown, topic_id, code)
        await slices.done()
    if describable:
        described = await context.tenant.topics.describe(DescribeTopics(describable), context.trace)
        for topic in described.topics:
            if topic.error_code:
                answers[topic.topic, b""] = DeleteTopicResp(topic.topic, b"", topic.error_code)
            await slices.done()
    return answers


API = Api(
    key=20,
    versions=Versions(0, 6),
    request=DeleteTopicsRequest,
    handle=handle,
    access=(DELETE_CLUSTER, DELETE_TOPIC, DESCRIBE_TOPIC),
    order=Order(
        writes=SeenState.TOPICS
        | SeenState.CONFIGS
        | SeenState.RECORDS
        | SeenState.PRODUCERS
        | SeenState.OFFSETS
    ),
    audited=True,
)


def _ops(
    request: DeleteTopicsRequest, version: int, times: Counter[tuple[str, bytes]]
) -> Iterator[DeleteTopic]:
    """The ops of a request. `times` counts how often the request names each topic."""
    named = (
        ((name, b"") for name in request.topic_names)
        if version < 6
        else ((t.name or "", b"" if t.topic_id == _NO_ID else t.topic_id) for t in request.topics)
    )
    for topic in named:
        times[topic] += 1
        if times[topic] == 1:  # answered once
            yield DeleteTopic(*topic)


def _refusal(
    op: DeleteTopic,
    times: Counter[tuple[str, bytes]],
    mutations: Mutations,
    sizes: dict[str | bytes, int],
) -> tuple[int, str]:
    """Why a topic is not deleted; if it is, its partitions are charged."""
    fault = _fault(op, times)
    if fault:
        return ErrorCode.INVALID_REQUEST, fault
    if not mutations.may_go_on():
        return REFUSED, MESSAGE
    mutations.made(sizes.get(op.topic or op.topic_id, 0))
    return ErrorCode.NONE, ""


def _fault(op: DeleteTopic, times: Counter[tuple[str, bytes]]) -> str:
    if op.topic and op.topic_id:
        return "a topic is named by its name or by its id, not by both"
    if not op.topic and not op.topic_id:
        return "neither a topic's name nor its id is given"
    return "the request names this topic twice" if times[op.topic, op.topic_id] > 1 else ""
