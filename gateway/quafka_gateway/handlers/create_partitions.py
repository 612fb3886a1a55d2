"""CreatePartitions (key 37), versions 0-3: adds partitions to topics, on the only broker.

A client over its controller_mutation_rate is answered THROTTLING_QUOTA_EXCEEDED from version 3 on.
"""

from __future__ import annotations

from collections import Counter

from quafka_gateway.context import RequestContext
from quafka_gateway.handlers import replicas
from quafka_gateway.handlers.authorized import ALTER_TOPIC, DENIED
from quafka_gateway.handlers.kafka_api import Api
from quafka_gateway.handlers.mutations import MESSAGE, REFUSED, Mutations
from quafka_gateway.handlers.order import Order, SeenState
from quafka_loop.slices import Slices, listed
from quafka_mesh_ops.ops.admin import CreatePartitions
from quafka_proto.errors import ErrorCode
from quafka_proto.message import Versions
from quafka_proto.schema.partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
)

_STRICT = 3
_TOPICS_PER_SLICE = 100


async def handle(
    request: CreatePartitionsRequest, context: RequestContext
) -> CreatePartitionsResponse:
    """Add partitions to each topic, durably."""
    times = Counter(await listed(topic.name for topic in request.topics))
    results: list[CreatePartitionsTopicResult] = []
    mutations = Mutations(context, _STRICT)
    before = await mutations.partitions(list(times), [])
    slices = Slices(_TOPICS_PER_SLICE)
    with context.child("gateway.kafka.create_partitions") as span:
        for topic in request.topics:
            await slices.done(1 + max(0, _assigned(topic)))
            code, message = _refusal(topic, times, context)
            if not code and not mutations.may_go_on():
                code, message = REFUSED, MESSAGE
            if not code:
                op = CreatePartitions(
                    topic.name, topic.count, request.validate_only, _assigned(topic)
                )
                answer = await context.tenant.admin.create_partitions(op, span.context)
                code, message = answer.error_code, answer.error_message
                if not code and not request.validate_only:
                    mutations.made(topic.count - before.get(topic.name, topic.count))
            results.append(
                CreatePartitionsTopicResult(
                    name=topic.name, error_code=code, error_message=message or None
                )
            )
    return CreatePartitionsResponse(results=results)


API = Api(
    key=37,
    versions=Versions(0, 3),
    request=CreatePartitionsRequest,
    handle=handle,
    access=(ALTER_TOPIC,),
    order=Order(writes=SeenState.TOPICS),
    audited=True,
)


def _assigned(topic: CreatePartitionsTopic) -> int:
    return -1 if topic.assignments is None else len(topic.assignments)


def _refusal(
    topic: CreatePartitionsTopic, times: Counter[str], context: RequestContext
) -> tuple[int, str]:
    if times[topic.name] > 1:
        return ErrorCode.INVALID_REQUEST, "the request names this topic twice"
    if not context.may(ALTER_TOPIC, topic.name):
        return ErrorCode.TOPIC_AUTHORIZATION_FAILED, DENIED
    assigned = (each.broker_ids for each in topic.assignments or [])
    fault = replicas.assignment_fault(assigned, context.node_id)
    return fault or (ErrorCode.NONE, "")
