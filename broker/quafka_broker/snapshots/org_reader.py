"""One org's entries of a pinned segment, as the broker gives them to a node elsewhere.

A segment's files hold every org's entries. What leaves the broker here are index rows and entries
of one org, and a digest by which the next snapshot knows that the segment is still the same.
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
"""Rows that one answer looks at, at most: some 10 ms of a thread."""
_ORG = INDEX_ROW.part_of_each("org_id")
_GAP_BYTES = 16 << 10  # cheaper to read than to skip
_RUN_BYTES = 1 << 20


class _Piece:
    """A range of bytes of an entry."""

    __slots__ = ("at", "size")

    def __init__(self, at: int, size: int) -> None:
        self.at = at
        self.size = size


def read_org(source: CutFiles, org: int, op: ReadOrgPinned) -> ReadOrgPinnedResp:
    """Answer the op. Blocks.

    Raises:
        OSError: the files do not have these rows, or cannot be read.
        Malformed: a row of the org is damaged.
    """
    tail = tail_of(source, op.segment, op.first_row) if op.first_row else b""
    end = min(op.end_row, op.first_row + ROWS_AT_ONCE)
    if op.size == 0 or end <= op.first_row:
        return ReadOrgPinnedResp(op.first_row, op.skip, b"", b"", tail)
    at, count = FILE_HEADER_SIZE + INDEX_ROW_SIZE * op.first_row, end - op.first_row
    data = source.index(op.segment, at, INDEX_ROW_SIZE * count)
    rows: list[bytes] = []
    pieces: list[_Piece] = []
    room, skip, next_row, next_skip = op.size, op.skip, end, 0
    for number, (whose,) in enumerate(_ORG.iter_unpack(data)):
        if whose != org:
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
        pieces.append(_Piece(row.position + skip, some))
        room -= some
        if skip + some < size:
            next_row, next_skip = op.first_row + number, skip + some
            break
        skip = 0
    entries = b"".join(_read(source, op.segment, pieces))
    return ReadOrgPinnedResp(next_row, next_skip, b"".join(rows), entries, tail)


def _read(source: CutFiles, segment: int, pieces: list[_Piece]) -> Iterator[bytes]:
    """The pieces' bytes in their order; those that lie close together are read in one go."""
    run: list[_Piece] = []
    for piece in pieces:
        if run and not _near(run, piece):
            yield from _read_run(source, segment, run)
            run = []
        run.append(piece)
    if run:
        yield from _read_run(source, segment, run)


def _near(run: list[_Piece], piece: _Piece) -> bool:
    first, last = run[0], run[-1]
    gap = piece.at - last.at - last.size
    return 0 <= gap <= _GAP_BYTES and piece.at + piece.size - first.at <= _RUN_BYTES


def _read_run(source: CutFiles, segment: int, run: list[_Piece]) -> Iterator[bytes]:
    start, end = run[0].at, run[-1].at + run[-1].size
    data = source.log(segment, start, end - start) if end > start else b""
    for piece in run:
        yield data[piece.at - start : piece.at - start + piece.size]
