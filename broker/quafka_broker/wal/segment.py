"""One segment: a log file, and its index file.

The index is redundant: every row can be rebuilt from the log (`recovery`). The index is synced when
the segment is sealed and for checkpoints, not with each commit. A sample of ids, one for every 64
entries, is in memory: a lookup reads one block of rows.
"""

from __future__ import annotations

import os
import struct
from array import array
from bisect import bisect_right
from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import NamedTuple

from quafka_broker.wal.disk import Buffer, Disk, File
from quafka_proto.errors import Malformed
from quafka_proto.log_format import (
    APPENDED,
    FILE_HEADER_SIZE,
    INDEX_MAGIC,
    INDEX_ROW_SIZE,
    LOG_MAGIC,
    FileHeader,
    IndexRow,
    decode_row,
    encode_file_header,
    encode_rows,
)

ROWS_PER_SAMPLE = 64

_position = attrgetter("position")

Read = Callable[[File, int, int], bytes | bytearray]
"""A way to read a file, which waits for the device or fails instead."""


def log_name(number: int) -> str:
    """The log file's name."""
    return f"{number:012d}.log"


def index_name(number: int) -> str:
    """The index file's name."""
    return f"{number:012d}.oidx"


class BadIndexError(Malformed):
    """A segment's index is damaged. It can be rebuilt from the log."""

    def __init__(self, segment: Segment, reason: str) -> None:
        super().__init__(f"{index_name(segment.number)}: {reason}")
        self.segment = segment


class SegmentState(NamedTuple):
    """A segment's state in a checkpoint, with which its index need not be read.

    Attributes:
        end: the position after the last entry.
        next_id: the id after the last record's global id.
        sample: the global id of every 64th entry, 8 bytes each, big-endian.
    """

    number: int
    salt: int
    kind: int
    end: int
    entries: int
    next_id: int
    sample: bytes

    @property
    def first_id(self) -> int | None:
        """The first record's global id; None in an empty segment."""
        return int.from_bytes(self.sample[:8], "big") if self.sample else None


