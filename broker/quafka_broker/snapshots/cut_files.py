"""Where the files of a cut are read from: a pin on this machine, or one over the mesh."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol, runtime_checkable

from quafka_broker.snapshots.zone_cache import check, zones_name
from quafka_broker.wal.log import SegmentCut
from quafka_broker.wal.segment import index_name, log_name
from quafka_proto.log_format import CHECKED_SIZE, FILE_HEADER_SIZE, INDEX_ROW_SIZE, decode_row

_READ_BYTES = 1 << 20


class CutFiles(Protocol):
    """The files of the segments of one cut."""

    def log_path(self, number: int) -> Path | None:
        """A segment's log file, where it can be linked to."""
        ...

    def index_path(self, number: int) -> Path | None:
        """A segment's index file, where it can be linked to."""
        ...

    def log(self, number: int, at: int, size: int) -> bytes:
        """Bytes of a segment's log file. Raises OSError where they are not there."""
        ...

    def index(self, number: int, at: int, size: int) -> bytes:
        """Bytes of a segment's index file. Raises OSError where they are not there."""
        ...

    def zones(self, segment: SegmentCut) -> bytes | None:
        """The zones of a sealed segment, where they have been made already."""
        ...

    def zones_path(self, segment: SegmentCut) -> Path | None:
        """The file that they are in, where it can be linked to."""
        ...

    def log_chunks(self, number: int, at: int, size: int) -> Iterator[bytes]:
        """A range of a segment's log, in pieces that fit into memory. Raises OSError."""
        ...

    def tail(self, number: int, rows: int) -> bytes:
        """See `tail_of`."""
        ...


@runtime_checkable
class OrgCutFiles(CutFiles, Protocol):
    """A source from elsewhere that gives one org's entries only, and no raw files."""

    def of_org(self, segment: SegmentCut, first_row: int) -> OrgEntries:
        """The org's entries of a segment, from an index row on. Raises OSError, Malformed."""
        ...


class OrgEntries(Protocol):
    """One org's entries of a range of a segment, as a log file and an index file of their own.

    The log is to be read once, and before the index; `rows` and `size` are known after it.
    """

    @property
    def is_empty(self) -> bool:
        """Whether there are none."""
        ...

    @property
    def rows(self) -> int:
        """How many entries there are."""
        ...

    @property
    def size(self) -> int:
        """Bytes of the log file."""
        ...

    @property
    def expected_size(self) -> int | None:
        """The same before the log is read, where it is known."""
        ...

    def log(self) -> Iterator[bytes]:
        """The log file. Raises OSError, Malformed."""
        ...

    def index(self) -> Iterator[bytes]:
        """The index rows, with the positions in that file. Raises OSError, Malformed."""
        ...

    def close(self) -> None:
        """It is not needed any more."""
        ...


class PinnedFiles:
    """A pin's folder."""

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
        return data if check(data, segment) else None

    def zones_path(self, segment: SegmentCut) -> Path:
        return self._folder / zones_name(segment)

    def log_chunks(self, number: int, at: int, size: int) -> Iterator[bytes]:
        for start, some in chunks(at, size):
            yield self.log(number, start, some)

    def tail(self, number: int, rows: int) -> bytes:
        return tail_of(self, number, rows)


def tail_of(source: CutFiles, number: int, rows: int) -> bytes:
    """8 bytes that tell the first `rows` rows of a segment from those of another history.

    They are a digest of the last row and of the header of its entry, which has the batch's CRC.

    Raises:
        OSError, Malformed: the source does not have them.
    """
    at = FILE_HEADER_SIZE + INDEX_ROW_SIZE * (rows - 1)
    data = source.index(number, at, INDEX_ROW_SIZE)
    entry = source.log(number, decode_row(data).position, CHECKED_SIZE)
    return hashlib.sha256(data + entry).digest()[:8]


def _read(path: Path, at: int, size: int) -> bytes:
    with path.open("rb", buffering=0) as file:
        file.seek(at)
        data = file.read(size)
    if not data or len(data) < size:
        raise OSError(f"{path} is cut short")
    return data


def chunks(at: int, size: int) -> Iterator[tuple[int, int]]:
    """A range of a file as positions and sizes of pieces that fit into memory."""
    for start in range(at, at + size, _READ_BYTES):
        yield start, min(_READ_BYTES, at + size - start)
