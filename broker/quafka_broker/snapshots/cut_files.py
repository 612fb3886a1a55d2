"""The files of a cut, held by a pin on this machine or read over the mesh."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol, runtime_checkable

from quafka_broker.snapshots.zone_cache import has_all_zones, zones_name
from quafka_broker.wal.cut import SegmentCut
from quafka_broker.wal.segment import index_name, log_name
from quafka_proto.log_format import CHECKED_SIZE, FILE_HEADER_SIZE, INDEX_ROW_SIZE, decode_row

_READ_BYTES = 1 << 20


class CutFiles(Protocol):
    """The files of the segments of one cut."""

    def log_path(self, number: int) -> Path | None:
        """The path of a segment's log file; None if it cannot be linked to."""
        ...

    def index_path(self, number: int) -> Path | None:
        """The path of a segment's index file; None if it cannot be linked to."""
        ...

    def log(self, number: int, at: int, size: int) -> bytes:
        """Bytes of a segment's log file. Raises OSError if some are missing."""
        ...

    def index(self, number: int, at: int, size: int) -> bytes:
        """Bytes of a segment's index file. Raises OSError if some are missing."""
        ...

    def zones(self, segment: SegmentCut) -> bytes | None:
        """The zones file of a sealed segment; None if there is none yet."""
        ...

    def zones_path(self, segment: SegmentCut) -> Path | None:
        """The path of that file; None if it cannot be linked to."""
        ...

    def log_chunks(self, number: int, at: int, size: int) -> Iterator[bytes]:
        """A range of a segment's log, in chunks that fit into memory. Raises OSError."""
        ...

    def tail(self, number: int, rows: int) -> bytes:
        """See `tail_of`."""
        ...


@runtime_checkable
class OrgCutFiles(CutFiles, Protocol):
    """Files of a remote broker that serves only one org's entries, not whole files."""

    def org_entries(self, segment: SegmentCut, first_row: int) -> OrgEntries:
        """The org's entries of a segment, from an index row on. Raises OSError, Malformed."""
        ...


class OrgEntries(Protocol):
    """One org's entries of a range of a segment, as a separate log file and index file.

    The log is read once, before the index; afterwards, `rows` and `size` are known.
    """

    @property
    def is_empty(self) -> bool:
        """Whether the org has no entries in the range."""
        ...

    @property
    def rows(self) -> int:
        """The number of entries."""
        ...

    @property
    def size(self) -> int:
        """Bytes of the log file."""
        ...

    @property
    def expected_size(self) -> int | None:
        """The size before the log is read; None if unknown."""
        ...

    def log(self) -> Iterator[bytes]:
        """The log file, in chunks. Raises OSError, Malformed."""
        ...

    def index(self) -> Iterator[bytes]:
        """The index rows, with the positions in that log file. Raises OSError, Malformed."""
        ...

    def close(self) -> None:
        """Release the resources for reading."""
        ...


class PinnedFiles:
    """The files in a pin's folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def log_path(self, number: int) -> Path | None:
        return self._folder / log_name(number)

    def index_path(self, number: int) -> Path | None:
        return self._folder / index_name(number)

    def log(self, number: int, at: int, size: int) -> bytes:
        return _read(self._folder / log_name(number), at, size)

    def index(self, number: int, at: int, size: int) -> bytes:
        return _read(self._folder / index_name(number), at, size)

    def zones(self, segment: SegmentCut) -> bytes | None:
        try:
            data = self.zones_path(segment).read_bytes()
        except FileNotFoundError:
            return None
        return data if has_all_zones(data, segment) else None

    def zones_path(self, segment: SegmentCut) -> Path:
        return self._folder / zones_name(segment)

    def log_chunks(self, number: int, at: int, size: int) -> Iterator[bytes]:
        for start, some in chunks(at, size):
            yield self.log(number, start, some)

    def tail(self, number: int, rows: int) -> bytes:
        return tail_of(self, number, rows)


def tail_of(files: CutFiles, number: int, rows: int) -> bytes:
    """8 bytes that identify the first `rows` rows of a segment.

    They are a digest of the last row and of the header of its entry, which has the batch's CRC.

    Raises:
        OSError, Malformed: the files do not have these rows.
    """
    at = FILE_HEADER_SIZE + INDEX_ROW_SIZE * (rows - 1)
    data = files.index(number, at, INDEX_ROW_SIZE)
    entry = files.log(number, decode_row(data).position, CHECKED_SIZE)
    return hashlib.sha256(data + entry).digest()[:8]


def _read(path: Path, at: int, size: int) -> bytes:
    with path.open("rb", buffering=0) as file:
        file.seek(at)
        data = file.read(size)
    if not data or len(data) < size:
        raise OSError(f"{path} is cut short")
    return data


def chunks(at: int, size: int) -> Iterator[tuple[int, int]]:
    """A range of a file as the positions and sizes of chunks that fit into memory."""
    for start in range(at, at + size, _READ_BYTES):
        yield start, min(_READ_BYTES, at + size - start)
