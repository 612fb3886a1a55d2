"""Opening a log that may have been left in any state.

All segments but the last were synced when they were sealed: their index is believed row by row
(each has a CRC) and made again from the log where it is not whole. In the last one every entry is
verified, unless the last shutdown was clean. What follows the last good entry there is the torn
tail of writes that nobody was promised, and is cut off - except where a later, valid entry says
that the bad place was durable before it was written: then acknowledged data is damaged, and the
broker refuses to start rather than drop it (docs/adr/0003).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator

from quafka_broker.wal.disk import Disk, File
from quafka_broker.wal.segment import Segment, index_name, log_name
from quafka_proto.errors import Malformed
from quafka_proto.log_format import (
    ENTRY_HEADER_SIZE,
    ENTRY_MARKER,
    FILE_HEADER_SIZE,
    INDEX_MAGIC,
    INDEX_ROW_SIZE,
    LOG_MAGIC,
    Entry,
    IndexRow,
    check_entry,
    check_file_header,
    decode_row,
    encode_file_header,
    encode_row,
    read_entry,
    row_of,
)

log = logging.getLogger("quafka.broker.recovery")

_CHUNK = 8 << 20
_ROWS_PER_READ = 4096


class DamagedLogError(Exception):
    """Acknowledged data cannot be read back. The message names file and position."""


def recover(
    disk: Disk, clean_end: tuple[int, int] | None, seen: Callable[[IndexRow], None]
) -> list[Segment]:
    """Open all segments, oldest first, and report every entry in append order. Blocks.

    Args:
        clean_end: segment number and size that a clean shutdown left; None: there was none.
        seen: called with the row of every entry.

    Raises:
        DamagedLogError: see above.
        OSError: a file cannot be read or put right.
    """
    numbers = sorted(int(name.split(".")[0]) for name in disk.names() if name.endswith(".log"))
    segments: list[Segment] = []
    next_id = 0
    for number in numbers:
        last = number == numbers[-1]
        segment = _open(disk, number, last)
        if segment is None:
            break
        trusted = not last or clean_end == (number, segment.log.size())
        for row in _rows(segment, trusted, next_id):
            next_id = row.global_id + row.record_count
            seen(row)
        segments.append(segment)
    return segments


def _open(disk: Disk, number: int, last: bool) -> Segment | None:
    """The segment's files; None for a last one that a crash left without even its header."""
    file = disk.open(log_name(number))
    try:
        check_file_header(file.read(0, FILE_HEADER_SIZE), LOG_MAGIC, number)
    except Malformed as e:
        empty = file.size() <= FILE_HEADER_SIZE
        file.close()
        if not (last and empty):
            raise DamagedLogError(f"{log_name(number)}: {e}") from e
        log.warning("removing %s: a crash left it without a header", log_name(number))
        for name in {log_name(number), index_name(number)} & set(disk.names()):
            disk.remove(name)
        disk.sync_names()
        return None
    return Segment(number, file, _open_index(disk, number))


def _open_index(disk: Disk, number: int) -> File:
    name = index_name(number)
    if name in disk.names():
        index = disk.open(name)
        try:
            check_file_header(index.read(0, FILE_HEADER_SIZE), INDEX_MAGIC, number)
        except Malformed as e:
            log.warning("making %s again: %s", name, e)
            index.truncate(0)
        else:
            return index
    else:
        log.warning("making %s again: it is missing", name)
        index = disk.create(name)
    index.append([encode_file_header(INDEX_MAGIC, number)])
    return index


