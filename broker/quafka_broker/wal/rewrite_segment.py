"""Rewriting one sealed segment: dead entries are dropped, the others are grouped by partition.

In an appended segment, the batches of a partition are scattered among those of other partitions. In
a rewritten one they are contiguous, in the order of their offsets: a catch-up reader reads
megabytes at a time instead of seeking from batch to batch. The space of dead entries is freed.

The new files get temporary names, are synced, and then take the names of the old ones: the index
first, then the log. Each has the segment's new salt in its header. So a crash leaves the old log,
the new log, or one of them with the other's index, which the next start rebuilds. A sealed file is
never changed: readers, and snapshots that link to it, keep their content.

Every entry is verified before it is copied. Memory: 12 bytes for each entry of the segment, and one
slice of entries.
"""

from __future__ import annotations

import os
from array import array
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from quafka_broker.partitions.partition import PartitionId, partition_of
from quafka_broker.wal.disk import TEMPORARY, Buffer, Disk, File
from quafka_broker.wal.segment import Segment, index_name, log_name
from quafka_proto.errors import Malformed
from quafka_proto.log_format import (
    ENTRY_HEADER_SIZE,
    FILE_HEADER_SIZE,
    INDEX_MAGIC,
    INDEX_ROW_SIZE,
    LOG_MAGIC,
    REWRITTEN,
    FileHeader,
    IndexRow,
    check_entry,
    decode_row,
    encode_copied_header,
    encode_file_header,
)

_ROWS_PER_STEP = 128
_SLICE_BYTES = 16 << 20
_SLICE_ROWS = 8_192
_READ_BYTES = 256 << 10
_GAP_BYTES = 16 << 10  # a gap of this size is cheaper to read than to skip
_WRITE_BYTES = 256 << 10
_SYNC_BYTES = 8 << 20  # bounds the wait of a commit for the disk

LogStart = Callable[[PartitionId], int | None]
"""A partition's log start; None if it does not exist. Called in another thread."""

Steps = Iterator[int]
"""Work in small steps; each yields the bytes that it read or wrote, so that the caller can pace."""


@dataclass(slots=True)
class Examined:
    """The live entries of a segment, according to its index.

    Attributes:
        lengths: bytes of each entry, by row number.
        live: row numbers of the live entries, in order, by partition.
        live_bytes: bytes of all live entries.
        runs: the number of contiguous runs of one partition's live entries in the log file.
    """

    lengths: array[int] = field(default_factory=lambda: array("I"))
    live: dict[PartitionId, array[int]] = field(default_factory=dict[PartitionId, "array[int]"])
    live_bytes: int = 0
    runs: int = 0

    @property
    def bytes_per_run(self) -> float:
        """The bytes that a reader of one partition gets between two seeks, on average."""
        return self.live_bytes / self.runs if self.runs else 0.0


def examine(segment: Segment, log_start: LogStart, found: Examined) -> Steps:
    """Read a sealed segment's index into `found`.

    Raises:
        OSError, Malformed: the index cannot be read.
    """
    last: IndexRow | None = None
    last_topic: PartitionId | None = None
    for number, row in _rows(segment.index, segment.entries):
        partition = partition_of(row)
        size = ENTRY_HEADER_SIZE + row.length
        found.lengths.append(size)
        start = log_start(partition)
        if start is not None and row.base_offset + row.record_count > start:
            if partition not in found.live:
                found.live[partition] = array("I")
            found.live[partition].append(number)
            found.live_bytes += size
            found.runs += last is None or partition != last_topic or row.position != last.end
            last, last_topic = row, partition
        if not number % _ROWS_PER_STEP:
            yield INDEX_ROW_SIZE * _ROWS_PER_STEP


