"""Writes a snapshot's pieces as the files of a log: `N.log` and `N.oidx` in a folder.

Raw pieces yield the original bytes of the segment. One org's pieces, or its entries in raw pieces,
yield a rewritten segment: the original entries, and index rows with their new positions.

Damage is reported and copied, with zeros for missing bytes: a log opens around damage.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import BinaryIO

from quafka_broker.snapshots.cut_files import PinnedFiles
from quafka_broker.snapshots.repack import Repack
from quafka_broker.wal.cut import SegmentCut
from quafka_broker.wal.disk import RealDisk
from quafka_broker.wal.scan import scan
from quafka_broker.wal.segment import index_name, log_name
from quafka_loop import file_modes
from quafka_objects.errors import ObjectNotFoundError
from quafka_objects.store import ObjectStore
from quafka_proto.errors import Malformed
from quafka_proto.log_format import (
    APPENDED,
    FILE_HEADER_SIZE,
    INDEX_MAGIC,
    INDEX_ROW_SIZE,
    LOG_MAGIC,
    REWRITTEN,
    IndexRow,
    check_file_header,
    decode_row,
    encode_file_header,
    encode_row,
)
from quafka_proto.snapshot_format import SegmentPiece

RAW = "raw"
"""A folder for raw segments from which one org's entries are extracted."""
_READ_BYTES = 8 << 20
_ROWS_PER_READ = _READ_BYTES // INDEX_ROW_SIZE


