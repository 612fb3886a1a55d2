"""Converts heartbeats, answers and partitions between ops and the pure core of consumer groups."""

from __future__ import annotations

from collections.abc import Generator, Mapping

from quafka_broker.groups.consumer.beat import BeatAnswer, MemberHeartbeat
from quafka_broker.groups.consumer.topics import Held, Partitions, TopicMetadata
from quafka_mesh_ops.ops.consumer_groups import ConsumerHeartbeat, ConsumerHeartbeatResp
from quafka_proto.schema.consumer_groups import (
    ConsumerGroupDescribeAssignment,
    ConsumerGroupDescribeTopicPartitions,
    ConsumerGroupTopicPartitions,
)


def beat_of(op: ConsumerHeartbeat) -> MemberHeartbeat:
    """The heartbeat of an op."""
    owned = None if op.owned is None else {each.topic_id: each.partitions for each in op.owned}
    return MemberHeartbeat(
        op.member_id,
        op.member_epoch,
        op.instance_id,
        op.rack_id,
        op.rebalance_timeout_ms,
        None if op.topics is None else tuple(op.topics),
        op.pattern,
        op.assignor,
        owned,
        op.client_id,
        op.client_host,
        None if op.matched is None else frozenset(op.matched),
    )


def response(answer: BeatAnswer) -> Generator[None, None, ConsumerHeartbeatResp]:
    """The answer as an op's response; one step for each topic."""
    assignment: list[ConsumerGroupTopicPartitions] | None = None
    if answer.assignment is not None:
        assignment = []
        for topic_id, partitions in answer.assignment.items():
            assignment.append(ConsumerGroupTopicPartitions(topic_id, sorted(partitions)))
            yield
    return ConsumerHeartbeatResp(
        answer.error,
        answer.message or "",
        answer.member_id or "",
        answer.member_epoch,
        answer.heartbeat_interval_ms,
        assignment,
    )


def named(
    partitions: Partitions | Held, topics: Mapping[bytes, TopicMetadata]
) -> ConsumerGroupDescribeAssignment:
    """Partitions by the names of their topics, without deleted topics."""
    return ConsumerGroupDescribeAssignment(
        [
            ConsumerGroupDescribeTopicPartitions(topic_id, topics[topic_id].name, sorted(numbers))
            for topic_id, numbers in partitions.items()
            if topic_id in topics
        ]
    )
