"""Batches of a partition; one record written, also to read it back for `quafka doctor --write`."""

from __future__ import annotations

import os
import secrets
from collections.abc import Sequence
from dataclasses import dataclass

from quafka_client.cluster import ClientCluster
from quafka_client.connection import ClientConnection
from quafka_client.errors import ClientError, check
from quafka_client.partitioner import partition_of
from quafka_loop import clock
from quafka_proto.record_codec import Record, build_batch, iter_records
from quafka_proto.records import BATCH_HEADER_SIZE, read_header
from quafka_proto.schema.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from quafka_proto.schema.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)

_NAMED = 12
"""The last version of Produce and Fetch in which topics have names."""
_FETCH_BYTES = 1 << 20
_WAIT_MS = 500


async def there_and_back(cluster: ClientCluster, topic: str) -> tuple[float, float]:
    """Write a record to the topic's first partition and read it; return the seconds of each.

    Raises:
        ClientError: writing or reading failed, or another record was read.
    """
    found = await cluster.topic(topic, auto_create=True)
    partition = min(each.partition_index for each in found.partitions)
    (leader,) = [
        connection for connection, its in await cluster.each_leader(found) if partition in its
    ]
    value = b"quafka doctor " + os.urandom(16).hex().encode()
    began = clock.perf_counter()
    record = Record(0, clock.time_ns() // 1_000_000, None, value, [])
    offset = await _write(leader, cluster, topic, partition, record)
    written = clock.perf_counter()
    values = await _read(leader, topic, partition, offset)
    if value not in values:
        raise ClientError(f"the record at offset {offset} of {topic!r} is not the one written")
    return written - began, clock.perf_counter() - written


async def write(
    cluster: ClientCluster, topic: str, record: Record, partition: int | None = None
) -> tuple[int, int]:
    """Write a record; return its partition and offset. Its own offset does not matter.

    Without `partition` the key chooses one as in the Java producer, or chance if there is no key.
    Raises ClientError.
    """
    found = await cluster.topic(topic)
    if partition is None:
        count = len(found.partitions)
        key = record.key
        partition = secrets.randbelow(count) if key is None else partition_of(key, count)
    for leader, its in await cluster.each_leader(found):
        if partition in its:
            return partition, await _write(leader, cluster, topic, partition, record)
    raise ClientError(f"topic {topic!r} has no partition {partition}")


async def _write(
    leader: ClientConnection, cluster: ClientCluster, topic: str, partition: int, record: Record
) -> int:
    batch = build_batch([record])
    data = PartitionProduceData(index=partition, records=batch)
    request = ProduceRequest(
        acks=-1,
        timeout_ms=round(cluster.timeout * 1000),
        topic_data=[TopicProduceData(name=topic, partition_data=[data])],
    )
    answer = await leader.call(request, ProduceResponse, newest=_NAMED)
    (result,) = answer.responses[0].partition_responses
    check(result.error_code, f"writing to {topic!r}", result.error_message)
    return result.base_offset


async def _read(leader: ClientConnection, topic: str, partition: int, offset: int) -> list[bytes]:
    rest = (await fetch(leader, topic, partition, offset, _WAIT_MS)).batches
    found: list[bytes] = []
    while len(rest) >= BATCH_HEADER_SIZE:
        length = read_header(rest).length
        if length > len(rest):
            break  # Kafka may truncate the last batch
        found += [record.value or b"" for record in iter_records(rest[:length])]
        rest = rest[length:]
    return found


@dataclass(frozen=True, slots=True)
class FetchedBatches:
    """Batches, of which the last one may be cut.

    `aborted`: the aborted transactions that overlap them, as producer id and first offset,
    ascending by first offset; only from a fetch of committed records.
    """

    batches: memoryview
    aborted: Sequence[tuple[int, int]] = ()
    committed: bool = False


async def fetch(
    leader: ClientConnection,
    topic: str,
    partition: int,
    offset: int,
    wait_ms: int = 0,
    *,
    committed: bool = False,
    most: int = _FETCH_BYTES,
) -> FetchedBatches:
    """Batches from an offset on, of about `most` bytes. Waits this long for a first one.

    Batches of open and aborted transactions are among them. With `committed` they end at the last
    stable offset, and the aborted transactions are named. Raises ClientError.
    """
    part = FetchPartition(partition=partition, fetch_offset=offset, partition_max_bytes=most)
    request = FetchRequest(
        max_wait_ms=wait_ms,
        min_bytes=1 if wait_ms else 0,
        max_bytes=most,
        isolation_level=1 if committed else 0,
        session_epoch=-1,
        topics=[FetchTopic(topic=topic, partitions=[part])],
    )
    answer = await leader.call(request, FetchResponse, newest=_NAMED)
    check(answer.error_code, f"reading {topic!r}")
    (result,) = answer.responses[0].partitions
    check(result.error_code, f"reading partition {partition} of {topic!r}")
    assert not isinstance(result.records, list)  # decoded records are one buffer
    aborted = [(each.producer_id, each.first_offset) for each in result.aborted_transactions or ()]
    return FetchedBatches(
        memoryview(result.records or b""), sorted(aborted, key=lambda each: each[1]), committed
    )
