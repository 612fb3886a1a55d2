"""The bytes of partitions on the disks of their leaders: DescribeLogDirs."""

from __future__ import annotations

from collections.abc import Iterable

from quafka_client.cluster import ClientCluster
from quafka_client.connection import ClientConnection
from quafka_client.errors import check
from quafka_proto.schema.log_dirs import (
    DescribableLogDirTopic,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
)
from quafka_proto.schema.metadata import MetadataResponseTopic


async def sizes_of(
    cluster: ClientCluster, topics: Iterable[MetadataResponseTopic]
) -> dict[tuple[str, int], int]:
    """The bytes of each partition at its leader, by topic and partition. Raises ClientError."""
    wanted: dict[ClientConnection, list[DescribableLogDirTopic]] = {}
    for topic in topics:
        for connection, numbers in await cluster.each_leader(topic):
            asked = DescribableLogDirTopic(topic=topic.name or "", partitions=numbers)
            wanted.setdefault(connection, []).append(asked)
    found: dict[tuple[str, int], int] = {}
    for connection, its in wanted.items():
        answer = await connection.call(DescribeLogDirsRequest(topics=its), DescribeLogDirsResponse)
        check(answer.error_code, connection.address)
        for folder in answer.results:
            check(folder.error_code, f"{connection.address}, folder {folder.log_dir}")
            for each in folder.topics:
                for part in each.partitions:
                    if not part.is_future_key:
                        found[each.name, part.partition_index] = part.partition_size
    return found
