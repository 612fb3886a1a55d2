"""Offsets of share groups (KIP-932): DescribeShareGroupOffsets, Alter…, Delete…."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from quafka_client.cluster import ClientCluster
from quafka_client.errors import check, sentence
from quafka_client.group_lag import share_lags
from quafka_client.group_offsets import Place
from quafka_proto.schema.share_group_offsets import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsRequestPartition,
    AlterShareGroupOffsetsRequestTopic,
    AlterShareGroupOffsetsResponse,
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsRequestTopic,
    DeleteShareGroupOffsetsResponse,
)


async def start_offsets(cluster: ClientCluster, name: str) -> dict[Place, int]:
    """Where a share group's deliveries begin in each partition. Raises ClientError."""
    lags = await share_lags(await cluster.coordinator(name), name)
    return {
        (each.topic, each.partition): each.committed_offset
        for each in lags
        if each.committed_offset is not None
    }


async def alter(
    cluster: ClientCluster, name: str, wanted: Mapping[Place, int]
) -> dict[Place, str | None]:
    """Move a share group without members; return each partition's error. Raises ClientError."""
    request = AlterShareGroupOffsetsRequest(
        group_id=name,
        topics=[
            AlterShareGroupOffsetsRequestTopic(
                topic_name=topic,
                partitions=[
                    AlterShareGroupOffsetsRequestPartition(
                        partition_index=number, start_offset=offset
                    )
                    for (its, number), offset in wanted.items()
                    if its == topic
                ],
            )
            for topic in sorted({topic for topic, _ in wanted})
        ],
    )
    connection = await cluster.coordinator(name)
    answer = await connection.call(request, AlterShareGroupOffsetsResponse)
    check(answer.error_code, f"group {name!r}", answer.error_message)
    return {
        (topic.topic_name, each.partition_index): (
            sentence(each.error_code, each.error_message) if each.error_code else None
        )
        for topic in answer.responses
        for each in topic.partitions
    }


async def delete(cluster: ClientCluster, name: str, topics: Iterable[str]) -> dict[str, str | None]:
    """Delete a share group's offsets in topics; return each topic's error. Raises ClientError."""
    request = DeleteShareGroupOffsetsRequest(
        group_id=name,
        topics=[DeleteShareGroupOffsetsRequestTopic(topic_name=topic) for topic in topics],
    )
    connection = await cluster.coordinator(name)
    answer = await connection.call(request, DeleteShareGroupOffsetsResponse)
    check(answer.error_code, f"group {name!r}", answer.error_message)
    return {
        each.topic_name: sentence(each.error_code, each.error_message) if each.error_code else None
        for each in answer.responses
    }
