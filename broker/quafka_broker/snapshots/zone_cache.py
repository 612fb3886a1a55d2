"""The zones of sealed segments, made before a snapshot asks for them.

To read the whole index of a large log is what would take longest when a first snapshot is made of
it. So each sealed segment's zones are made once, in the background, and kept in `zones` in the
data folder. They are a cache: whatever is missing, or not whole, is made when it is needed.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from quafka_broker.wal.log import SegmentCut
from quafka_broker.wal.segment import index_name
from quafka_proto.errors import Malformed
from quafka_proto.log_format import (
    FILE_HEADER_SIZE,
    INDEX_MAGIC,
    INDEX_ROW_SIZE,
    FileHeader,
    check_file_header,
)
from quafka_proto.zone_format import ZoneBuilder, decode_zones, encode_zones

ZONES = "zones"
_PART = ".part"
_ROWS_PER_STEP = 256
_REST = 3.0  # times as long as a step took: the interpreter is the event loop's


def zones_name(segment: SegmentCut) -> str:
    """The file with a sealed segment's zones; no other segment's has the same name."""
    return f"{segment.number:012d}-{segment.salt:08x}-{segment.kind}.zones"


def check(data: bytes, segment: SegmentCut) -> bool:
    """Whether these are the zones of all of a segment's entries."""
    try:
        zones = decode_zones(data)
    except Malformed:
        return False
    return sum(zone.batches for zone in zones) == segment.rows


def fill_zone_cache(
    data: Path, segments: Sequence[SegmentCut], stopped: threading.Event | None = None
) -> int:
    """Make the zones that are missing, and remove those of segments that are gone. Blocks.

    Returns how many were made. Setting `stopped` ends it early, with the rest left to the next
    call: a large log has thousands of segments.

    Raises:
        OSError: not all of it could be done.
    """
    folder = data / ZONES
    folder.mkdir(exist_ok=True)
    wanted = {zones_name(segment): segment for segment in segments if segment.sealed}
    there = {path.name for path in folder.iterdir()}
    for name in there - wanted.keys():
        (folder / name).unlink()
    made = 0
    stopped = stopped or threading.Event()
    for name in sorted(wanted.keys() - there):
        # Rewritten or freed meanwhile: the next turn knows.
        with contextlib.suppress(FileNotFoundError, Malformed):
            made += _make(data, folder / name, wanted[name], stopped)
        if stopped.is_set():
            break
    return made


def _make(data: Path, path: Path, segment: SegmentCut, stopped: threading.Event) -> bool:
    builder = ZoneBuilder()
    for rows in _rows(data / "wal" / index_name(segment.number), segment):
        if stopped.is_set():
            return False
        begun = time.thread_time()
        builder.add(rows)
        time.sleep((time.thread_time() - begun) * _REST)
    part = path.with_name(path.name + _PART)
    with part.open("wb") as file:
        file.write(encode_zones(builder.zones()))
        file.flush()
        os.fsync(file.fileno())  # snapshots link to it
    part.replace(path)
    return True


def _rows(path: Path, segment: SegmentCut) -> Iterator[bytes]:
    with path.open("rb") as index:
        header = check_file_header(index.read(FILE_HEADER_SIZE), INDEX_MAGIC, segment.number)
        if header != FileHeader(segment.salt, segment.kind):
            raise Malformed("the index is another segment's by now")
        for start in range(0, segment.rows, _ROWS_PER_STEP):
            yield index.read(INDEX_ROW_SIZE * min(_ROWS_PER_STEP, segment.rows - start))
