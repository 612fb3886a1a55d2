"""Offsets of partitions by position or time, and deletion below an offset: ListOffsets,
DeleteRecords."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from quafka_client.cluster import ClientCluster
from quafka_client.connection import ClientConnection
from quafka_client.errors import RequestRefusedError, check
from quafka_client.positions import RequestedPosition
from quafka_proto.errors import ErrorCode
from quafka_proto.schema.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from quafka_proto.schema.metadata import MetadataResponseTopic
from quafka_proto.schema.partitions import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
)

END, START = -1, -2
_READ_UNCOMMITTED, _READ_COMMITTED = 0, 1


async def list_offsets(
    cluster: ClientCluster, topic: MetadataResponseTopic, timestamp: int, *, committed: bool = False
) -> dict[int, int]:
    """Each partition's first offset with a timestamp of at least `timestamp`, or START or END.

    With `committed` the END is the last stable offset. -1 if there is no such record. Raises
    ClientError.
    """
    found = await list_offsets_of(cluster, [topic], timestamp, committed=committed)
    return {partition: offset for (_, partition), offset in found.items()}


async def list_offsets_of(
    cluster: ClientCluster,
    topics: Iterable[MetadataResponseTopic],
    timestamp: int,
    *,
    committed: bool = False,
) -> dict[tuple[str, int], int]:
    """As `list_offsets`, by topic and partition: one request to each leader."""
    wanted: dict[ClientConnection, list[ListOffsetsTopic]] = {}
    for topic in topics:
        for connection, numbers in await cluster.each_leader(topic):
            parts = [ListOffsetsPartition(number, timestamp=timestamp) for number in numbers]
            wanted.setdefault(connection, []).append(ListOffsetsTopic(topic.name or "", parts))
    found: dict[tuple[str, int], int] = {}
    for connection, asked in wanted.items():
        if connection.version_of(ListOffsetsRequest) == 0:
            raise RequestRefusedError(
                ErrorCode.UNSUPPORTED_VERSION, "the server is older than Kafka 0.10.1"
            )
        request = ListOffsetsRequest(
            topics=asked,
            timeout_ms=round(cluster.timeout * 1000),
            isolation_level=_READ_COMMITTED if committed else _READ_UNCOMMITTED,
        )
        for answer in (await connection.call(request, ListOffsetsResponse)).topics:
            for each in answer.partitions:
                check(each.error_code, f"partition {each.partition_index} of {answer.name!r}")
                found[answer.name, each.partition_index] = each.offset
    return found


async def resolve(
    cluster: ClientCluster, topic: MetadataResponseTopic, position: RequestedPosition
) -> dict[int, int]:
    """Each partition's offset at a position; the end for a time after all records.

    An offset is returned unchecked. Raises ClientError.
    """
    if position.kind == "offset":
        return {each.partition_index: position.value for each in topic.partitions}
    if position.kind == "start":
        return await list_offsets(cluster, topic, START)
    ends = await list_offsets(cluster, topic, END)
    if position.kind == "end":
        return ends
    assert position.kind == "time", position
    found = await list_offsets(cluster, topic, position.value)
    return {number: ends[number] if at < 0 else at for number, at in found.items()}


async def delete_records(
    cluster: ClientCluster, topic: MetadataResponseTopic, before: Mapping[int, int]
) -> dict[int, tuple[int, int]]:
    """Delete the records of partitions below these offsets (END: all records).

    Returns each partition's new log start and error code. Raises ClientError.
    """
    found: dict[int, tuple[int, int]] = {}
    for connection, partitions in await cluster.each_leader(topic):
        wanted = [
            DeleteRecordsPartition(partition_index=number, offset=before[number])
            for number in partitions
            if number in before
        ]
        if not wanted:
            continue
        request = DeleteRecordsRequest(
            topics=[DeleteRecordsTopic(name=topic.name or "", partitions=wanted)],
            timeout_ms=round(cluster.timeout * 1000),
        )
        for answer in (await connection.call(request, DeleteRecordsResponse)).topics:
            for each in answer.partitions:
                found[each.partition_index] = (each.low_watermark, each.error_code)
    return found
