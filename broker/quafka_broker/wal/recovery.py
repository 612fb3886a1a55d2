"""Opening a log that may have been left in any state.

What is known to have been durable is believed: all segments but the last, which were synced when
they were sealed; the last after a clean shutdown; else as much of it as its last entry says was
durable before it. There the index is read (each row has a CRC) and is made again from the log
where it is not whole. What lies behind is verified byte by byte.

A bad entry in what was durable is damage to acknowledged data: the broker refuses to start rather
than drop it. Behind that, a bad entry is the torn tail of writes that nobody was promised and is
cut off with all that follows - except where a later, valid entry says that the bad place was
durable before it was written: then it is damage, too (docs/adr/0003).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator

from quafka_broker.virtual_topics import VirtualTopicId
from quafka_broker.wal.disk import Disk, File
from quafka_broker.wal.segment import Segment, index_name, log_name
from quafka_proto.errors import Malformed
from quafka_proto.log_format import (
    CHECKED_SIZE,
    ENTRY_HEADER_SIZE,
    ENTRY_START,
    FILE_HEADER_SIZE,
    INDEX_MAGIC,
    INDEX_ROW_SIZE,
    LOG_MAGIC,
    Entry,
    IndexRow,
    check_entry,
    check_entry_header,
    check_file_header,
    decode_row,
    encode_file_header,
    encode_row,
    row_of,
)
from quafka_proto.records import BATCH_HEADER_SIZE

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
        clean_end: number and size of the last segment after a clean shutdown, if there was one.
        seen: called with the row of every entry.

    Raises:
        DamagedLogError: see above.
        OSError: a file cannot be read or put right.
    """
    numbers = sorted(int(name[:-4]) for name in disk.names() if _is_log(name))
    clean_number, clean_size = clean_end or (-1, 0)
    for number in (*range(len(numbers)), clean_number):
        if number >= 0 and number not in numbers:
            raise DamagedLogError(f"{log_name(number)} is missing")
    _remove_orphans(disk, numbers)
    segments: list[Segment] = []
    next_id = 0
    for number in numbers:
        last = number == numbers[-1]
        segment = _open(disk, number, may_be_unfinished=last and number > clean_number)
        if segment is None:
            break
        size = segment.log.size()
        durable = clean_size if number == clean_number else FILE_HEADER_SIZE
        if durable > size:
            raise DamagedLogError(f"{log_name(number)} has {size} bytes, but had {durable}")
        if last:
            durable = max(durable, _last_durable(segment, size))
        whole = not last or (number, size) == clean_end
        for row in _rows(segment, size, size if whole else durable, whole, next_id):
            next_id = row.global_id + row.record_count
            seen(row)
        segments.append(segment)
    return segments


def _remove_orphans(disk: Disk, numbers: list[int]) -> None:
    """Remove an index that a crash left alone when its segment was begun.

    Raises:
        DamagedLogError: it has rows, so there was a log.
    """
    for name in disk.names():
        if not name.endswith(".oidx") or name[:-5] in {f"{number:012d}" for number in numbers}:
            continue
        index = disk.open(name)
        size = index.size()
        index.close()
        if size > FILE_HEADER_SIZE:
            raise DamagedLogError(f"{name[:-5]}.log is missing")
        disk.remove(name)


def _is_log(name: str) -> bool:
    return name.endswith(".log") and name[:-4].isdecimal()


def _open(disk: Disk, number: int, *, may_be_unfinished: bool) -> Segment | None:
    """The segment's files; None for a last one that a crash left without even its header."""
    file = disk.open(log_name(number))
    try:
        salt = check_file_header(file.read(0, FILE_HEADER_SIZE), LOG_MAGIC, number)
    except Malformed as e:
        empty = file.size() <= FILE_HEADER_SIZE
        file.close()
        if not (may_be_unfinished and empty):
            raise DamagedLogError(f"{log_name(number)}: {e}") from e
        log.warning("removing %s: a crash left it without a header", log_name(number))
        for name in {log_name(number), index_name(number)} & set(disk.names()):
            disk.remove(name)
        disk.sync_names()
        return None
    return Segment(number, salt, file, _open_index(disk, number, salt))


def _open_index(disk: Disk, number: int, salt: int) -> File:
    name = index_name(number)
    if name in disk.names():
        index = disk.open(name)
        try:
            found = check_file_header(index.read(0, FILE_HEADER_SIZE), INDEX_MAGIC, number)
            reason = "it belongs to another log file"
        except Malformed as e:
            found, reason = None, str(e)
        if found == salt:
            return index
        index.truncate(0)
    else:
        index, reason = disk.create(name), "it is missing"
    log.warning("making %s again: %s", name, reason)
    index.append([encode_file_header(INDEX_MAGIC, number, salt)])
    return index


def _last_durable(segment: Segment, size: int) -> int:
    """What the last entry that both index and log have says was durable before it."""
    at = segment.index.size() - INDEX_ROW_SIZE
    at -= (at - FILE_HEADER_SIZE) % INDEX_ROW_SIZE
    while at >= FILE_HEADER_SIZE:
        try:
            row = decode_row(segment.index.read(at, INDEX_ROW_SIZE))
            data = segment.log.read(row.position, ENTRY_HEADER_SIZE + BATCH_HEADER_SIZE)
            entry = check_entry_header(data, 0, segment.salt)
        except Malformed:
            at -= INDEX_ROW_SIZE
        else:
            return min(entry.durable_position, size)
    return FILE_HEADER_SIZE


