"""Reads one org's entries of a pinned segment for a remote node.

A segment's files have the entries of every org. Only one org's index rows and entries leave the
broker here, with a digest by which the next snapshot recognizes the segment.
"""

from __future__ import annotations

from collections.abc import Iterator

from quafka_broker.snapshots.cut_files import CutFiles, tail_of
from quafka_mesh_ops.ops.snapshots import ReadOrgPinned, ReadOrgPinnedResp
from quafka_proto.log_format import (
    ENTRY_HEADER_SIZE,
    FILE_HEADER_SIZE,
    INDEX_ROW,
    INDEX_ROW_SIZE,
    decode_row,
)

ROWS_AT_ONCE = 8_192
"""The maximum number of rows that one answer scans: some 10 ms of a thread."""
_ORG = INDEX_ROW.part_of_each("org_id")
_GAP_BYTES = 16 << 10  # cheaper to read than to skip
_RUN_BYTES = 1 << 20


class _Range:
    """A range of bytes of an entry."""

    __slots__ = ("at", "size")

    def __init__(self, at: int, size: int) -> None:
        self.at = at
        self.size = size


def read_org(files: CutFiles, org: int, op: ReadOrgPinned) -> ReadOrgPinnedResp:
    """Answer the op. Blocks.

    Raises:
        OSError: the files do not have these rows, or cannot be read.
        Malformed: a row of the org is damaged.
    """
    tail = tail_of(files, op.segment, op.first_row) if op.first_row else b""
    end = min(op.end_row, op.first_row + ROWS_AT_ONCE)
    if op.size == 0 or end <= op.first_row:
        return ReadOrgPinnedResp(op.first_row, op.skip, b"", b"", tail)
    at, count = FILE_HEADER_SIZE + INDEX_ROW_SIZE * op.first_row, end - op.first_row
    data = files.index(op.segment, at, INDEX_ROW_SIZE * count)
    rows: list[bytes] = []
    ranges: list[_Range] = []
    room, skip, next_row, next_skip = op.size, op.skip, end, 0
    for number, (owner,) in enumerate(_ORG.iter_unpack(data)):
        if owner != org:
            continue
        if not room:
            next_row = op.first_row + number
            break
        place = INDEX_ROW_SIZE * number
        row = decode_row(data, place)
        size = ENTRY_HEADER_SIZE + row.length
        if not skip:
            rows.append(data[place : place + INDEX_ROW_SIZE])
        some = min(room, max(0, size - skip))
        ranges.append(_Range(row.position + skip, some))
        room -= some
        if skip + some < size:
            next_row, next_skip = op.first_row + number, skip + some
            break
        skip = 0
    entries = b"".join(_read(files, op.segment, ranges))
    return ReadOrgPinnedResp(next_row, next_skip, b"".join(rows), entries, tail)


def _read(files: CutFiles, segment: int, ranges: list[_Range]) -> Iterator[bytes]:
    """Read the bytes of the ranges in their order; ranges close together are read at once."""
    run: list[_Range] = []
    for range_ in ranges:
        if run and not _near(run, range_):
            yield from _read_run(files, segment, run)
            run = []
        run.append(range_)
    if run:
        yield from _read_run(files, segment, run)


def _near(run: list[_Range], range_: _Range) -> bool:
    first, last = run[0], run[-1]
    gap = range_.at - last.at - last.size
    return 0 <= gap <= _GAP_BYTES and range_.at + range_.size - first.at <= _RUN_BYTES


def _read_run(files: CutFiles, segment: int, run: list[_Range]) -> Iterator[bytes]:
    start, end = run[0].at, run[-1].at + run[-1].size
    data = files.log(segment, start, end - start) if end > start else b""
    for range_ in run:
        yield data[range_.at - start : range_.at - start + range_.size]
