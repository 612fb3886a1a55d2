"""Finds the entry with a virtual offset, and its successors."""

from __future__ import annotations

from collections.abc import Iterator

from quafka_broker.partitions.errors import CorruptError
from quafka_broker.partitions.gaps import NO_GAPS
from quafka_broker.partitions.partition import Partition, PartitionId
from quafka_broker.wal.contents import Contents
from quafka_broker.wal.segment import BadIndexError, Read, Rows, Segment
from quafka_proto.errors import Malformed
from quafka_proto.log_format import (
    ENTRY_HEADER_SIZE,
    REWRITTEN,
    IndexRow,
    check_entry_header,
    row_of,
)
from quafka_proto.records import BATCH_HEADER_SIZE

_READ_AHEAD = 128 << 10
_HEAD_SIZE = ENTRY_HEADER_SIZE + BATCH_HEADER_SIZE


def entries_from(
    contents: Contents, partition: Partition, offset: int, how: Read
) -> Iterator[tuple[Segment, IndexRow]]:
    """The entry with a readable offset, and the partition's entries after it.

    The iteration skips gaps, and ends before the first offset that is lost to damage.

    Raises:
        CorruptError: `offset` itself is lost.
        Malformed, OSError: the index cannot be read.
        OffsetGoneError: the log start is above `offset`.
    """
    offset = partition.gaps.end_of(offset)
    lost = contents.quarantine.first_lost(partition.id, offset)
    if lost == offset:
        raise CorruptError(f"offset {offset} is lost to damage")
    block: Rows | None = None
    last: IndexRow | None = None
    ahead = _ReadAhead(how)
    number = 0
    while offset < (partition.high_watermark if lost is None else lost):
        number += 1
        if block is not None and block.segment.kind == REWRITTEN:
            row = ahead.row_at(block.segment, last.end) if last is not None else None
            row = row if row is not None and _holds(row, partition.id, offset) else None
        else:
            row = _row_if_next(block, number, partition.id, offset)
        if row is None or block is None:
            block, number, row = _look_up(contents, partition, offset, block, how)
        yield block.segment, row
        last = row
        offset = row.base_offset + row.record_count
        if partition.gaps is not NO_GAPS:
            offset = partition.gaps.end_of(offset)


def _look_up(
    contents: Contents, partition: Partition, offset: int, block: Rows | None, how: Read
) -> tuple[Rows, int, IndexRow]:
    while True:
        global_id = partition.global_id_at(offset)
        segment = contents.segment_of(global_id)
        if segment is None:
            raise Malformed(f"no segment holds the record {global_id}")
        rows, number = segment.find(global_id, how, block)
        row = rows.row(number)
        # The found row may belong to another partition, with an offset that happens to fit.
        if row.global_id <= global_id < row.global_id + row.record_count:
            return rows, number, row
        ahead = partition.gaps.end_of(offset)
        if ahead == offset:
            raise BadIndexError(segment, f"it lacks the record {global_id}")
        offset = ahead  # compaction has removed the batch during this lookup in a thread


def _row_if_next(
    block: Rows | None, number: int, partition: PartitionId, offset: int
) -> IndexRow | None:
    """Row `number` of the block if it has the offset, which saves a search."""
    if block is None or number >= block.end:
        return None
    row = block.row(number)
    return row if _holds(row, partition, offset) else None


class _ReadAhead:
    """Reads entry headers sequentially from the log file of a rewritten segment.

    A partition's entries are contiguous there, but their index rows are in the order of global ids:
    looking up each row would cost one scattered read per batch.
    """

    def __init__(self, how: Read) -> None:
        self._how = how
        self._segment: Segment | None = None
        self._start = 0
        self._data = memoryview(b"")

    def row_at(self, segment: Segment, position: int) -> IndexRow | None:
        """The row of the entry at a position; None without a complete header there."""
        at = position - self._start
        if segment is not self._segment or not 0 <= at <= len(self._data) - _HEAD_SIZE:
            size = min(_READ_AHEAD, segment.end - position)
            if size < _HEAD_SIZE:
                return None
            self._data = memoryview(self._how(segment.log, position, size))
            self._segment, self._start, at = segment, position, 0
        try:
            entry = check_entry_header(self._data, at, segment.salt)
        except Malformed:
            return None  # the caller falls back to the index
        return row_of(entry, position, self._data[at + ENTRY_HEADER_SIZE :])


def _holds(row: IndexRow, partition: PartitionId, offset: int) -> bool:
    return (
        row.base_offset == offset
        and row.topic_hash == partition.topic_hash
        and row.partition == partition.partition
        and row.org_id == partition.org_id
        and row.generation == partition.generation
    )
