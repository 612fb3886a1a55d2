"""Reads index files that may be cut short, damaged or of another log."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import suppress

from quafka_broker.partitions.gaps import Gaps, Range
from quafka_broker.partitions.partition import PartitionId, partition_of
from quafka_broker.wal.disk import Disk, File
from quafka_broker.wal.scan import Bad, header_at
from quafka_broker.wal.segment import ROWS_PER_SAMPLE, Segment, SegmentState, index_name
from quafka_proto.errors import Malformed
from quafka_proto.log_format import (
    FILE_HEADER_SIZE,
    INDEX_MAGIC,
    INDEX_ROW_SIZE,
    REWRITTEN,
    ROW_DAMAGED,
    FileHeader,
    IndexRow,
    check_file_header,
    decode_row,
)

log = logging.getLogger("quafka.broker.recovery")

_ROWS_PER_READ = 4096


def open_index(disk: Disk, number: int, header: FileHeader) -> File | None:
    """Open a segment's index file; None if it must be rebuilt."""
    name = index_name(number)
    reason = "it is missing"
    if disk.exists(name):
        index = disk.open(name)
        try:
            if check_file_header(index.read(0, FILE_HEADER_SIZE), INDEX_MAGIC, number) == header:
                return index
            reason = "it belongs to another log file"
        except Malformed as e:
            reason = str(e)
        index.close()
    log.warning("rebuilding %s: %s", name, reason)
    return None


def good_rows(data: bytes, within: Bad | None = None) -> list[IndexRow]:
    """The undamaged rows in an index's bytes; only those `within` a damaged piece of the log."""
    rows: list[IndexRow] = []
    for offset in range(0, len(data) - INDEX_ROW_SIZE + 1, INDEX_ROW_SIZE):
        try:
            row = decode_row(data, offset)
        except Malformed:
            continue
        if within is None or within.start <= row.position < row.end <= within.end:
            rows.append(row)
    return rows


def rows_while_good(segment: Segment) -> Iterator[IndexRow]:
    """The rows after those that the segment knows, up to the first damaged one."""
    at = segment.index_end
    while data := segment.index.read(at, INDEX_ROW_SIZE * _ROWS_PER_READ):
        for offset in range(0, len(data), INDEX_ROW_SIZE):
            try:
                row = decode_row(data, offset)
            except Malformed:
                return
            yield row
        at += len(data)


def contiguous_rows(segment: Segment, durable: int) -> Iterator[IndexRow]:
    """The rows after those that the segment knows, while they are good, contiguous and durable."""
    position = segment.end
    for row in rows_while_good(segment):
        if row.position != position or row.end > durable or row.flags & ROW_DAMAGED:
            return
        yield row
        position = row.end


def present_offsets(segment: Segment) -> dict[PartitionId, Gaps]:
    """The offsets of the entries that the segment has, by partition."""
    found: dict[PartitionId, list[Range]] = {}
    for start in range(0, segment.entries, ROWS_PER_SAMPLE):
        rows = segment.rows(start, lambda file, at, size: file.read(at, size))
        for number in range(rows.start, rows.end):
            row = rows.row(number)
            end = row.base_offset + row.record_count
            found.setdefault(partition_of(row), []).append((row.base_offset, end))
    return {partition: Gaps(ranges) for partition, ranges in found.items()}


def covers_log(segment: Segment, size: int) -> bool:
    """Whether the index of a rewritten segment has a row for every byte of a log of `size`."""
    covered, next_id = FILE_HEADER_SIZE, 0
    for row in rows_while_good(segment):
        if row.global_id < next_id or row.flags & ROW_DAMAGED:
            return False
        covered += row.end - row.position
        next_id = row.global_id + row.record_count
    return covered == size


def last_indexed_end(segment: Segment) -> int:
    """The end of the last indexed entry of an appended segment."""
    if segment.kind == REWRITTEN:
        return 0
    return next((row.end for row in _rows_from_end(segment)), 0)


def greatest_indexed_end(segment: Segment) -> int:
    """The end of the last entry of a rewritten segment, according to its index."""
    return max((row.end for row in _rows_from_end(segment)), default=0)


def last_durable_position(segment: Segment, size: int) -> int:
    """The durable position in the header of the last entry that both index and log have."""
    for row in _rows_from_end(segment):
        try:
            entry = header_at(segment.log, segment.salt, row.position)
        except Malformed:
            continue
        return min(entry.durable_position, size)
    return FILE_HEADER_SIZE


def reaches(state: SegmentState, size: int, index: File | None) -> bool:
    """Whether a segment's files are at least as long as in a checkpoint."""
    if index is None or size < state.end:
        return False
    return index.size() >= FILE_HEADER_SIZE + INDEX_ROW_SIZE * state.entries


def _rows_from_end(segment: Segment) -> Iterator[IndexRow]:
    """The good rows of an index, last first."""
    at = segment.index.size() - INDEX_ROW_SIZE
    at -= (at - FILE_HEADER_SIZE) % INDEX_ROW_SIZE
    while at >= FILE_HEADER_SIZE:
        with suppress(Malformed):
            yield decode_row(segment.index.read(at, INDEX_ROW_SIZE))
        at -= INDEX_ROW_SIZE
