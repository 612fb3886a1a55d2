"""Reads a log file byte by byte: verifies every entry, and classifies bad places.

A bad place is the *torn tail* of writes that were never acknowledged, or *damage* to durable data.
Every entry has the position up to which the file was durable when it was written (docs/adr/0003).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import NamedTuple

from quafka_broker.wal.disk import File
from quafka_proto.errors import Malformed
from quafka_proto.log_format import (
    APPENDED,
    CHECKED_SIZE,
    ENTRY_HEADER_SIZE,
    ENTRY_START,
    FILE_HEADER_SIZE,
    ROW_DAMAGED,
    EntryHeader,
    IndexRow,
    check_entry,
    check_entry_header,
    entry_leader_epoch,
    group_size,
    row_of,
)
from quafka_proto.records import BATCH_HEADER_SIZE

_CHUNK = 8 << 20
_HEAD_SIZE = CHECKED_SIZE + BATCH_HEADER_SIZE


class Bad(NamedTuple):
    """A damaged piece [start, end) of a log file, without readable entries.

    `row`: the row of the entry there, if its header is still valid.
    """

    start: int
    end: int
    reason: str
    row: IndexRow | None = None


class Torn(NamedTuple):
    """Only unfinished writes follow from `start` on."""

    start: int
    reason: str


class OpenGroup:
    """Follows groups of entries that are in the log together or not at all.

    A group is written and synced at once, so a durable position is never within one: a group
    without its end was never acknowledged. Rewritten segments have no groups.

    Attributes:
        missing: the entries that the last group lacks.
        start: the position of its first entry.
    """

    def __init__(self, kind: int) -> None:
        self._counts = kind == APPENDED
        self.missing = 0
        self.start = 0

    def add(self, found: IndexRow | Bad) -> None:
        """Add the next entry or bad place. Damage is in durable data, so the group is not torn."""
        if isinstance(found, Bad):
            self.missing = 0
        elif self.missing:
            self.missing -= 1
        elif self._counts:
            self.missing = group_size(found)
            self.start = found.position

    def cut(self, rows: list[IndexRow]) -> list[IndexRow]:
        """The rows before an unfinished group, or all rows without one."""
        return [row for row in rows if row.position < self.start] if self.missing else rows


def scan(
    log: File, salt: int, start: int, durable: int, next_id: int | None
) -> Iterator[IndexRow | Bad | Torn]:
    """All entries and bad places from an entry's start on, in the order of position. Blocks.

    A yielded row belongs to a fully verified entry. A place below `durable`, or below the durable
    position in a later entry, is never torn. `Torn` comes last.

    Args:
        next_id: the next global id; None if the ids are not in order. If a write did not reach the
            disk, a block of the file's past may appear: a valid entry with an id out of order.

    Raises:
        OSError: the file cannot be read.
    """
    window = _Window(log)
    position = max(start, FILE_HEADER_SIZE)
    after_damage = False
    while position < window.size:
        try:
            row = _entry_at(window, salt, position)
            if next_id is not None:
                _check_order(row, next_id, durable, after_damage)
                next_id = row.global_id + row.record_count
        except Malformed as e:
            durable = max(durable, _later_durable(window, salt, position, durable))
            if position >= durable:
                yield Torn(position, str(e))
                return
            bad = _bad_at(window, salt, position, str(e), next_id or 0)
            if bad.row is None and bad.end == window.size < durable:
                bad = bad._replace(end=durable)  # one piece: an entry may lie across the file's end
            after_damage = bad.row is None
            if bad.row is not None and next_id is not None:
                next_id = bad.row.global_id + bad.row.record_count
            yield bad
            position = bad.end if bad.row is None else bad.row.end
        else:
            after_damage = False
            yield row
            position = row.end
    if position < durable:
        yield Bad(position, durable, "the file ends before it")


def header_at(log: File, salt: int, position: int) -> EntryHeader:
    """The entry that begins at a position, without a check of its batch.

    Raises:
        Malformed: no entry begins there.
    """
    return check_entry_header(log.read(position, _HEAD_SIZE), 0, salt)


class _Window:
    """A moving piece of a file in memory."""

    def __init__(self, file: File) -> None:
        self._file = file
        self.size = file.size()
        self._start = 0
        self._data = b""

    def at(self, position: int, count: int) -> tuple[memoryview, int]:
        """`count` bytes from `position` on, or up to the file's end: a buffer, and an index."""
        count = min(count, self.size - position)
        if not self._start <= position <= position + count <= self._start + len(self._data):
            self._data = self._file.read(position, max(count, _CHUNK))
            self._start = position
        return memoryview(self._data), position - self._start

    def find(self, what: bytes, position: int) -> int:
        """The first place of `what` from `position` on, or -1."""
        while position + len(what) <= self.size:
            _, at = self.at(position, len(what))
            found = self._data.find(what, at)
            if found >= 0:
                return self._start + found
            position = max(position, self._start + len(self._data) - len(what)) + 1
        return -1


def _entry_at(window: _Window, salt: int, position: int) -> IndexRow:
    """A complete, valid entry. Its length is used only after its header has been verified."""
    data, at = window.at(position, _HEAD_SIZE)
    size = check_entry_header(data, at, salt).size
    data, at = window.at(position, size)
    entry = check_entry(data, at, salt)
    return row_of(entry, position, data[at + ENTRY_HEADER_SIZE : at + size])


def _check_order(row: IndexRow, next_id: int, durable: int, after_damage: bool) -> None:
    """Check the order of ids. Only in durable data may ids be missing: damaged or freed."""
    may_jump = after_damage or row.position < durable or row.position == FILE_HEADER_SIZE
    if row.global_id < next_id or (row.global_id > next_id and not may_jump):
        raise Malformed(f"an entry has the id {row.global_id} where {next_id} is next")


def _entries_after(window: _Window, salt: int, bad: int) -> Iterator[tuple[int, EntryHeader]]:
    """The positions and headers of entries with a valid header after a bad place."""
    position = bad + 1
    while (position := window.find(ENTRY_START, position)) >= 0:
        data, at = window.at(position, _HEAD_SIZE)
        with suppress(Malformed):
            yield position, check_entry_header(data, at, salt)
        position += 1


def _later_durable(window: _Window, salt: int, bad: int, durable: int) -> int:
    """The durable position in a later entry, if it is above the bad place."""
    if durable > bad:
        return durable
    for _, entry in _entries_after(window, salt, bad):
        if entry.durable_position > bad:
            return entry.durable_position
    return durable


def _bad_at(window: _Window, salt: int, position: int, reason: str, next_id: int) -> Bad:
    """The extent of damage: to the end of its entry, or to the next valid header."""
    data, at = window.at(position, _HEAD_SIZE)
    try:
        row = damaged_row(
            check_entry_header(data, at, salt), position, data[at : at + CHECKED_SIZE]
        )
    except Malformed:
        row = None
    if row is None or row.global_id < next_id:
        after = (
            at for at, entry in _entries_after(window, salt, position) if entry.global_id >= next_id
        )
        return Bad(position, next(after, window.size), reason)
    return Bad(position, min(row.end, window.size), reason, row)


def damaged_row(entry: EntryHeader, position: int, checked: memoryview) -> IndexRow:
    """The row of an entry with a bad batch, except for its `checked` first bytes."""
    return IndexRow(
        entry.global_id,
        entry.base_offset,
        position,
        entry.topic_hash,
        -1,
        -1,
        -1,
        entry.org_id,
        entry.partition,
        entry.generation,
        entry.record_count,
        entry.length,
        -1,
        ROW_DAMAGED,
        entry_leader_epoch(checked),
    )