class RestoredFiles:
    """Writes segments to a folder, one after the other; all methods block.

    Missing or unreadable bytes are added to `faults`; `copied` is called with byte counts.

    All methods raise OSError if the folder cannot be written or the store fails.
    """

    def __init__(
        self, store: ObjectStore, folder: Path, faults: list[str], copied: Callable[[int], None]
    ) -> None:
        self._store = store
        self._folder = folder
        self._faults = faults
        self._copied = copied

    def write_raw(self, pieces: list[SegmentPiece]) -> SegmentPiece:
        """Write a segment from its raw pieces, in the order of their positions."""
        return self._raw(self._folder, pieces)

    def write_merged(self, pieces: list[SegmentPiece]) -> SegmentPiece:
        """Write a segment from one org's pieces, each of which is a separate log file."""
        number, salt = pieces[0].number, pieces[0].salt
        end, rows = FILE_HEADER_SIZE, 0
        with (
            _new(self._folder / log_name(number)) as log,
            _new(self._folder / index_name(number)) as index,
        ):
            log.write(encode_file_header(LOG_MAGIC, number, salt, REWRITTEN))
            index.write(encode_file_header(INDEX_MAGIC, number, salt, REWRITTEN))
            for piece in pieces:
                size = piece.length - FILE_HEADER_SIZE
                log.seek(end)
                self._copy(piece.log, piece.log_offset + FILE_HEADER_SIZE, size, log)
                for row in self._rows(piece):
                    position = row.position + end - FILE_HEADER_SIZE
                    index.write(encode_row(row._replace(position=position)))
                    rows += 1
                end += size
            log.truncate(end)
        return _local(number, salt, end, rows)

    def write_org(self, pieces: list[SegmentPiece], org: int) -> SegmentPiece | None:
        """Write one org's entries of a segment's raw pieces; None if the org has none."""
        raw = self._folder / RAW
        file_modes.make_folder(raw)
        segment = self._raw(raw, pieces)
        number, salt = segment.number, segment.salt
        with (raw / index_name(number)).open("rb") as index:
            kind = check_file_header(index.read(FILE_HEADER_SIZE), INDEX_MAGIC, number).kind
        cut = SegmentCut(number, salt, kind, segment.length, segment.rows, sealed=True)
        found = self._repack(PinnedFiles(raw), cut, org)
        if not found.is_empty:
            with _new(self._folder / log_name(number)) as log:
                log.writelines(found.log())
            with _new(self._folder / index_name(number)) as index:
                index.write(encode_file_header(INDEX_MAGIC, number, salt, REWRITTEN))
                index.writelines(found.index())
        shutil.rmtree(raw)
        return None if found.is_empty else _local(number, salt, found.size, found.rows)

    def _repack(self, raw: PinnedFiles, cut: SegmentCut, org: int) -> Repack:
        try:
            return Repack(raw, cut, org, 0)
        except (Malformed, OSError) as e:  # the index is damaged, or cut short
            self._faults.append(f"segment {cut.number}: {e}")
        rows = _rebuild_index(self._folder / RAW, cut)
        return Repack(raw, cut._replace(rows=rows), org, 0)

    def _raw(self, folder: Path, pieces: list[SegmentPiece]) -> SegmentPiece:
        number, salt = pieces[0].number, pieces[0].salt
        end = max(piece.position + piece.length for piece in pieces)
        with _new(folder / log_name(number)) as log:
            for piece in pieces:
                log.seek(piece.position)
                self._copy(piece.log, piece.log_offset, piece.length, log)
            log.truncate(end)
        with _new(folder / index_name(number)) as index:
            kind = self._kind(folder / log_name(number), pieces)
            index.write(encode_file_header(INDEX_MAGIC, number, salt, kind))
            for piece in pieces:
                size = INDEX_ROW_SIZE * piece.rows
                self._copy(piece.index, piece.index_offset, size, index)
                # A piece with missing bytes ends at a whole row, so that the next rows are aligned.
                index.seek(-((index.tell() - FILE_HEADER_SIZE) % INDEX_ROW_SIZE), os.SEEK_END)
                index.truncate()
        return _local(number, salt, end, sum(piece.rows for piece in pieces))

    # --- bytes --------------------------------------------------------------------------------

    def _copy(self, path: str, at: int, size: int, out: BinaryIO) -> None:
        """Copy a range of a file of DEST; missing bytes are faults."""
        end = at + size
        while at < end:
            data = self._read(path, at, min(_READ_BYTES, end - at))
            if not data:
                break
            out.write(data)
            at += len(data)
            self._copied(len(data))
        if at < end:
            self._faults.append(f"{path} lacks {end - at} bytes at {at}")

    def _rows(self, piece: SegmentPiece) -> Iterator[IndexRow]:
        """A piece's index rows up to the first damaged one; the log can restore the rest."""
        for first in range(0, piece.rows, _ROWS_PER_READ):
            count = min(_ROWS_PER_READ, piece.rows - first)
            at = piece.index_offset + INDEX_ROW_SIZE * first
            data = self._read(piece.index, at, INDEX_ROW_SIZE * count)
            self._copied(len(data))
            try:
                for number in range(count):
                    yield decode_row(data, INDEX_ROW_SIZE * number)
            except Malformed as e:
                self._faults.append(f"{piece.index}: {e}")
                return

    def _read(self, path: str, at: int, size: int) -> bytes:
        try:
            return self._store.read(path, at, size)
        except ObjectNotFoundError:
            return b""

    def _kind(self, log: Path, pieces: list[SegmentPiece]) -> int:
        """The kind of a segment by its header or, if that is damaged, by the order of its rows."""
        try:
            with log.open("rb") as file:
                header = file.read(FILE_HEADER_SIZE)
            return check_file_header(header, LOG_MAGIC, pieces[0].number).kind
        except Malformed as e:
            self._faults.append(f"segment {pieces[0].number}: {e}")
        rows = pairwise(row for piece in pieces for row in self._rows(piece))
        return REWRITTEN if any(a.position > b.position for a, b in rows) else APPENDED


@contextmanager
def _new(path: Path) -> Generator[BinaryIO]:
    """A new file, whose content, but not its name, is durable at the end of the block."""
    with file_modes.create_file(path) as file:
        yield file
        file.flush()
        os.fsync(file.fileno())


def _local(number: int, salt: int, length: int, rows: int) -> SegmentPiece:
    """A segment's files as one piece without zones."""
    log, index = log_name(number), index_name(number)
    return SegmentPiece(number, salt, 0, length, log, 0, index, FILE_HEADER_SIZE, rows, "")


def _rebuild_index(folder: Path, segment: SegmentCut) -> int:
    """Rebuild a segment's index from the whole entries in its log; returns their number."""
    file = RealDisk(folder).open(log_name(segment.number))
    try:
        found = scan(file, segment.salt, FILE_HEADER_SIZE, segment.end, None)
        rows = sorted(row for row in found if isinstance(row, IndexRow))
    finally:
        file.close()
    with (folder / index_name(segment.number)).open("r+b") as index:
        index.seek(FILE_HEADER_SIZE)
        index.writelines(map(encode_row, rows))
        index.truncate()
    return len(rows)
