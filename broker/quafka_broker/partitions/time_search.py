"""Finds records by timestamp, exactly, for any order of timestamps and any compression.

The sparse index leads to a block of 64 batches, the block's index rows to a batch, and the batch to
a record. The search trusts the max timestamp in the batch header, which the producer wrote under
its CRC, and decodes only the records of this one batch, in a thread.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import NamedTuple, Protocol

from quafka_broker.partitions.errors import OffsetGoneError
from quafka_broker.partitions.partition import Partition
from quafka_broker.partitions.sparse_index import Block
from quafka_proto.log_format import IndexRow
from quafka_proto.record_codec import iter_records
from quafka_proto.records import BATCH_HEADER_SIZE


class RecordReader(Protocol):
    """Reads index rows and record batches of a partition; implemented by the log."""

    async def rows(self, partition: Partition, start: int, end: int) -> list[IndexRow]:
        """The index rows of the batches with readable offsets in [start, end)."""
        ...

    async def read(
        self, partition: Partition, offset: int, max_bytes: int, *, at_least_one: bool
    ) -> list[memoryview]:
        """Whole batches from the one with `offset` on."""
        ...


class Stamp(NamedTuple):
    """A record's offset and timestamp."""

    offset: int
    timestamp: int


async def first_from(source: RecordReader, partition: Partition, timestamp: int) -> Stamp | None:
    """The first record with a timestamp at or above this one.

    Raises:
        StorageError, Malformed: the log cannot be read.
    """
    offset = partition.log_start
    while (block := partition.batches.first_reaching(timestamp, offset)) is not None:
        for row in await _rows(source, partition, block):
            if row.max_timestamp >= timestamp:
                found = await _in_batch(
                    source, partition, row, lambda stamps: _first(stamps, timestamp)
                )
                if found is not None:
                    return found
        offset = block.end  # the batch that reached the time has been deleted
    return None


async def latest(source: RecordReader, partition: Partition) -> Stamp | None:
    """The first record with the highest timestamp.

    Raises:
        StorageError, Malformed: the log cannot be read.
    """
    start = partition.batches.block_of(partition.log_start)
    if start is None:
        return None
    # A part of the first block, and of its first batch, may have been deleted.
    rest = partition.batches.greatest(start.end)
    rows = await _rows(source, partition, start)
    stamps: list[Stamp | None] = []
    if rows and rows[0].base_offset < partition.log_start:
        stamps.append(await _in_batch(source, partition, rows.pop(0), _greatest))
    if rest is not None:
        rows += await _rows(source, partition, rest)
    rows = [row for row in rows if row.length > BATCH_HEADER_SIZE]  # others have no record
    if rows:
        best = max(rows, key=lambda row: row.max_timestamp)
        stamps.append(await _in_batch(source, partition, best, _greatest))
    return max(filter(None, stamps), key=lambda stamp: stamp.timestamp, default=None)


async def timestamp_of(
    source: RecordReader, partition: Partition, offset: int, *, exact: bool
) -> int | None:
    """The timestamp of the record at a readable offset; None if it is lost to damage.

    Unless `exact`, it is the highest timestamp of the batch, which needs only the index.

    Raises:
        StorageError, Malformed: the log cannot be read.
        OffsetGoneError: the log start is above the offset.
    """
    rows = await source.rows(partition, offset, offset + 1)
    if not rows:
        return None
    if not exact or rows[0].record_count == 1:
        return rows[0].max_timestamp
    found = await _in_batch(
        source,
        partition,
        rows[0],
        lambda stamps: next((s for s in stamps if s.offset == offset), None),
    )
    return found.timestamp if found is not None else None


async def _rows(source: RecordReader, partition: Partition, block: Block) -> list[IndexRow]:
    """The rows of a block's batches that have not been deleted."""
    while True:
        try:
            return await source.rows(partition, max(block.start, partition.log_start), block.end)
        except OffsetGoneError:
            continue  # the log start has moved during the read


async def _in_batch(
    source: RecordReader,
    partition: Partition,
    row: IndexRow,
    choose: Callable[[Iterator[Stamp]], Stamp | None],
) -> Stamp | None:
    """Choose among the batch's records that have not been deleted."""
    try:
        offset = max(row.base_offset, partition.log_start)
        batches = await source.read(partition, offset, 0, at_least_one=True)
    except OffsetGoneError:
        return None
    if not batches:
        return None
    return await asyncio.to_thread(lambda: choose(_stamps(batches[0], offset)))


def _stamps(batch: memoryview, log_start: int) -> Iterator[Stamp]:
    for record in iter_records(batch):
        if record.offset >= log_start:
            yield Stamp(record.offset, record.timestamp)


def _first(stamps: Iterator[Stamp], timestamp: int) -> Stamp | None:
    return next((stamp for stamp in stamps if stamp.timestamp >= timestamp), None)


def _greatest(stamps: Iterator[Stamp]) -> Stamp | None:
    return max(stamps, key=lambda stamp: stamp.timestamp, default=None)
