"""CreateTopics (key 19), versions 0-7: creates each topic, durably.

A topic has one replica, on the only broker, which is this gateway. Another replication factor, or
a manual assignment to another broker, is refused rather than accepted and ignored. The broker
checks topic configs and its own limits. A request for more partitions than
`max.partitions.per.request` creates nothing and is answered POLICY_VIOLATION, as in Kafka. A client
over its controller_mutation_rate is answered THROTTLING_QUOTA_EXCEEDED from version 6 on.
"""

from __future__ import annotations

from collections import Counter

from quafka_gateway.context import RequestContext
from quafka_gateway.handlers import replicas
from quafka_gateway.handlers.authorized import (
    CREATE_CLUSTER,
    CREATE_TOPIC,
    DENIED,
    DESCRIBE_TOPIC_CONFIGS,
    may_on_cluster,
)
from quafka_gateway.handlers.kafka_api import Api
from quafka_gateway.handlers.mutations import MESSAGE, REFUSED, Mutations
from quafka_gateway.handlers.order import Order, SeenState
from quafka_loop.slices import Slices, listed
from quafka_mesh_ops.ops.topics import CreateTopic, CreateTopicResp
from quafka_proto.errors import ErrorCode
from quafka_proto.message import Versions
from quafka_proto.schema.topics import (
    CreatableTopic,
    CreatableTopicConfigs,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)

_MOST_CONFIGS = 1_000  # more than all configs that exist
_TOPICS_PER_SLICE = 100
_STRICT = 6


async def handle(request: CreateTopicsRequest, context: RequestContext) -> CreateTopicsResponse:
    """Create each topic, durably."""
    most = context.services.config.max_partitions_per_request
    wanted = sum(
        await listed(max(1, each.num_partitions, len(each.assignments)) for each in request.topics)
    )
    if wanted > most:
        message = f"{wanted} partitions: max.partitions.per.request={most}"
        violation = ErrorCode.POLICY_VIOLATION
        return CreateTopicsResponse(
            topics=await listed(_error(t, violation, message) for t in request.topics)
        )
    times = Counter(await listed(topic.name for topic in request.topics))
    creates_any = may_on_cluster(CREATE_CLUSTER, context)
    results: list[CreatableTopicResult] = []
    slices = Slices(_TOPICS_PER_SLICE)
    mutations = Mutations(context, _STRICT)
    with context.child("gateway.kafka.create_topics") as span:
        for topic in request.topics:
            await slices.done()
            named = times.pop(topic.name, 0)
            if not named:
                continue  # answered once
            refusal = _refusal(topic, named, context.node_id)
            if named == 1 and not (creates_any or context.may(CREATE_TOPIC, topic.name)):
                refusal = _error(topic, ErrorCode.TOPIC_AUTHORIZATION_FAILED, DENIED)
            if refusal is None and not mutations.may_go_on():
                refusal = _error(topic, REFUSED, MESSAGE)
            if refusal is not None:
                results.append(refusal)
                continue
            partitions = len(topic.assignments) or topic.num_partitions
            op = CreateTopic(topic.name, partitions, request.validate_only, topic.configs)
            answer = await context.tenant.topics.create(op, span.context)
            if not answer.error_code and not request.validate_only:
                mutations.made(answer.partitions)
            shows = context.may(DESCRIBE_TOPIC_CONFIGS, topic.name)
            results.append(_created(topic, answer) if shows else _hidden(topic, answer))
    return CreateTopicsResponse(topics=results)


API = Api(
    key=19,
    versions=Versions(0, 7),
    request=CreateTopicsRequest,
    handle=handle,
    access=(CREATE_CLUSTER, CREATE_TOPIC, DESCRIBE_TOPIC_CONFIGS),
    order=Order(writes=SeenState.TOPICS | SeenState.CONFIGS),
    audited=True,
)


def _refusal(topic: CreatableTopic, named: int, node: int) -> CreatableTopicResult | None:
    """`named`: how often the request names the topic."""
    if named > 1:
        return _error(topic, ErrorCode.INVALID_REQUEST, "the request names this topic twice")
    if len(topic.configs) > _MOST_CONFIGS:
        return _error(topic, ErrorCode.INVALID_CONFIG, f"more than {_MOST_CONFIGS} configs")
    if topic.assignments:
        fault = _assignment_fault(topic, node)
        return _error(topic, *fault) if fault is not None else None
    if topic.replication_factor not in (-1, 1):
        return _error(
            topic,
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"replication factor {topic.replication_factor}: allowed are 1 and -1",
        )
    return None


def _assignment_fault(topic: CreatableTopic, node: int) -> tuple[ErrorCode, str] | None:
    """Return why a manual assignment is refused; None if it names only this broker."""
    if (topic.num_partitions, topic.replication_factor) != (-1, -1):
        return ErrorCode.INVALID_REQUEST, (
            "with a manual assignment, the number of partitions and the replication factor are -1"
        )
    if sorted(each.partition_index for each in topic.assignments) != list(
        range(len(topic.assignments))
    ):
        message = "a manual assignment names each partition from 0 on once"
        return ErrorCode.INVALID_REPLICA_ASSIGNMENT, message
    return replicas.assignment_fault((each.broker_ids for each in topic.assignments), node)


def _created(topic: CreatableTopic, answer: CreateTopicResp) -> CreatableTopicResult:
    return CreatableTopicResult(
        name=topic.name,
        topic_id=answer.topic_id or bytes(16),
        error_code=answer.error_code,
        error_message=answer.error_message or None,
        num_partitions=answer.partitions,
        replication_factor=-1 if answer.error_code else 1,
        configs=_configs(answer),
    )


def _hidden(topic: CreatableTopic, answer: CreateTopicResp) -> CreatableTopicResult:
    """For a client that may create the topic, and not describe its configs."""
    return CreatableTopicResult(
        name=topic.name,
        topic_id=answer.topic_id or bytes(16),
        error_code=answer.error_code,
        error_message=answer.error_message or None,
        topic_config_error_code=0 if answer.error_code else ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        configs=[],
    )


def _configs(answer: CreateTopicResp) -> list[CreatableTopicConfigs]:
    """Never null: Java's AdminClient fails on it."""
    return [
        CreatableTopicConfigs(name=config.name, value=config.value, config_source=config.source)
        for config in answer.configs or []
    ]


def _error(topic: CreatableTopic, code: ErrorCode, message: str) -> CreatableTopicResult:
    return CreatableTopicResult(
        name=topic.name, topic_id=bytes(16), error_code=code, error_message=message, configs=[]
    )