def _rows(
    segment: Segment, size: int, durable: int, whole: bool, next_id: int
) -> Iterator[IndexRow]:
    """The rows of all good entries; the segment's files are put right on the way.

    `whole`: all of the file was durable, and nothing that was durable lay behind it.
    """
    for row in _index_rows(segment, durable, whole, next_id):
        segment.note([row])
        next_id = row.global_id + row.record_count
        yield row
    if segment.end < durable:
        log.warning("%s: indexing from position %d on", log_name(segment.number), segment.end)
    # Behind the rows that are believed, the index is written again beside what the log says.
    segment.index.truncate(FILE_HEADER_SIZE + INDEX_ROW_SIZE * segment.entries)
    if segment.end == size:
        return
    pending: list[IndexRow] = []
    for row in _scan(segment, size, durable, next_id):
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


def _index_rows(segment: Segment, durable: int, whole: bool, next_id: int) -> Iterator[IndexRow]:
    """Index rows while they are whole, contiguous and about what was durable.

    Raises:
        DamagedLogError: the log file ends before an entry that it had.
    """
    at, position = FILE_HEADER_SIZE, FILE_HEADER_SIZE
    while data := segment.index.read(at, INDEX_ROW_SIZE * _ROWS_PER_READ):
        for offset in range(0, len(data), INDEX_ROW_SIZE):
            try:
                row = decode_row(data, offset)
            except Malformed:
                return
            if row.position != position or row.global_id != next_id:
                return
            if row.end > durable:
                if whole:
                    raise DamagedLogError(_damage(segment, position, "it is cut short", row))
                return
            yield row
            position, next_id = row.end, row.global_id + row.record_count
        at += len(data)


def _scan(segment: Segment, size: int, durable: int, next_id: int) -> Iterator[IndexRow]:
    """Verify entries from the segment's end on, up to the first bad one.

    Raises:
        DamagedLogError: what is bad had been durable.
    """
    position = segment.end
    window = _Window(segment.log, size)
    while position < size:
        try:
            entry, data, at = _entry_at(segment, window, position)
        except Malformed as e:
            if position < durable:
                raise DamagedLogError(_damage(segment, position, str(e))) from e
            _refuse_damage(segment, window, position, str(e))
            return
        if entry.global_id != next_id:
            reason = f"an entry has the id {entry.global_id} where {next_id} is next"
            if entry.global_id < next_id and position >= durable:
                # A block of this file's past, where the new one did not get to the disk.
                _refuse_damage(segment, window, position, reason)
                return
            # Its checksums are good, so it was written so: what came before it is gone.
            raise DamagedLogError(_damage(segment, position, reason, entry))
        yield row_of(entry, position, data[at + ENTRY_HEADER_SIZE : at + entry.size])
        position += entry.size
        next_id = entry.global_id + entry.record_count


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

    def find(self, what: bytes, position: int) -> int:
        """The first place of `what` from `position` on, or -1."""
        while position + len(what) <= self._size:
            _, at = self.at(position, len(what))
            found = self._data.find(what, at)
            if found >= 0:
                return self._start + found
            position = max(position, self._start + len(self._data) - len(what)) + 1
        return -1


def _entry_at(segment: Segment, window: _Window, position: int) -> tuple[Entry, memoryview, int]:
    """A whole, good entry. Its length is believed, and read, only once its header is verified."""
    data, at = window.at(position, CHECKED_SIZE + BATCH_HEADER_SIZE)
    size = check_entry_header(data, at, segment.salt).size
    data, at = window.at(position, size)
    return check_entry(data, at, segment.salt), data, at


def _refuse_damage(segment: Segment, window: _Window, bad: int, reason: str) -> None:
    """Look for a valid entry behind the bad place that says it was durable.

    Raises:
        DamagedLogError: there is one.
    """
    position = bad + 1
    while (position := window.find(ENTRY_START, position)) >= 0:
        data, at = window.at(position, CHECKED_SIZE + BATCH_HEADER_SIZE)
        try:
            entry = check_entry_header(data, at, segment.salt)
        except Malformed:
            position += 1
            continue
        if entry.durable_position > bad:
            later = f"; the entry at {position} shows that it had been acknowledged"
            raise DamagedLogError(_damage(segment, bad, reason) + later)
        position += 1


def _damage(
    segment: Segment, position: int, reason: str, of: Entry | IndexRow | None = None
) -> str:
    """Where acknowledged data is damaged, and whose it is as far as that can be told."""
    if of is None:
        try:
            data = segment.log.read(position, ENTRY_HEADER_SIZE + BATCH_HEADER_SIZE)
            of = check_entry_header(data, 0, segment.salt)
        except Malformed:
            pass
    whose = "an unknown virtual topic"
    if of is not None:
        topic = VirtualTopicId(of.org_id, of.topic_hash, of.partition, of.generation)
        whose = f"virtual topic {topic.key}"
    return f"{log_name(segment.number)} is damaged at position {position}, in {whose}: {reason}"
