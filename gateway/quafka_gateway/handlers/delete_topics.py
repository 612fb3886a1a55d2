"""DeleteTopics (key 20), versions 0-6: by name, or by id from version 6 on."""

from __future__ import annotations

from quafka_gateway.context import RequestContext
from quafka_mesh_ops.ops import DeleteTopic
from quafka_proto.schema.topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
)


async def handle(request: DeleteTopicsRequest, context: RequestContext) -> DeleteTopicsResponse:
    """Delete each topic, durably."""
    results: list[DeletableTopicResult] = []
    with context.child("gateway.kafka.delete_topics") as span:
        for op in _ops(request, context.version):
            answer = await context.broker.delete_topic(op, span.context)
            results.append(
                DeletableTopicResult(
                    name=answer.topic or op.topic or None,
                    topic_id=answer.topic_id or op.topic_id or bytes(16),
                    error_code=answer.error_code,
                )
            )
    return DeleteTopicsResponse(responses=results)


def _ops(request: DeleteTopicsRequest, version: int) -> list[DeleteTopic]:
    if version < 6:
        return [DeleteTopic(name) for name in request.topic_names]
    return [DeleteTopic(topic.name or "", topic.topic_id) for topic in request.topics]