class Segment:
    """Entries, found by global id. `end` is the position after the last indexed entry."""

    def __init__(self, number: int, header: FileHeader, log: File, index: File) -> None:
        self.number = number
        self.salt = header.salt
        self.kind = header.kind
        self.log = log
        self.index = index
        self.end = FILE_HEADER_SIZE
        self.entries = 0
        self.next_id = 0
        self.unverified_to = FILE_HEADER_SIZE
        """Bytes below this position were written before this start, and not verified since."""
        self.orgs: set[int] = set()
        """The orgs that have entries at or above `unverified_to`."""
        self._sample = array("Q")
        self._state: SegmentState | None = None

    @classmethod
    def create(cls, disk: Disk, number: int) -> Segment:
        """Create a segment; its files and their headers are durable on return.

        Raises:
            OSError: the files could not be made; none of them is left.
        """
        header = FileHeader(int.from_bytes(os.urandom(4), "big"), APPENDED)
        log = index = None
        try:
            log = disk.create(log_name(number))
            index = disk.create(index_name(number))
            log.append([encode_file_header(LOG_MAGIC, number, *header)])
            index.append([encode_file_header(INDEX_MAGIC, number, *header)])
            log.sync()
            index.sync()
            disk.sync_names()
        except OSError:
            for file, name in ((log, log_name(number)), (index, index_name(number))):
                if file is not None:
                    file.close()
                    disk.remove(name)
            raise
        return cls(number, header, log, index)

    def state(self) -> SegmentState:
        """The state for a checkpoint."""
        if self._state is None or self._state.entries != self.entries:
            sample = struct.pack(f">{len(self._sample)}Q", *self._sample)
            self._state = SegmentState(
                self.number, self.salt, self.kind, self.end, self.entries, self.next_id, sample
            )
        return self._state

    def load_state(self, state: SegmentState) -> None:
        """Load the content of the files from a checkpoint."""
        self.end, self.entries, self.next_id = state.end, state.entries, state.next_id
        self._state = state
        self._sample = array("Q", struct.unpack(f">{len(state.sample) // 8}Q", state.sample))

    def reset(self) -> None:
        """Assume empty files."""
        self.end, self.entries, self.next_id = FILE_HEADER_SIZE, 0, 0
        self._sample = array("Q")

    @property
    def first_id(self) -> int | None:
        """The first record's global id; None while the segment is empty."""
        return self._sample[0] if self._sample else None

    @property
    def is_verified(self) -> bool:
        """Whether this process has verified or written every byte of the log file."""
        return self.unverified_to <= FILE_HEADER_SIZE

    @property
    def index_end(self) -> int:
        """The size of the index file."""
        return FILE_HEADER_SIZE + INDEX_ROW_SIZE * self.entries

    def write(self, buffers: Sequence[Buffer], rows: Sequence[IndexRow]) -> None:
        """Append entries and their rows; `add_rows` makes them findable. Blocks.

        Raises:
            OSError: the files may have a part of them; `truncate` undoes that.
        """
        self.log.append(buffers)
        self.index.append([encode_rows(rows)])

    def add_rows(self, rows: Sequence[IndexRow]) -> None:
        """Make written entries findable."""
        if not rows:
            return
        first = -self.entries % ROWS_PER_SAMPLE
        self._sample.extend([row.global_id for row in rows[first::ROWS_PER_SAMPLE]])
        self.end = max(self.end, max(rows, key=_position).end)
        self.orgs.update({row.org_id for row in rows})
        self.next_id = rows[-1].global_id + rows[-1].record_count
        self.entries += len(rows)

    def truncate(self, end: int, entries: int) -> None:
        """Truncate the log file to the position `end` and the index to so many entries, durably.

        Blocks.

        Otherwise a row of the lost write, if it came back after a power cut, could pass for the row
        of the entry that is written in its place.
        """
        self.log.truncate(end)
        self.index.truncate(FILE_HEADER_SIZE + INDEX_ROW_SIZE * entries)
        self.sync()

    def find(self, global_id: int, read: Read, block: Rows | None = None) -> tuple[Rows, int]:
        """The block of rows that would have a record, and the row's number.

        `block` is an earlier result, which is not read again if it is the right one.

        Raises:
            BadIndexError: the index file is cut short, or a row is damaged.
            OSError: the index file cannot be read.
        """
        start = max(0, bisect_right(self._sample, global_id) - 1) * ROWS_PER_SAMPLE
        end = min(start + ROWS_PER_SAMPLE, self.entries)
        known = block is not None and (block.segment, block.start, block.end) == (self, start, end)
        rows = block if block is not None and known else self.rows(start, read)
        low, high = rows.start, rows.end
        while high - low > 1:
            middle = (low + high) // 2
            if rows.row(middle).global_id <= global_id:
                low = middle
            else:
                high = middle
        return rows, low

    def rows(self, start: int, read: Read) -> Rows:
        """Read rows from `start` on, at most 64.

        Raises:
            BadIndexError: the index file is cut short.
            OSError: the index file cannot be read.
        """
        count = min(ROWS_PER_SAMPLE, self.entries - start)
        size = INDEX_ROW_SIZE * count
        data = read(self.index, FILE_HEADER_SIZE + INDEX_ROW_SIZE * start, size)
        if len(data) < size:
            raise BadIndexError(self, "it is cut short")
        return Rows(self, start, start + count, data)

    def sync(self) -> None:
        """Make log and index durable. Blocks."""
        self.log.sync()
        self.index.sync()

    def close(self) -> None:
        """Release the files."""
        self.log.close()
        self.index.close()


class Rows(NamedTuple):
    """The rows [start, end) of a segment's index; each is decoded on access."""

    segment: Segment
    start: int
    end: int
    data: bytes | bytearray

    def row(self, number: int) -> IndexRow:
        """The row of that number in the segment.

        Raises:
            BadIndexError: the row is damaged.
        """
        try:
            return decode_row(self.data, INDEX_ROW_SIZE * (number - self.start))
        except Malformed as e:
            raise BadIndexError(self.segment, str(e)) from e
