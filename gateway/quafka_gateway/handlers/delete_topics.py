"""DeleteTopics (key 20), versions 0-6: deletes topics by name; by name or id from version 6 on.

A client over its controller_mutation_rate is answered THROTTLING_QUOTA_EXCEEDED from version 5 on.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator

from quafka_gateway.context import RequestContext
from quafka_gateway.handlers.kafka_api import Api
from quafka_gateway.handlers.mutations import MESSAGE, REFUSED, Mutations
from quafka_gateway.handlers.order import Order, State
from quafka_mesh_ops.ops.topics import DeleteTopic, DeleteTopicResp
from quafka_proto.errors import ErrorCode
from quafka_proto.message import Versions
from quafka_proto.schema.topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
)
from quafka_telemetry.slices import listed
from quafka_telemetry.tracing import TraceContext

_NO_ID = bytes(16)
_STRICT = 5
_AT_ONCE = 200
"""Topics that are deleted at the same time: they share writes of the broker's log."""


async def handle(request: DeleteTopicsRequest, context: RequestContext) -> DeleteTopicsResponse:
    """Delete each topic, durably."""
    times: Counter[tuple[str, bytes]] = Counter()
    ops = await listed(_ops(request, context.version, times))
    results: list[DeletableTopicResult] = []
    mutations = Mutations(context, _STRICT)
    with context.child("gateway.kafka.delete_topics") as span:
        for first in range(0, len(ops), _AT_ONCE):
            some = ops[first : first + _AT_ONCE]
            sizes = await mutations.partitions(
                [op.topic for op in some if op.topic], [op.topic_id for op in some if op.topic_id]
            )
            refusals = [_refusal(op, times, mutations, sizes) for op in some]
            deletions = (
                _delete(op, refusal, context, span.context)
                for op, refusal in zip(some, refusals, strict=True)
            )
            results += await asyncio.gather(*deletions)
    return DeleteTopicsResponse(responses=results)


async def _delete(
    op: DeleteTopic,
    refusal: tuple[int, str],
    context: RequestContext,
    trace: TraceContext | None,
) -> DeletableTopicResult:
    code, message = refusal
    if code:
        answer = DeleteTopicResp(op.topic, op.topic_id, code)
    else:
        answer = await context.tenant.topics.delete(op, trace)
    nameless = None if context.version >= 6 else ""
    return DeletableTopicResult(
        name=answer.topic or op.topic or nameless,
        topic_id=answer.topic_id or op.topic_id or _NO_ID,
        error_code=answer.error_code,
        error_message=message or None,
    )


API = Api(
    key=20,
    versions=Versions(0, 6),
    request=DeleteTopicsRequest,
    handle=handle,
    order=Order(
        writes=State.TOPICS | State.CONFIGS | State.RECORDS | State.PRODUCERS | State.OFFSETS
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
