"""Metadata (key 3), versions 0-13: this gateway is the only broker; topics come from the brokers.

The leader and only replica of every partition is this gateway (`node.id`). A topic that the request
names is created where both the client (`allow_auto_topic_creation`, version 4 and up) and the
broker's `auto.create.topics.enable` allow it; the first request for a deleted topic creates nothing
and gets UNKNOWN_TOPIC_OR_PARTITION. An empty list means all topics in version 0 and none
from version 1 on; null means all. A topic that is named twice is described once, as in Kafka. The
topics of several brokers are one list (`catalog.py`). The cluster id is the home broker's, null
until that broker has answered once. From version 8 on, clients may ask for the operations allowed
on topics and cluster.

Partitions are not encoded one by one (`metadata_partitions.py`), and a long response about all
topics is made once for all clients that ask before a topic changes.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from typing import cast

from quafka_gateway.context import RequestContext
from quafka_gateway.handlers.authorized import (
    CREATE_CLUSTER,
    CREATE_TOPIC,
    DESCRIBE_CLUSTER,
    DESCRIBE_TOPIC,
    cluster_operations,
    denied,
    may_on_cluster,
    topic_operations,
    visible,
)
from quafka_gateway.handlers.kafka_api import Api, ResponseLength
from quafka_gateway.handlers.order import Order, SeenState
from quafka_gateway.responses.encoded_response import EncodedResponse
from quafka_gateway.responses.metadata_partitions import PartitionBlock, block_of
from quafka_loop.slices import Slices, in_slices
from quafka_mesh_ops.ops.topics import DescribeTopics, DescribeTopicsResp, TopicDescription
from quafka_proto.codec import encode_in_steps
from quafka_proto.errors import ErrorCode
from quafka_proto.message import Encoded, Versions
from quafka_proto.schema.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from quafka_telemetry.tracing import TraceContext

_ZERO_ID = bytes(16)
_LEARNT = 1_000
"""Topics of one request whose names are kept: as many as take a fraction of a millisecond."""
_TOPICS_PER_SLICE = 300
_MANY = 100
_MANY_PARTITIONS = 5_000
"""A response with more topics or partitions is encoded here, and cached if it has all topics."""


async def handle(
    request: MetadataRequest, context: RequestContext
) -> MetadataResponse | EncodedResponse:
    """Describe the requested topics and this gateway."""
    question = _question(request, context)
    # Taken before the topics are chosen: a response of earlier rules is never found by later ones.
    rules = None if context.access is None else context.access.generation
    with context.child("gateway.kafka.metadata") as span:
        found = await _describe(question, context, span.context)
    if not _is_long(found.topics):
        return await _answer(request, found, context)

    async def encode() -> EncodedResponse:
        answer = await _answer(request, found, context)
        body = await in_slices(encode_in_steps(answer, context.version))
        blocks = sum(len(piece) for piece in body if isinstance(piece, memoryview))
        errors = {topic.error_code for topic in found.topics} - {0}
        return EncodedResponse(MetadataResponse, body, frozenset(errors), blocks)

    if question.topics is not None or not found.version:
        return await encode()
    key = (
        "Metadata", context.version, found.version, found.cluster_id,
        request.include_topic_authorized_operations,
        request.include_cluster_authorized_operations,
        rules,
    )  # fmt: skip
    return await context.tenant.response_cache.get(key, encode)


API = Api(
    key=3,
    versions=Versions(0, 13),
    request=MetadataRequest,
    handle=handle,
    access=(DESCRIBE_TOPIC, CREATE_CLUSTER, CREATE_TOPIC, DESCRIBE_CLUSTER),
    order=Order(writes=SeenState.TOPICS),
    response_length=ResponseLength.BY_REQUEST,
)


def _is_long(topics: list[TopicDescription]) -> bool:
    return len(topics) > _MANY or sum(topic.partitions for topic in topics) > _MANY_PARTITIONS


async def _answer(
    request: MetadataRequest, found: DescribeTopicsResp, context: RequestContext
) -> MetadataResponse:
    host, port = context.session.advertised
    return MetadataResponse(
        brokers=[MetadataResponseBroker(node_id=context.node_id, host=host, port=port)],
        cluster_id=found.cluster_id or None,
        controller_id=context.node_id,
        topics=await _topics(request, found.topics, context),
        cluster_authorized_operations=cluster_operations(
            context, requested=request.include_cluster_authorized_operations
        ),
    )


def _question(request: MetadataRequest, context: RequestContext) -> DescribeTopics:
    topics = request.topics
    if topics is None or (context.version == 0 and not topics):
        return DescribeTopics(topics=None)
    # Java's consumer of the KIP-848 protocol has an empty name, not none, where it has an id.
    by_id = [t for t in topics if t.name is None or (not t.name and t.topic_id != _ZERO_ID)]
    ids = dict.fromkeys(topic.topic_id for topic in by_id)
    ids.pop(_ZERO_ID, None)
    names = dict.fromkeys(
        t.name for t in topics if t.name is not None and (t.name or t.topic_id == _ZERO_ID)
    )
    create = request.allow_auto_topic_creation or context.version < 4
    return DescribeTopics(
        topics=[*names],
        topic_ids=[*ids],
        auto_create=create,
        create_at_most=context.services.config.max_partitions_per_request,
    )


async def _describe(
    question: DescribeTopics, context: RequestContext, trace: TraceContext | None
) -> DescribeTopicsResp:
    """Describe what the client may see of the topics, and create those that it may create.

    Whether a topic exists that it may not describe, is not even looked up.
    """
    describe = context.tenant.topics.describe
    access = context.access
    if access is None:
        found = await describe(question, trace)
        if question.topics is not None:  # for traces of requests that name topics by id
            context.tenant.names.learn(found.topics[:_LEARNT])
        return found
    if question.topics is None:
        found = await describe(question, trace)
        return replace(found, topics=await visible(found.topics, context))
    names, ids = question.topics, question.topic_ids or []
    unseen = await denied(names, DESCRIBE_TOPIC, context)
    seen = [name for name in names if name not in unseen]
    fixed: Collection[str] = ()
    if question.auto_create and not may_on_cluster(CREATE_CLUSTER, context):
        fixed = await denied(seen, CREATE_TOPIC, context)
    created = [name for name in seen if name not in fixed]
    found = await describe(replace(question, topics=created), trace)
    topics = [*found.topics[: len(created)]]
    if fixed:
        kept = await describe(DescribeTopics([n for n in seen if n in fixed]), trace)
        topics += (_not_created(topic) for topic in kept.topics)
    topics += (_refused(name) for name in names if name in unseen)
    context.tenant.names.learn(found.topics)
    topics += (
        topic
        if topic.error_code or access.allows(DESCRIBE_TOPIC, topic.topic)
        else _refused("", topic.topic_id)
        for topic in found.topics[len(found.topics) - len(ids) :]
    )
    return replace(found, topics=topics)


def _refused(name: str, topic_id: bytes = _ZERO_ID) -> TopicDescription:
    return TopicDescription(name, topic_id, 0, ErrorCode.TOPIC_AUTHORIZATION_FAILED)


def _not_created(topic: TopicDescription) -> TopicDescription:
    """A topic that the client may describe, and would have to create."""
    unknown = topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return _refused(topic.topic) if unknown else topic


async def _topics(
    request: MetadataRequest, found: list[TopicDescription], context: RequestContext
) -> list[MetadataResponseTopic]:
    """Describe the topics in slices; partitions refer to a shared block."""
    requested = request.include_topic_authorized_operations
    same = topic_operations("", context, requested=requested and context.access is None)
    differ = requested and context.access is not None
    node, version = context.node_id, context.version
    blocks: dict[int, PartitionBlock] = {}
    topics: list[MetadataResponseTopic] = []
    slices = Slices(_TOPICS_PER_SLICE)
    for topic in found:
        block = blocks.get(topic.leader_epoch)
        if block is None:
            block = blocks[topic.leader_epoch] = _block(node, topic.leader_epoch, version)
        operations = same
        if differ and topic.error_code != ErrorCode.TOPIC_AUTHORIZATION_FAILED:
            operations = topic_operations(topic.topic, context, requested=True)
        topics.append(_topic(topic, operations, block.first(topic.partitions)))
        await slices.done()
    return topics


def _block(node: int, epoch: int, version: int) -> PartitionBlock:
    sample = MetadataResponsePartition(
        leader_id=node, leader_epoch=epoch, replica_nodes=[node], isr_nodes=[node]
    )
    return block_of(sample, MetadataResponse, version)


def _topic(topic: TopicDescription, operations: int, partitions: Encoded) -> MetadataResponseTopic:
    return MetadataResponseTopic(
        error_code=topic.error_code,
        name=topic.topic,
        topic_id=topic.topic_id,
        partitions=cast("list[MetadataResponsePartition]", partitions),
        topic_authorized_operations=operations,
    )
