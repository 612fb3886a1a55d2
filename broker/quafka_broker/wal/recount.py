"""Recounts blocks of a partition's sparse index after batches of them were removed."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Iterator
from contextlib import suppress
from itertools import takewhile

from quafka_broker.partitions.errors import CorruptError, OffsetGoneError
from quafka_broker.partitions.gaps import Range
from quafka_broker.partitions.partition import Partition, PartitionId
from quafka_broker.partitions.sparse_index import BATCHES_PER_BLOCK, Block, Count
from quafka_broker.wal.contents import Contents
from quafka_broker.wal.lookup import entries_from
from quafka_broker.wal.runs import NotInMemoryError, from_disk, from_memory
from quafka_broker.wal.segment import Read, Segment
from quafka_proto.errors import Malformed
from quafka_proto.log_format import INDEX_ROW_SIZE, IndexRow
from quafka_proto.records import BATCH_HEADER_SIZE


async def recount(
    contents: Contents,
    segment: Segment,
    ids: Collection[PartitionId],
    paced: Callable[[Iterator[int]], Awaitable[None]],
) -> None:
    """Count the blocks of partitions in a segment, in its state before batches were removed."""
    for id_ in ids:
        partition = contents.partitions.get(id_)
        if partition is None or segment.first_id is None:
            continue
        counts: dict[int, Count] = {}
        offsets = partition.offsets_between(segment.first_id, segment.next_id)
        await paced(_count_all(contents, partition, offsets, counts))
        partition.batches.recounted(counts)
        last = partition.batches.block_of(partition.high_watermark - 1)
        if last is not None:  # it may grow while a thread counts
            with suppress(NotInMemoryError, CorruptError, OffsetGoneError, Malformed, OSError):
                counted = count(contents, partition, last, from_memory)
                partition.batches.recounted({last.start: counted})


def recount_now(contents: Contents, partition: Partition, start: int, end: int) -> None:
    """Count the blocks with offsets in [start, end), while there are no appends. Blocks."""
    counts: dict[int, Count] = {}
    for block in blocks_between(partition, start, end):
        with suppress(CorruptError, OffsetGoneError, Malformed, OSError):
            counts[block.start] = count(contents, partition, block, from_disk)
    partition.batches.recounted(counts)


def _count_all(
    contents: Contents, partition: Partition, offsets: Range, counts: dict[int, Count]
) -> Iterator[int]:
    """Count all blocks but the last one."""
    for block in blocks_between(partition, *offsets):
        if block.end < partition.batches.end:
            with suppress(CorruptError, OffsetGoneError, Malformed, OSError):
                counts[block.start] = count(contents, partition, block, from_disk)
        yield BATCHES_PER_BLOCK * INDEX_ROW_SIZE


def blocks_between(partition: Partition, start: int, end: int) -> Iterator[Block]:
    """The blocks with offsets in [start, end)."""
    block = partition.batches.block_of(start)
    while block is not None and block.start < end:
        yield block
        block = partition.batches.block_of(block.end)


def count(contents: Contents, partition: Partition, block: Block, how: Read) -> Count:
    """Count the batches of a block that the log has.

    Raises:
        CorruptError: a batch is lost to damage.
        Malformed, OSError: the index cannot be read.
        OffsetGoneError: the log start has moved into the block.
    """
    start = max(block.start, partition.log_start)

    def within(row: IndexRow) -> bool:
        return row.base_offset < block.end

    rows = (row for _, row in entries_from(contents, partition, start, how))
    found = list(takewhile(within, rows))
    times = (row.max_timestamp for row in found if row.length > BATCH_HEADER_SIZE)
    return Count(len(found), sum(row.length for row in found), max(times, default=-1))
