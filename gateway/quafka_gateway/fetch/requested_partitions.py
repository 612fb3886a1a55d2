"""The partitions that a Kafka fetch request names, as ops for the broker. Pure."""

from __future__ import annotations

from collections.abc import Generator

from quafka_mesh_ops.ops.records import FetchOp
from quafka_proto.schema.fetch import FetchRequest

_TOPIC_IDS_SINCE = 13

Key = tuple[str | bytes, int]
"""A partition as the client names it: topic id or name, and number."""
RequestedPartitions = dict[Key, FetchOp]


def has_topic_ids(version: int) -> bool:
    """Whether requests of this version name topics by id."""
    return version >= _TOPIC_IDS_SINCE


def key_of(op: FetchOp) -> Key:
    """The partition that an op addresses."""
    return op.topic_id or op.topic, op.partition


def replica_id(request: FetchRequest) -> int:
    """The replica that fetches; -1: a consumer."""
    return request.replica_state.replica_id if request.replica_id < 0 else request.replica_id


def requested_in_steps(
    request: FetchRequest, version: int
) -> Generator[None, None, RequestedPartitions]:
    """The named partitions, in the request's order. Of duplicates the last one counts."""
    topic_ids = has_topic_ids(version)
    requested: RequestedPartitions = {}
    for topic in request.topics:
        name, topic_id = ("", topic.topic_id) if topic_ids else (topic.topic, b"")
        for partition in topic.partitions:
            requested[topic_id or name, partition.partition] = FetchOp(
                name,
                partition.partition,
                partition.fetch_offset,
                partition.partition_max_bytes,
                topic_id,
                partition.current_leader_epoch,
                partition.last_fetched_epoch,
            )
            yield
        yield
    return requested


def requested(request: FetchRequest, version: int) -> RequestedPartitions:
    """As `requested_in_steps`, in one step."""
    steps = requested_in_steps(request, version)
    while True:
        try:
            next(steps)
        except StopIteration as end:
            found: RequestedPartitions = end.value
            return found


def forgotten(request: FetchRequest, version: int) -> list[Key]:
    """The partitions that the client removes from its session."""
    topic_ids = has_topic_ids(version)
    return [
        (topic.topic_id if topic_ids else topic.topic, partition)
        for topic in request.forgotten_topics_data
        for partition in topic.partitions
    ]
