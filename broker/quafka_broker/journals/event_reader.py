"""Reads the events in internal topics, and reports the gaps that damage has left."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import NamedTuple

from quafka_broker.journals import event_batches
from quafka_broker.partitions.errors import StorageError
from quafka_broker.partitions.partition import Partition, PartitionId
from quafka_broker.wal.log import Log
from quafka_proto.records import read_header

_READ_BYTES = 1 << 20


class Value(NamedTuple):
    """One record."""

    offset: int
    data: bytes


class Gap(NamedTuple):
    """Offsets [first, end) without a readable record.

    `settled`: a repair has put an empty batch there, or their segment was freed. Otherwise each
    start reads the offsets again, because a copy of the disk may undo the damage.
    """

    first: int
    end: int
    settled: bool


async def read_values(log: Log, id_: PartitionId, start: int) -> AsyncIterator[Value | Gap]:
    """Read every record from an offset on, in order, and every gap between records.

    Raises:
        StorageError: the operating system cannot read a file. This is not damage: the start fails
            and changes nothing.
    """
    partition = log.partitions.get(id_)
    if start < partition.log_start:
        yield Gap(start, partition.log_start, settled=True)
    offset = max(start, partition.log_start)
    while offset < partition.high_watermark:
        batches = await _batches(log, partition, offset)
        if not batches:
            end = await log.reader.next_readable(partition, offset)
            yield Gap(offset, end, settled=False)
            offset = end
        for batch in batches:
            header = read_header(batch)
            end = header.base_offset + header.last_offset_delta + 1
            if not header.record_count:
                yield Gap(offset, end, settled=True)
            for record in event_batches.records_of(batch):
                if record.offset >= offset:
                    yield Value(record.offset, record.value or b"")
            offset = end


async def verify(log: Log, id_: PartitionId, end: int) -> None:
    """Verify the events below an offset, which are also in the checkpoint.

    Damaged events are quarantined, and can be restated while the checkpoint's copy is whole.

    Raises:
        StorageError: as `read_values`.
    """
    partition = log.partitions.get(id_)
    offset = partition.log_start
    while offset < min(end, partition.high_watermark):
        batches = await _batches(log, partition, offset)
        if batches:
            last = read_header(batches[-1])
            offset = last.base_offset + last.last_offset_delta + 1
        else:
            offset = await log.reader.next_readable(partition, offset)


async def _batches(log: Log, partition: Partition, offset: int) -> list[memoryview]:
    """Read batches from an offset on; none if the first one is damaged."""
    try:
        return await log.reader.read(partition, offset, _READ_BYTES, at_least_one=True)
    except StorageError as e:
        if isinstance(e.__cause__, OSError):
            raise
        return []
