"""Op 0x47, describe compaction: dirty bytes and the last pass of each partition of a topic."""

from __future__ import annotations

from quafka_broker.state import BrokerState
from quafka_broker.topics.topic import Topic
from quafka_loop.slices import listed
from quafka_mesh_ops.handlers import OpContext
from quafka_mesh_ops.ops.admin import (
    DescribeCompaction,
    DescribeCompactionResp,
)
from quafka_proto.errors import ErrorCode
from quafka_proto.schema.quafka import PartitionCompaction


async def describe(
    state: BrokerState, context: OpContext, op: DescribeCompaction
) -> DescribeCompactionResp:
    """Describe all partitions, in slices; none if the topic is not compacted."""
    topic = state.registry.by_name(context.org_id, op.topic)
    if topic is None:
        return DescribeCompactionResp([], ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    found = await listed(_describe(state, topic, number) for number in range(topic.partitions))
    return DescribeCompactionResp([each for each in found if each is not None])


def _describe(state: BrokerState, topic: Topic, number: int) -> PartitionCompaction | None:
    found = state.compaction.status(topic, number)
    if found is None:
        return None
    described = number, found.clean_bytes, found.dirty_bytes, found.due
    if found.last is None:
        return PartitionCompaction(*described)
    last = found.last
    return PartitionCompaction(*described, last.at_ms, last.bytes_before, last.bytes_after)
