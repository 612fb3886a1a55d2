"""Where the files of a cut are read from: a pin on this machine, or one over the mesh."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

from quafka_broker.snapshots.zones_ahead import check, zones_name
from quafka_broker.wal.log import SegmentCut
from quafka_broker.wal.segment import index_name, log_name

_READ_BYTES = 1 << 20


class Source(Protocol):
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