def _rows(segment: Segment, trusted: bool, next_id: int) -> Iterator[IndexRow]:
    """The rows of all good entries; the segment's files are put right on the way."""
    size = segment.log.size()
    if trusted:
        for row in _index_rows(segment, size, next_id):
            segment.note([row])
            next_id = row.global_id + row.record_count
            yield row
    if segment.end == size:
        segment.cut()
        return
    if trusted:
        log.warning("%s: indexing from position %d on", log_name(segment.number), segment.end)
    # From here on the index is written again beside what the log says.
    segment.index.truncate(FILE_HEADER_SIZE + INDEX_ROW_SIZE * segment.entries)
    pending: list[IndexRow] = []
    for row in _scan(segment, size, next_id):
        pending.append(row)
        if len(pending) == _ROWS_PER_READ:
            segment.index.append([encode_row(r) for r in pending])
            pending.clear()
        segment.note([row])
        yield row
    segment.index.append([encode_row(r) for r in pending])
    if segment.end < size:
        log.warning(
            "%s: cut off %d bytes of unfinished writes at position %d",
            log_name(segment.number),
            size - segment.end,
            segment.end,
        )
        segment.log.truncate(segment.end)
    segment.sync()


def _index_rows(segment: Segment, size: int, next_id: int) -> Iterator[IndexRow]:
    """Index rows while they are whole, contiguous and within the log."""
    at, position = FILE_HEADER_SIZE, FILE_HEADER_SIZE
    while data := segment.index.read(at, INDEX_ROW_SIZE * _ROWS_PER_READ):
        for offset in range(0, len(data), INDEX_ROW_SIZE):
            try:
                row = decode_row(data, offset)
            except Malformed:
                return
            after = row.position + ENTRY_HEADER_SIZE + row.length
            if row.position != position or row.global_id < next_id or after > size:
                return
            yield row
            position, next_id = after, row.global_id + row.record_count
        at += len(data)


def _scan(segment: Segment, size: int, next_id: int) -> Iterator[IndexRow]:
    """Verify entries from the segment's end on, up to the first bad one."""
    position = segment.end
    window = _Window(segment.log, size)
    while position < size:
        try:
            entry, data, at = _entry_at(window, position)
            _check_order(entry, next_id)
        except Malformed as e:
            _refuse_damage(segment, window, position, size, str(e))
            return
        yield row_of(entry, position, data[at + ENTRY_HEADER_SIZE : at + entry.size])
        position += entry.size
        next_id = entry.global_id + entry.record_count


def _check_order(entry: Entry, next_id: int) -> None:
    if entry.global_id < next_id:
        raise Malformed("an entry's global id is not above the one before")


class _Window:
    """A moving piece of a file in memory."""

    def __init__(self, file: File, size: int) -> None:
        self._file = file
        self._size = size
        self._start = 0
        self._data = b""

    def at(self, position: int, count: int) -> tuple[memoryview, int]:
        """`count` bytes from `position` on, or up to the file's end: a buffer and where in it."""
        count = min(count, self._size - position)
        if not self._start <= position <= position + count <= self._start + len(self._data):
            self._data = self._file.read(position, max(count, _CHUNK))
            self._start = position
        return memoryview(self._data), position - self._start


def _entry_at(window: _Window, position: int) -> tuple[Entry, memoryview, int]:
    data, at = window.at(position, ENTRY_HEADER_SIZE)
    size = read_entry(data, at).size
    data, at = window.at(position, size)
    return check_entry(data, at), data, at


def _refuse_damage(segment: Segment, window: _Window, bad: int, size: int, reason: str) -> None:
    """Look for a valid entry behind the bad place that says it was durable.

    Raises:
        DamagedLogError: there is one.
    """
    position = bad + 1
    while position < size:
        data, at = window.at(position, _CHUNK)
        found = bytes(data[at:]).find(ENTRY_MARKER)
        if found < 0:
            position += len(data) - at - 1 or 1
            continue
        position += found
        try:
            entry, _, _ = _entry_at(window, position)
        except Malformed:
            position += 1
            continue
        if entry.durable_position > bad:
            raise DamagedLogError(
                f"{log_name(segment.number)} is damaged at position {bad} ({reason}), and the "
                f"entry at {position} shows that what stood there had been acknowledged"
            )
        position += entry.size
