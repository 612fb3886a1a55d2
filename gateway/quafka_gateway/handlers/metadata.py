"""Metadata (key 3), versions 0-13: the gateway is the only broker, the topics are the broker's.

Every partition's leader, replica and in-sync replica is this gateway (node 0). Topics asked for
by name are created where both the client (`allow_auto_topic_creation`, version 4 and up) and the
broker's `auto.create.topics.enable` allow it. An empty list means all topics in version 0, none
from version 1 on; null means all. Where there are several brokers, their topics are one list
(`catalog.py`), and the cluster's id is the home broker's, null before that has answered once.
What may be done with topics and cluster is said from version 8 on, to who asks.
"""

from __future__ import annotations

from quafka_gateway.authorized import cluster_operations, topic_operations
from quafka_gateway.context import NODE_ID, RequestContext
from quafka_mesh_ops.ops import DescribeTopics, TopicDescription
from quafka_mesh_ops.slices import Slices
from quafka_proto.schema.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)

_ZERO_ID = bytes(16)
_PARTITIONS_PER_SLICE = 2_000


async def handle(request: MetadataRequest, context: RequestContext) -> MetadataResponse:
    """Describe the topics asked for, and this gateway."""
    with context.child("gateway.kafka.metadata") as span:
        answer = await context.broker.describe_topics(_question(request, context), span.context)
    host, port = context.services.advertised
    operations = topic_operations(asked=request.include_topic_authorized_operations)
    return MetadataResponse(
        brokers=[MetadataResponseBroker(node_id=NODE_ID, host=host, port=port)],
        cluster_id=answer.cluster_id or None,
        controller_id=NODE_ID,
        topics=await _topics(answer.topics, operations),
        cluster_authorized_operations=cluster_operations(
            asked=request.include_cluster_authorized_operations
        ),
    )


def _question(request: MetadataRequest, context: RequestContext) -> DescribeTopics:
    topics = request.topics
    if topics is None or (context.version == 0 and not topics):
        return DescribeTopics(topics=None)
    names = [topic.name for topic in topics if topic.name is not None]
    ids = [topic.topic_id for topic in topics if topic.name is None and topic.topic_id != _ZERO_ID]
    create = request.allow_auto_topic_creation or context.version < 4
    return DescribeTopics(topics=names, topic_ids=ids, auto_create=create)


async def _topics(found: list[TopicDescription], operations: int) -> list[MetadataResponseTopic]:
    """All of them."""
    topics: list[MetadataResponseTopic] = []
    slices = Slices(_PARTITIONS_PER_SLICE)
    for topic in found:
        topics.append(_topic(topic, operations))
        await slices.done(1 + topic.partitions)
    return topics


def _topic(topic: TopicDescription, operations: int) -> MetadataResponseTopic:
    return MetadataResponseTopic(
        error_code=topic.error_code,
        name=topic.topic,
        topic_id=topic.topic_id,
        partitions=[
            MetadataResponsePartition(
                partition_index=index,
                leader_id=NODE_ID,
                leader_epoch=topic.leader_epoch,
                replica_nodes=[NODE_ID],
                isr_nodes=[NODE_ID],
            )
            for index in range(topic.partitions)
        ],
        topic_authorized_operations=operations,
    )
