"""Reads and verifies the entries of a sealed segment in slices that fit into memory."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Sequence

from quafka_broker.wal.disk import File
from quafka_broker.wal.segment import Segment
from quafka_proto.errors import Malformed
from quafka_proto.log_format import (
    FILE_HEADER_SIZE,
    INDEX_ROW_SIZE,
    IndexRow,
    check_entry,
    decode_row,
)

ROWS_PER_STEP = 128
_SLICE_BYTES = 16 << 20
_SLICE_ROWS = 8_192
_READ_BYTES = 256 << 10
_GAP_BYTES = 16 << 10  # a gap of this size is cheaper to read than to skip

Steps = Iterator[int]
"""Work in small steps; each yields the bytes that it read or wrote, for pacing by the caller."""

Entries = dict[int, tuple[IndexRow, memoryview]]
"""The row and the whole entry, by row number."""


class SegmentEntries:
    """The entries of one segment, by row number; `lengths` has their sizes."""

    def __init__(self, segment: Segment, lengths: array[int]) -> None:
        self._segment = segment
        self._lengths = lengths

    def slices(self, numbers: Iterable[int]) -> Iterator[list[int]]:
        """Row numbers in the same order, in slices that fit into memory."""
        some: list[int] = []
        size = 0
        for number in numbers:
            some.append(number)
            size += self._lengths[number]
            if size >= _SLICE_BYTES or len(some) >= _SLICE_ROWS:
                yield some
                some, size = [], 0
        if some:
            yield some

    def read(self, numbers: Iterable[int], entries: Entries) -> Steps:
        """Read and verify the entries with these row numbers into `entries`.

        Raises:
            OSError, Malformed: an entry cannot be read or verified.
        """
        rows: list[tuple[int, IndexRow]] = []
        yield from self._read_rows(sorted(numbers), rows)
        rows.sort(key=lambda item: item[1].position)
        yield from self._read(rows, entries)

    def _read_rows(self, numbers: Sequence[int], found: list[tuple[int, IndexRow]]) -> Steps:
        """Read the rows with these numbers."""
        index = self._segment.index
        block, data = -1, b""
        for number in numbers:
            if number // ROWS_PER_STEP != block:
                block = number // ROWS_PER_STEP
                start = FILE_HEADER_SIZE + INDEX_ROW_SIZE * block * ROWS_PER_STEP
                data = index.read(start, INDEX_ROW_SIZE * ROWS_PER_STEP)
                yield len(data)
            row = decode_row(data, INDEX_ROW_SIZE * (number % ROWS_PER_STEP))
            found.append((number, row))

    def _read(
        self,
        rows: Sequence[tuple[int, IndexRow]],
        entries: Entries,
    ) -> Steps:
        """Read and verify entries; adjacent ones are read with one call."""
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


def _neighbours(rows: Sequence[tuple[int, IndexRow]]) -> Iterator[list[tuple[int, IndexRow]]]:
    """Group rows, which are in the order of positions, into pieces that are read with one call."""
    some: list[tuple[int, IndexRow]] = []
    for item in rows:
        row = item[1]
        far = some and row.position > some[-1][1].end + _GAP_BYTES
        much = some and row.end > some[0][1].position + _READ_BYTES
        if far or much or len(some) == ROWS_PER_STEP:
            yield some
            some = []
        some.append(item)
    if some:
        yield some


def index_rows(index: File, count: int) -> Iterator[tuple[int, IndexRow]]:
    """All rows of an index file, with their numbers."""
    for start in range(0, count, ROWS_PER_STEP):
        some = min(ROWS_PER_STEP, count - start)
        data = index.read(FILE_HEADER_SIZE + INDEX_ROW_SIZE * start, INDEX_ROW_SIZE * some)
        for number in range(some):
            yield start + number, decode_row(data, INDEX_ROW_SIZE * number)
