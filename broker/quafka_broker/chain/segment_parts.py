"""Parts: objects with the beginning of the segment that is appended to.

A takeover reads the chain's objects one by one, so their number is bounded: what many small ones
have is written again as a part of the segment's files. A part replaces those before it that are not
larger. So a segment has few parts, and each byte is written a few times (the logarithm of their
number).
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


class Part(NamedTuple):
    """A range of a segment's log file, and the same entries' range of its index file."""

    log: StoredFile
    rows: StoredFile

    @property
    def start(self) -> int:
        """Where it begins in the log file."""
        return _start(self.log)

    @property
    def end(self) -> int:
        """Where it ends there."""
        return self.start + self.log.size


class SegmentParts(NamedTuple):
    """The parts of one segment, adjacent, and the first chain object that is not in them."""

    parts: tuple[Part, ...] = ()
    next_seq: int = 0

    @property
    def end(self) -> int:
        """Where they end in the log file."""
        return self.parts[-1].end if self.parts else 0

    @property
    def files(self) -> list[StoredFile]:
        """Their objects."""
        return [file for part in self.parts for file in part]


def merged(parts: Sequence[Part], end: int) -> tuple[tuple[Part, ...], int, int]:
    """The parts to keep, and where a new one up to `end` begins: in the log, and in the index."""
    kept = list(parts)
    start = kept[-1].end if kept else 0
    row = _end_row(kept)
    while kept and kept[-1].log.size <= end - start:
        start, row = kept[-1].start, _start(kept[-1].rows)
        kept.pop()
    return tuple(kept), start, row


def rows_below(index: File, start: int, position: int) -> int:
    """Where the rows of the entries below a position end in the index of an appended segment.

    `start`: a position in the index; the rows before it are of such entries. Blocks.
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


def parts_in(files: Iterable[StoredFile]) -> dict[int, tuple[Part, ...]]:
    """The parts in a list of files, by segment, in order."""
    named = {part_of(file.name): file for file in files if part_of(file.name) is not None}
    logs: dict[int, list[StoredFile]] = {}
    indexes: dict[int, list[StoredFile]] = {}
    for key in sorted(key for key in named if key is not None):
        stem, _, suffix = key[0].partition(".")
        found = logs if suffix == "log" else indexes
        found.setdefault(int(stem), []).append(named[key])
    return {n: tuple(map(Part, logs[n], indexes[n])) for n in logs.keys() & indexes.keys()}


def _start(file: StoredFile) -> int:
    found = part_of(file.name)
    assert found is not None, "it is a part"
    return found[1]


def _end_row(parts: Sequence[Part]) -> int:
    return _start(parts[-1].rows) + parts[-1].rows.size if parts else 0
