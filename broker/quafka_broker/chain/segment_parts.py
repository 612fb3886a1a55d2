"""Parts: objects with the beginning of the segment that is appended to.

A takeover reads the chain's objects one by one, so their number is bounded: the content of many
small objects is written again as a part of the segment's files. A part replaces the parts before it
that are not larger. So a segment has few parts, and each byte is written a few times (the logarithm
of their number).
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from quafka_broker.wal.disk import File
from quafka_proto.chain_format import StoredFile, part_of
from quafka_proto.log_format import FILE_HEADER_SIZE, INDEX_ROW, INDEX_ROW_SIZE

_ROWS_PER_READ = 8_192
_POSITION = struct.Struct(">Q")
_POSITION_AT = INDEX_ROW.offset("position")


class SegmentPart(NamedTuple):
    """A range of a segment's log file, with the range of its index file for the same entries."""

    log: StoredFile
    rows: StoredFile

    @property
    def start(self) -> int:
        """The start of the range in the log file."""
        return _start(self.log)

    @property
    def end(self) -> int:
        """The end of the range in the log file."""
        return self.start + self.log.size


class SegmentParts(NamedTuple):
    """The adjacent parts of one segment, and the first chain object that is not in them."""

    parts: tuple[SegmentPart, ...] = ()
    next_seq: int = 0

    @property
    def end(self) -> int:
        """The end of the last part in the log file."""
        return self.parts[-1].end if self.parts else 0

    @property
    def files(self) -> list[StoredFile]:
        """The objects of the parts."""
        return [file for part in self.parts for file in part]


def merged(parts: Sequence[SegmentPart], end: int) -> tuple[tuple[SegmentPart, ...], int, int]:
    """The parts to keep, and the start of a new one up to `end`: in the log, and in the index."""
    kept = list(parts)
    start = kept[-1].end if kept else 0
    row = _end_row(kept)
    while kept and kept[-1].log.size <= end - start:
        start, row = kept[-1].start, _start(kept[-1].rows)
        kept.pop()
    return tuple(kept), start, row


def rows_below(index: File, start: int, position: int) -> int:
    """The end of the rows of the entries below a position, in the index of an appended segment.

    `start`: a position in the index, whose preceding rows are of such entries. Blocks.
    """
    at = max(start, FILE_HEADER_SIZE)
    while data := index.read(at, INDEX_ROW_SIZE * _ROWS_PER_READ):
        for offset in range(0, len(data) - INDEX_ROW_SIZE + 1, INDEX_ROW_SIZE):
            if _POSITION.unpack_from(data, offset + _POSITION_AT)[0] >= position:
                return at + offset
        at += len(data) - len(data) % INDEX_ROW_SIZE
        if len(data) < INDEX_ROW_SIZE:
            break
    return at


def parts_in(files: Iterable[StoredFile]) -> dict[int, tuple[SegmentPart, ...]]:
    """The parts in a list of files, in order, by segment."""
    named = {part_of(file.name): file for file in files if part_of(file.name) is not None}
    logs: dict[int, list[StoredFile]] = {}
    indexes: dict[int, list[StoredFile]] = {}
    for key in sorted(key for key in named if key is not None):
        stem, _, suffix = key[0].partition(".")
        found = logs if suffix == "log" else indexes
        found.setdefault(int(stem), []).append(named[key])
    return {n: tuple(map(SegmentPart, logs[n], indexes[n])) for n in logs.keys() & indexes.keys()}


def _start(file: StoredFile) -> int:
    found = part_of(file.name)
    assert found is not None, "it is a part"
    return found[1]


def _end_row(parts: Sequence[SegmentPart]) -> int:
    return _start(parts[-1].rows) + parts[-1].rows.size if parts else 0
