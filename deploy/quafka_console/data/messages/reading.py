"""Reads records of a topic: the newest ones, or from an offset or a time on.

Records of open and aborted transactions are read, too, and the marks that end transactions.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from heapq import nlargest

from quafka_client import offsets
from quafka_client.cluster import ClientCluster
from quafka_client.connection import ClientConnection
from quafka_client.errors import ClientError
from quafka_client.records import fetch
from quafka_proto.errors import Malformed
from quafka_proto.record_codec import iter_records, read_marker
from quafka_proto.records import BATCH_HEADER_SIZE, CONTROL, read_header
from quafka_proto.schema.metadata import MetadataResponseTopic

_MOST_FETCHES = 2_000
"""Of one partition for one view: about 2 GB."""

Wanted = Callable[["ReadRecord"], bool]


@dataclass(frozen=True, slots=True)
class ReadRecord:
    """A record. `timestamp`: ms since 1970. `mark`: COMMIT or ABORT, if it ends a transaction."""

    partition: int
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Sequence[tuple[str, bytes | None]]
    mark: str = ""


@dataclass(slots=True)
class Progress:
    """How far a reading has come. Set `stopped` to end it; what was found is returned."""

    scanned: int = 0
    found: int = 0
    stopped: bool = False


def _all(_record: ReadRecord) -> bool:
    return True


async def newest(
    cluster: ClientCluster,
    topic: str,
    count: int,
    partition: int | None = None,
    wanted: Wanted = _all,
    progress: Progress | None = None,
    scan: int = 10_000,
) -> list[ReadRecord]:
    """The last `count` records that are wanted, the newest first, of one or all partitions.

    Of each partition only the last `scan` offsets are read. Raises ClientError.
    """
    found, known = await _topic(cluster, topic, partition)
    starts = await offsets.list_offsets(cluster, found, offsets.START)
    ends = await offsets.list_offsets(cluster, found, offsets.END)
    depth = count if wanted is _all else scan
    records: list[ReadRecord] = []
    for number, leader in known.items():
        end = ends[number]
        start = max(starts[number], end - depth)
        its = await _read(
            leader, topic, number, start, end, wanted, progress or Progress(), depth, last=count
        )
        records = nlargest(count, records + its, key=_age)
    return records


async def onwards(
    cluster: ClientCluster,
    topic: str,
    count: int,
    partition: int | None = None,
    *,
    offset: int | None = None,
    timestamp: int | None = None,
    wanted: Wanted = _all,
    progress: Progress | None = None,
) -> list[ReadRecord]:
    """The first `count` records that are wanted, from an offset or a time on, or from the start.

    Partitions are read one after another, each up to its end. Raises ClientError.
    """
    found, known = await _topic(cluster, topic, partition)
    starts = await offsets.list_offsets(cluster, found, offsets.START)
    ends = await offsets.list_offsets(cluster, found, offsets.END)
    timed = {} if timestamp is None else await offsets.list_offsets(cluster, found, timestamp)
    records: list[ReadRecord] = []
    for number, leader in known.items():
        first = starts[number]
        if timestamp is not None:
            first = timed[number] if timed[number] >= 0 else ends[number]
        if offset is not None:
            first = max(first, offset)
        left = count - len(records)
        if left <= 0:
            break
        records += await _read(
            leader, topic, number, first, ends[number], wanted, progress or Progress(), left
        )
    return records


def _age(record: ReadRecord) -> tuple[int, int]:
    return record.timestamp, record.offset


async def _topic(
    cluster: ClientCluster, name: str, partition: int | None
) -> tuple[MetadataResponseTopic, dict[int, ClientConnection]]:
    found = await cluster.topic(name)
    known = {
        number: leader
        for leader, its in await cluster.each_leader(found)
        for number in its
        if partition in (None, number)
    }
    if not known:
        raise ClientError(f"topic {name!r} has no partition {partition}")
    return found, dict(sorted(known.items()))


async def _read(
    leader: ClientConnection,
    topic: str,
    partition: int,
    first: int,
    end: int,
    wanted: Wanted,
    progress: Progress,
    most: int,
    last: int = 0,
) -> list[ReadRecord]:
    """The wanted records from `first` up to `end`: the first `most`, or of those the `last`."""
    records: list[ReadRecord] = []
    at = first
    for _ in range(_MOST_FETCHES):
        if at >= end or progress.stopped or (not last and len(records) >= most):
            break
        batches = await fetch(leader, topic, partition, at)
        if not batches:
            break
        some = await asyncio.to_thread(_decoded, batches, partition, at, end)
        at = some.next
        progress.scanned += some.count
        records += [each for each in some.records if wanted(each)]
        progress.found = len(records)
        if last:
            del records[:-last]
    return records if last else records[:most]


@dataclass(frozen=True, slots=True)
class _Decoded:
    records: Sequence[ReadRecord]
    count: int
    next: int


def _decoded(batches: memoryview, partition: int, first: int, end: int) -> _Decoded:
    """The records of an answer in [first, end), and where the next fetch begins."""
    records: list[ReadRecord] = []
    at, count, rest = first, 0, batches
    while len(rest) >= BATCH_HEADER_SIZE:
        header = read_header(rest)
        if header.length > len(rest):
            break  # Kafka may truncate the last batch
        batch, rest = rest[: header.length], rest[header.length :]
        at = max(at + 1, header.last_offset + 1)
        control = header.attributes & CONTROL
        try:
            for record in iter_records(batch):
                offset = record.offset
                count += 1
                if not first <= offset < end:
                    continue
                marker = read_marker(record) if control else None
                mark = marker.type.name if marker is not None else ""
                records.append(
                    ReadRecord(
                        partition, offset, record.timestamp, record.key, record.value,
                        record.headers, mark,
                    )
                )  # fmt: skip
        except Malformed:
            continue  # damage costs the batch that it is in
    return _Decoded(records, count, at)
