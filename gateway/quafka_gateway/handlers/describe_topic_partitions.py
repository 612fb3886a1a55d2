"""DescribeTopicPartitions (key 75), version 0: topics by name, a page at a time (KIP-966).

A page ends at the limit of partitions, within a topic if necessary; its cursor is where the next
page begins. Topics are sorted by name. Only if a request asks for all topics, a topic that
cannot be described is left out.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable

from quafka_gateway.context import RequestContext
from quafka_gateway.handlers.authorized import DESCRIBE_TOPIC, denied, topic_operations, visible
from quafka_gateway.handlers.kafka_api import Api, ResponseLength
from quafka_gateway.handlers.order import Order, SeenState
from quafka_loop.slices import listed
from quafka_mesh_ops.ops.topics import DescribeTopics, TopicDescription
from quafka_proto.errors import ErrorCode
from quafka_proto.message import Versions
from quafka_proto.schema.partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
)

_MOST = 2_000
"""Partitions in a response; Kafka's `max.request.partition.size.limit`."""


async def handle(
    request: DescribeTopicPartitionsRequest, context: RequestContext
) -> DescribeTopicPartitionsResponse:
    """Describe partitions from the cursor on."""
    cursor = request.cursor
    first = cursor.topic_name if cursor is not None else ""
    named = await listed(topic.name for topic in request.topics if topic.name >= first)
    names = sorted(set(named))
    lost = cursor is not None and bool(request.topics) and first not in names
    if lost or (cursor is not None and cursor.partition_index < 0):
        return DescribeTopicPartitionsResponse(
            topics=await listed(
                DescribeTopicPartitionsResponseTopic(
                    error_code=ErrorCode.INVALID_REQUEST, name=topic.name
                )
                for topic in request.topics
            )
        )
    hidden = await denied(names, DESCRIBE_TOPIC, context)
    names = await listed(name for name in names if name not in hidden)
    every = not request.topics
    found: list[TopicDescription] = []
    if names or every:
        question = DescribeTopics(None if every else names)
        with context.child("gateway.kafka.describe_topic_partitions") as span:
            found = (await context.tenant.topics.describe(question, span.context)).topics
    if every:
        found = found[bisect_left(found, first, key=lambda topic: topic.topic) :]
        found = await visible(found, context)
    limit = max(1, min(_MOST, request.response_partition_limit))
    served = (t for t in found if not (every and t.error_code))
    answer = _page(context, served, cursor, limit)
    answer.topics += await listed(map(_refused, sorted(hidden)))
    return answer


API = Api(
    key=75,
    versions=Versions(0, 0),
    request=DescribeTopicPartitionsRequest,
    handle=handle,
    access=(DESCRIBE_TOPIC,),
    order=Order(reads=SeenState.TOPICS),
    response_length=ResponseLength.BY_REQUEST,
)


def _refused(name: str) -> DescribeTopicPartitionsResponseTopic:
    return DescribeTopicPartitionsResponseTopic(
        error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED, name=name, topic_id=bytes(16)
    )


def _page(
    context: RequestContext, topics: Iterable[TopicDescription], cursor: Cursor | None, limit: int
) -> DescribeTopicPartitionsResponse:
    answer = DescribeTopicPartitionsResponse()
    for topic in topics:
        if not limit:
            answer.next_cursor = Cursor(topic_name=topic.topic, partition_index=0)
            break
        start = 0
        if cursor is not None and cursor.topic_name == topic.topic:
            start = cursor.partition_index
        end = min(topic.partitions, start + limit)
        answer.topics.append(_topic(context, topic, range(start, end)))
        limit -= max(0, end - start)
        if end < topic.partitions:
            answer.next_cursor = Cursor(topic_name=topic.topic, partition_index=end)
            break
    return answer


def _topic(
    context: RequestContext, topic: TopicDescription, partitions: range
) -> DescribeTopicPartitionsResponseTopic:
    node = context.node_id
    return DescribeTopicPartitionsResponseTopic(
        error_code=topic.error_code,
        name=topic.topic,
        topic_id=topic.topic_id or bytes(16),
        partitions=[
            DescribeTopicPartitionsResponsePartition(
                partition_index=index,
                leader_id=node,
                leader_epoch=topic.leader_epoch,
                replica_nodes=[node],
                isr_nodes=[node],
                # Never null: Java's AdminClient fails on it.
                eligible_leader_replicas=[],
                last_known_elr=[],
            )
            for index in partitions
        ],
        topic_authorized_operations=topic_operations(topic.topic, context, requested=True),
    )
