"""Committed offsets of consumer groups: OffsetFetch, OffsetCommit, OffsetDelete."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType

from quafka_client.cluster import ClientCluster
from quafka_client.connection import ClientConnection
from quafka_client.errors import check, sentence
from quafka_proto.schema.offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchResponse,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)

Place = tuple[str, int]
"""Topic and partition."""

_NAMED = 9
"""The last version of the offset APIs in which topics have names."""


async def committed_offsets(cluster: ClientCluster, name: str) -> dict[Place, int]:
    """A group's committed offsets. Raises ClientError."""
    return await fetch_offsets(await cluster.coordinator(name), name)


async def fetch_offsets(connection: ClientConnection, name: str) -> dict[Place, int]:
    """A group's committed offsets, from its coordinator. Raises ClientError."""
    found = await fetch_with_metadata(connection, name)
    return {place: offset for place, (offset, _) in found.items()}


async def fetch_with_metadata(
    connection: ClientConnection, name: str
) -> dict[Place, tuple[int, str]]:
    """A group's committed offsets and their metadata, from its coordinator. Raises ClientError."""
    request = OffsetFetchRequest(
        group_id=name,
        topics=None,
        groups=[OffsetFetchRequestGroup(group_id=name, topics=None)],
        require_stable=True,
    )
    answer = await connection.call(request, OffsetFetchResponse, newest=_NAMED)
    result = answer.groups[0] if answer.groups else answer
    check(result.error_code, f"group {name!r}")
    topics: Sequence[OffsetFetchResponseTopic | OffsetFetchResponseTopics] = result.topics
    return {
        (topic.name, each.partition_index): (each.committed_offset, each.metadata or "")
        for topic in topics
        for each in topic.partitions
        if not each.error_code and each.committed_offset >= 0
    }


async def commit(
    cluster: ClientCluster,
    name: str,
    wanted: Mapping[Place, int],
    metadata: Mapping[Place, str] = MappingProxyType({}),
) -> dict[Place, str | None]:
    """Commit offsets for a group without members; return each one's error. Raises ClientError."""
    topics = [
        OffsetCommitRequestTopic(
            name=topic,
            partitions=[
                OffsetCommitRequestPartition(
                    partition_index=place[1],
                    committed_offset=offset,
                    committed_metadata=metadata.get(place, ""),
                )
                for place, offset in wanted.items()
                if place[0] == topic
            ],
        )
        for topic in sorted({topic for topic, _ in wanted})
    ]
    connection = await cluster.coordinator(name)
    request = OffsetCommitRequest(group_id=name, topics=topics)
    answer = await connection.call(request, OffsetCommitResponse, newest=_NAMED)
    return {
        (topic.name, each.partition_index): sentence(each.error_code) if each.error_code else None
        for topic in answer.topics
        for each in topic.partitions
    }


async def delete_offsets(
    cluster: ClientCluster, name: str, places: Iterable[Place]
) -> dict[Place, str | None]:
    """Delete committed offsets; return each one's error. Raises ClientError."""
    wanted = list(places)
    topics = [
        OffsetDeleteRequestTopic(
            name=topic,
            partitions=[
                OffsetDeleteRequestPartition(partition_index=number)
                for its, number in wanted
                if its == topic
            ],
        )
        for topic in sorted({topic for topic, _ in wanted})
    ]
    connection = await cluster.coordinator(name)
    request = OffsetDeleteRequest(group_id=name, topics=topics)
    answer = await connection.call(request, OffsetDeleteResponse)
    check(answer.error_code, f"group {name!r}")
    return {
        (topic.name, each.partition_index): sentence(each.error_code) if each.error_code else None
        for topic in answer.topics
        for each in topic.partitions
    }
