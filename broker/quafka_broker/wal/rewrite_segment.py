"""Rewrites one sealed segment: drops dead entries, and groups the others by partition.

In an appended segment, the batches of a partition are scattered among those of other partitions. In
a rewritten one they are contiguous, in the order of their offsets: a catch-up reader reads
megabytes at a time instead of seeking from batch to batch. The space of dead entries is freed.

The new files get temporary names, are synced, and then take the names of the old ones: the index
first, then the log. Each has the segment's new salt in its header. So a crash leaves the old log,
the new log, or one of them with the other's index, which the next start rebuilds. A sealed file is
never changed: readers, and snapshots that link to it, keep its content.

Every entry is verified before it is copied. Compaction passes an edit, which drops more entries and
replaces others. Memory: 12 bytes for each entry of the segment, 13 more with an edit, and one slice
of entries.
"""

from __future__ import annotations

import os
from array import array
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import chain
from typing import Protocol

from quafka_broker.partitions.partition import PartitionId, partition_of
from quafka_broker.wal.disk import TEMPORARY, Buffer, Disk, File
from quafka_broker.wal.segment import Segment, index_name, log_name
from quafka_broker.wal.segment_entries import (
    ROWS_PER_STEP,
    Entries,
    SegmentEntries,
    Steps,
    index_rows,
)
from quafka_proto.log_format import (
    ENTRY_HEADER_SIZE,
    FILE_HEADER_SIZE,
    INDEX_MAGIC,
    INDEX_ROW_SIZE,
    LOG_MAGIC,
    REWRITTEN,
    FileHeader,
    IndexRow,
    encode_copied_header,
    encode_file_header,
)
from quafka_proto.records import read_header

_WRITE_BYTES = 256 << 10
_SYNC_BYTES = 8 << 20  # bounds a commit's wait for the disk

LogStart = Callable[[PartitionId], int | None]
"""A partition's log start; None if it does not exist. Called in another thread."""


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
        """The average bytes that a reader of one partition gets between two seeks."""
        return self.live_bytes / self.runs if self.runs else 0.0


def examine(segment: Segment, log_start: LogStart, found: Examined) -> Steps:
    """Read a sealed segment's index into `found`.

    Raises:
        OSError, Malformed: the index cannot be read.
    """
    last: IndexRow | None = None
    last_topic: PartitionId | None = None
    for number, row in index_rows(segment.index, segment.entries):
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
        if not number % ROWS_PER_STEP:
            yield INDEX_ROW_SIZE * ROWS_PER_STEP


class Edit(Protocol):
    """Replaces record batches during a rewrite. Called in another thread."""

    def edited(self, number: int, row: IndexRow, batch: memoryview) -> Buffer | None:
        """The batch that replaces that of a row, with the same bounds; None: it is unchanged."""
        ...


class SegmentRewrite:
    """One segment's new files, until they replace the old ones."""

    def __init__(
        self, disk: Disk, segment: Segment, contents: Examined, edit: Edit | None = None
    ) -> None:
        self._disk = disk
        self._edit = edit
        self._entries = SegmentEntries(segment, contents.lengths)
        self._changed = _ChangedRows(len(contents.lengths)) if edit is not None else None
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
        """Rename the new files to the names of the old ones, durably; returns the new segment.

        Raises:
            OSError: the old log is still in place and valid; its index may need a rebuild.
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
        present = set(self._disk.names())
        for name in self._names:
            if name + TEMPORARY in present:
                self._disk.remove(name + TEMPORARY)

    # --- entries ----------------------------------------------------------------------------

    def _copy_entries(self, log: File) -> Steps:
        position = FILE_HEADER_SIZE
        unsynced = 0
        live = self._contents.live.values()
        for numbers in self._entries.slices(chain.from_iterable(live)):
            entries: Entries = {}
            yield from self._entries.read(numbers, entries)
            pending: list[Buffer] = []
            size = 0
            for number in numbers:
                entry = self._entry(number, *entries.pop(number))
                pending += entry
                self._positions[number] = position
                position += len(entry[0]) + len(entry[1])
                size += len(entry[0]) + len(entry[1])
                if size < _WRITE_BYTES and len(pending) < 2 * ROWS_PER_STEP:
                    continue
                log.append(pending)
                yield size
                unsynced += size
                pending, size = [], 0
                if unsynced >= _SYNC_BYTES:
                    log.write_back()
                    unsynced = 0
            log.append(pending)
            unsynced += size
            yield size

    def _entry(self, number: int, row: IndexRow, data: memoryview) -> tuple[bytes, Buffer]:
        """The entry with its header under the new salt."""
        batch: Buffer = data[ENTRY_HEADER_SIZE:]
        if self._edit is not None and self._changed is not None:
            edited = self._edit.edited(number, row, data[ENTRY_HEADER_SIZE:])
            if edited is not None:
                batch = edited
                row = self._changed.add(number, row, batch)
        return encode_copied_header(row, batch, self._header.salt), batch

    def _copy_rows(self, new: Segment) -> Steps:
        """Copy the rows of live entries, in the order of global ids, with their new positions."""
        pending: list[IndexRow] = []
        for number, row in index_rows(self._segment.index, self._segment.entries):
            if self._positions[number]:
                if self._changed is not None:
                    row = self._changed.row(number, row)
                pending.append(row._replace(position=self._positions[number]))
            if len(pending) == ROWS_PER_STEP:
                new.write([], pending)
                new.add_rows(pending)
                yield 2 * INDEX_ROW_SIZE * ROWS_PER_STEP
                pending = []
        new.write([], pending)
        new.add_rows(pending)


class _ChangedRows:
    """The changes of an edit to the rows of entries: length and max timestamp."""

    def __init__(self, count: int) -> None:
        self._lengths = array("I", bytes(4 * count))  # 0: the entry is unchanged
        self._newest = array("q", bytes(8 * count))

    def add(self, number: int, row: IndexRow, batch: Buffer) -> IndexRow:
        """Add the row of an edited batch."""
        self._lengths[number] = len(batch)
        self._newest[number] = read_header(batch).max_timestamp
        return self.row(number, row)

    def row(self, number: int, row: IndexRow) -> IndexRow:
        """The new row in place of the old one."""
        if not self._lengths[number]:
            return row
        return row._replace(length=self._lengths[number], max_timestamp=self._newest[number])
