"""Copies one org's entries of a range of a segment, byte for byte, to a separate log file.

The log interleaves the records of all orgs; analysts of one org get such a file.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator

from quafka_broker.snapshots.cut_files import CutFiles
from quafka_broker.wal.cut import SegmentCut
from quafka_proto.log_format import (
    ENTRY_HEADER_SIZE,
    FILE_HEADER_SIZE,
    INDEX_ROW_SIZE,
    LOG_MAGIC,
    REWRITTEN,
    decode_row,
    encode_file_header,
    encode_row,
)

_ROWS_PER_READ = 8192
_READ_BYTES = 1 << 20
_GAP_BYTES = 16 << 10  # cheaper to read than to skip


class Repack:
    """One org's entries, from files with those of all orgs. Memory: 12 bytes for each entry."""

    def __init__(self, files: CutFiles, segment: SegmentCut, org: int, first_row: int) -> None:
        """Read the index rows from `first_row` on. Raises OSError, Malformed."""
        self._files = files
        self._segment = segment
        self._org = org
        self._first_row = first_row
        self._places = array("Q")  # in the segment, in the order of the rows
        self._sizes = array("I")
        for rows in self._chunks():
            for at in range(0, len(rows), INDEX_ROW_SIZE):
                row = decode_row(rows, at)
                if row.org_id == self._org:
                    self._places.append(row.position)
                    self._sizes.append(ENTRY_HEADER_SIZE + row.length)

    @property
    def is_empty(self) -> bool:
        """Whether the org has no entries in the range."""
        return not self._places

    @property
    def expected_size(self) -> int:
        """Bytes of the log file."""
        return self.size

    @property
    def rows(self) -> int:
        """The number of entries."""
        return len(self._places)

    @property
    def size(self) -> int:
        """Bytes of the log file."""
        return FILE_HEADER_SIZE + sum(self._sizes)

    def log(self) -> Iterator[bytes]:
        """The log file: the entries in the order of the segment."""
        segment = self._segment
        yield encode_file_header(LOG_MAGIC, segment.number, segment.salt, REWRITTEN)
        group: list[int] = []
        for number in self._in_order():
            if group and not self._near(group, number):
                yield self._read(group)
                group = []
            group.append(number)
        if group:
            yield self._read(group)

    def index(self) -> Iterator[bytes]:
        """The index rows, read again, with the new positions."""
        places = array("Q", bytes(8 * len(self._places)))
        position = FILE_HEADER_SIZE
        for number in self._in_order():
            places[number] = position
            position += self._sizes[number]
        number = 0
        for rows in self._chunks():
            found: list[bytes] = []
            for at in range(0, len(rows), INDEX_ROW_SIZE):
                row = decode_row(rows, at)
                if row.org_id == self._org:
                    found.append(encode_row(row._replace(position=places[number])))
                    number += 1
            yield b"".join(found)

    def close(self) -> None:
        """Do nothing: no file is open."""

    def _chunks(self) -> Iterator[bytes]:
        """All index rows, in chunks that fit into memory."""
        row, end = self._first_row, self._segment.rows
        while row < end:
            some = min(_ROWS_PER_READ, end - row)
            at = FILE_HEADER_SIZE + INDEX_ROW_SIZE * row
            yield self._files.index(self._segment.number, at, INDEX_ROW_SIZE * some)
            row += some

    def _in_order(self) -> Iterable[int]:
        numbers = range(len(self._places))
        if self._segment.kind == REWRITTEN:
            return sorted(numbers, key=self._places.__getitem__)
        return numbers

    def _near(self, group: list[int], number: int) -> bool:
        first, last = group[0], group[-1]
        gap = self._places[number] - self._places[last] - self._sizes[last]
        end = self._places[number] + self._sizes[number]
        return gap <= _GAP_BYTES and end - self._places[first] <= _READ_BYTES

    def _read(self, group: list[int]) -> bytes:
        start = self._places[group[0]]
        size = self._places[group[-1]] + self._sizes[group[-1]] - start
        data = self._files.log(self._segment.number, start, size)
        if size == sum(self._sizes[number] for number in group):
            return data
        return b"".join(
            data[self._places[n] - start : self._places[n] - start + self._sizes[n]] for n in group
        )
