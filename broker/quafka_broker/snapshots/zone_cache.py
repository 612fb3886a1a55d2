"""Makes the zones of sealed segments ahead of the first snapshot.

Reading the whole index of a large log would take most of the time of its first snapshot. So each
sealed segment's zones are made once, in the background, and kept in `zones` in the data folder. A
snapshot makes zones that are missing or incomplete.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from quafka_broker.wal.cut import SegmentCut
from quafka_broker.wal.segment import index_name
from quafka_loop import clock, file_modes, threads
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
_REST = 3.0  # pause after a step, in its CPU time: the event loop needs the interpreter


def zones_name(segment: SegmentCut) -> str:
    """The name of the file with a sealed segment's zones, which is unique to the segment."""
    return f"{segment.number:012d}-{segment.salt:08x}-{segment.kind}.zones"


def has_all_zones(data: bytes, segment: SegmentCut) -> bool:
    """Whether a zones file covers all of a segment's entries."""
    try:
        zones = decode_zones(data)
    except Malformed:
        return False
    return sum(zone.batches for zone in zones) == segment.rows


def fill_zone_cache(
    data: Path, segments: Sequence[SegmentCut], stopped: threads.Event | None = None
) -> int:
    """Make missing zones, and remove those of removed segments. Blocks.

    Returns the number of files made. Setting `stopped` ends the call early, and the next call
    continues: a large log has thousands of segments.

    Raises:
        OSError: a file could not be written or removed.
    """
    folder = data / ZONES
    file_modes.make_folder(folder, exist_ok=True)
    wanted = {zones_name(segment): segment for segment in segments if segment.sealed}
    there = {path.name for path in folder.iterdir()}
    for name in there - wanted.keys():
        (folder / name).unlink()
    made = 0
    stopped = stopped or threads.Event()
    for name in sorted(wanted.keys() - there):
        # The segment was rewritten or freed meanwhile: the next call handles this.
        with contextlib.suppress(FileNotFoundError, Malformed):
            made += _make(data, folder / name, wanted[name], stopped)
        if stopped.is_set():
            break
    return made


def _make(data: Path, path: Path, segment: SegmentCut, stopped: threads.Event) -> bool:
    builder = ZoneBuilder()
    for rows in _rows(data / "wal" / index_name(segment.number), segment):
        if stopped.is_set():
            return False
        begun = clock.thread_time()
        builder.add(rows)
        clock.sleep((clock.thread_time() - begun) * _REST)
    part = path.with_name(path.name + _PART)
    with file_modes.rewrite_file(part) as file:
        file.write(encode_zones(builder.zones()))
        file.flush()
        os.fsync(file.fileno())  # snapshots link to it
    part.replace(path)
    return True


def _rows(path: Path, segment: SegmentCut) -> Iterator[bytes]:
    with path.open("rb") as index:
        header = check_file_header(index.read(FILE_HEADER_SIZE), INDEX_MAGIC, segment.number)
        if header != FileHeader(segment.salt, segment.kind):
            raise Malformed("the index is another segment's now")
        for start in range(0, segment.rows, _ROWS_PER_STEP):
            yield index.read(INDEX_ROW_SIZE * min(_ROWS_PER_STEP, segment.rows - start))