class SegmentRewrite:
    """One segment's new files, until they take the place of the old ones."""

    def __init__(self, disk: Disk, segment: Segment, contents: Examined) -> None:
        self._disk = disk
        self._segment = segment
        self._contents = contents
        self._names = (log_name(segment.number), index_name(segment.number))
        self._header = FileHeader(int.from_bytes(os.urandom(4), "big"), REWRITTEN)
        self._positions = array("Q", bytes(8 * len(contents.lengths)))  # 0: the entry is dead
        self._new: Segment | None = None

    def copy(self) -> Iterator[int]:
        """Write and sync the new files, under temporary names.

        Raises:
            OSError, Malformed: an entry cannot be read, verified or written; `abandon` cleans up.
        """
        log, index = (self._disk.create(name + TEMPORARY) for name in self._names)
        number = self._segment.number
        self._new = Segment(number, self._header, log, index)
        log.append([encode_file_header(LOG_MAGIC, number, *self._header)])
        index.append([encode_file_header(INDEX_MAGIC, number, *self._header)])
        yield from self._copy_entries(log)
        yield from self._copy_rows(self._new)
        self._new.sync()

    def publish(self) -> Segment:
        """Give the new files the names of the old ones, durably; returns the new segment.

        Raises:
            OSError: the old log is still in place and good; its index may need a rebuild.
        """
        assert self._new is not None, "not copied"
        log, index = self._names
        self._disk.rename(index + TEMPORARY, index)
        self._disk.rename(log + TEMPORARY, log)
        self._disk.sync_names()
        return self._new

    def abandon(self) -> None:
        """Remove the files that `copy` has left."""
        if self._new is not None:
            self._new.close()
        for name in {name + TEMPORARY for name in self._names} & set(self._disk.names()):
            self._disk.remove(name)

    # --- entries ----------------------------------------------------------------------------

    def _copy_entries(self, log: File) -> Steps:
        position = FILE_HEADER_SIZE
        unsynced = 0
        for numbers in self._slices():
            rows: list[tuple[int, IndexRow]] = []
            for size in self._read_rows(sorted(numbers), rows):
                yield size
            rows.sort(key=lambda item: item[1].position)
            entries: dict[int, tuple[IndexRow, memoryview]] = {}
            for size in self._read(rows, entries):
                yield size
            pending: list[Buffer] = []
            size = 0
            for number in numbers:
                row, data = entries.pop(number)
                pending += self._entry(row, data)
                self._positions[number] = position
                position += len(data)
                size += len(data)
                if size < _WRITE_BYTES and len(pending) < 2 * _ROWS_PER_STEP:
                    continue
                log.append(pending)
                yield size
                unsynced += size
                pending, size = [], 0
                if unsynced >= _SYNC_BYTES:
                    log.sync()
                    unsynced = 0
            log.append(pending)
            unsynced += size
            yield size

    def _slices(self) -> Iterator[list[int]]:
        """Row numbers in the new order, in slices that fit into memory."""
        numbers: list[int] = []
        size = 0
        for live in self._contents.live.values():
            for number in live:
                numbers.append(number)
                size += self._contents.lengths[number]
                if size >= _SLICE_BYTES or len(numbers) >= _SLICE_ROWS:
                    yield numbers
                    numbers, size = [], 0
        if numbers:
            yield numbers

    def _read_rows(self, numbers: Sequence[int], found: list[tuple[int, IndexRow]]) -> Steps:
        """Read the rows with these numbers."""
        index = self._segment.index
        block, data = -1, b""
        for number in numbers:
            if number // _ROWS_PER_STEP != block:
                block = number // _ROWS_PER_STEP
                start = FILE_HEADER_SIZE + INDEX_ROW_SIZE * block * _ROWS_PER_STEP
                data = index.read(start, INDEX_ROW_SIZE * _ROWS_PER_STEP)
                yield len(data)
            row = decode_row(data, INDEX_ROW_SIZE * (number % _ROWS_PER_STEP))
            found.append((number, row))

    def _read(
        self,
        rows: Sequence[tuple[int, IndexRow]],
        entries: dict[int, tuple[IndexRow, memoryview]],
    ) -> Steps:
        """Read and verify entries; neighbours are read with one call."""
        for some in _neighbours(rows):
            start, end = some[0][1].position, some[-1][1].end
            data = memoryview(self._segment.log.read(start, end - start))
            for number, row in some:
                place = row.position - start
                entry = check_entry(data, place, self._segment.salt)
                if (entry.global_id, entry.base_offset) != (row.global_id, row.base_offset):
                    raise Malformed(f"row {number} belongs to another entry")
                entries[number] = row, data[place : place + entry.size]
            yield end - start

    def _entry(self, row: IndexRow, data: memoryview) -> tuple[Buffer, Buffer]:
        """The entry, with its header under the new salt."""
        batch = data[ENTRY_HEADER_SIZE:]
        return encode_copied_header(row, batch, self._header.salt), batch

    def _copy_rows(self, new: Segment) -> Steps:
        """Copy the rows of live entries, in the order of global ids, with their new positions."""
        pending: list[IndexRow] = []
        for number, row in _rows(self._segment.index, self._segment.entries):
            if self._positions[number]:
                pending.append(row._replace(position=self._positions[number]))
            if len(pending) == _ROWS_PER_STEP:
                new.write([], pending)
                new.add_rows(pending)
                yield 2 * INDEX_ROW_SIZE * _ROWS_PER_STEP
                pending = []
        new.write([], pending)
        new.add_rows(pending)


def _neighbours(rows: Sequence[tuple[int, IndexRow]]) -> Iterator[list[tuple[int, IndexRow]]]:
    """Group rows, which are in the order of positions, into pieces that are read at once."""
    some: list[tuple[int, IndexRow]] = []
    for item in rows:
        row = item[1]
        far = some and row.position > some[-1][1].end + _GAP_BYTES
        much = some and row.end > some[0][1].position + _READ_BYTES
        if far or much or len(some) == _ROWS_PER_STEP:
            yield some
            some = []
        some.append(item)
    if some:
        yield some


def _rows(index: File, count: int) -> Iterator[tuple[int, IndexRow]]:
    """All rows of an index file, with their numbers."""
    for start in range(0, count, _ROWS_PER_STEP):
        some = min(_ROWS_PER_STEP, count - start)
        data = index.read(FILE_HEADER_SIZE + INDEX_ROW_SIZE * start, INDEX_ROW_SIZE * some)
        for number in range(some):
            yield start + number, decode_row(data, INDEX_ROW_SIZE * number)
