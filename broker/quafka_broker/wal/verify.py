"""Verifies a log, without changing it.

Every byte of every segment is verified, and every index row against its entry. The log may be in
use; data written meanwhile is not verified.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from quafka_broker.wal.checkpoint_file import load_newest
from quafka_broker.wal.disk import Disk
from quafka_broker.wal.quarantine import SegmentDamage, damaged_entry
from quafka_broker.wal.scan import Bad, Torn, scan
from quafka_broker.wal.segment import index_name, log_name
from quafka_broker.wal.segment_files import numbered, segment_header
from quafka_proto.errors import Malformed
from quafka_proto.log_format import (
    APPENDED,
    FILE_HEADER_SIZE,
    INDEX_MAGIC,
    INDEX_ROW,
    INDEX_ROW_SIZE,
    ROW_DAMAGED,
    FileHeader,
    IndexRow,
    check_file_header,
    decode_row,
)

_POSITION = INDEX_ROW.part_of_each("position")


class SegmentReport(NamedTuple):
    """The state of one segment.

    Attributes:
        size: bytes of the log file; 0 if it is missing.
        entries: the number of valid entries.
        damages: the damaged pieces, with the lost offsets if the segment alone shows them.
        torn: bytes of unfinished writes at the end; the next start cuts them off.
        index_fault: the fault of the index file, which can always be rebuilt.
    """

    number: int
    size: int
    entries: int
    damages: list[SegmentDamage]
    torn: int = 0
    index_fault: str | None = None


def verify(disk: Disk) -> Iterator[SegmentReport]:
    """Verify all segments, oldest first. Blocks.

    Raises:
        DamagedLogError: a later version of Quafka wrote a segment.
        OSError: a file cannot be read.
    """
    checkpoint = load_newest(disk).checkpoint
    known = {state.number: state for state in checkpoint.segments} if checkpoint else {}
    durable = checkpoint.durable if checkpoint else (-1, 0)
    names = disk.names()
    logs = numbered(names, ".log")
    numbers = sorted(logs | known.keys())
    for number in numbers:
        if number not in logs:
            state = known[number]
            gone = SegmentDamage(
                number, 0, 0, "its file is missing", state.first_id or 0, state.next_id
            )
            yield SegmentReport(number, 0, 0, [gone])
            continue
        end = durable[1] if number == durable[0] else 0
        state_end = known[number].end if number in known else 0
        yield _segment(disk, number, max(end, state_end), last=number == numbers[-1])


def entries(disk: Disk, number: int) -> Iterator[IndexRow | Bad | Torn]:
    """All entries and bad places of one segment's log file, in the order of position. Blocks.

    Raises:
        DamagedLogError: a later version of Quafka wrote the segment.
        Malformed: neither file's header can be read.
        OSError: the segment does not exist, or cannot be read.
    """
    file = disk.open(log_name(number))
    try:
        header, _ = segment_header(disk, number, file)
        yield from scan(file, header.salt, FILE_HEADER_SIZE, 0, None)
    finally:
        file.close()


def _segment(disk: Disk, number: int, durable: int, last: bool) -> SegmentReport:
    file = disk.open(log_name(number))
    try:
        size = file.size()
        try:
            header, fault = segment_header(disk, number, file)
        except Malformed as e:
            if last and size <= FILE_HEADER_SIZE:
                return SegmentReport(number, size, 0, [], torn=size)
            return SegmentReport(number, size, 0, [SegmentDamage(number, 0, size, str(e), 0, 0)])
        damages = [SegmentDamage(number, 0, FILE_HEADER_SIZE, fault, 0, 0)] if fault else []
        index = _Index(disk, number, header)
        count = torn = 0
        durable = max(durable, 0 if last else size)
        for found in scan(file, header.salt, FILE_HEADER_SIZE, durable, _first_id(header)):
            if isinstance(found, Torn):
                torn = size - found.start
            elif isinstance(found, Bad):
                damages += _damages(number, found, index)
            else:
                count += 1
                index.compare(found)
        return SegmentReport(number, size, count, damages, torn, index.fault(count))
    finally:
        file.close()


def _first_id(header: FileHeader) -> int | None:
    """The `next_id` for `scan`: only the ids of an appended segment ascend."""
    return 0 if header.kind == APPENDED else None


def _damages(number: int, bad: Bad, index: _Index) -> list[SegmentDamage]:
    rows = [bad.row] if bad.row is not None else index.within(bad)
    if not rows:
        return [SegmentDamage(number, bad.start, bad.end, bad.reason, 0, 0)]
    return [damaged_entry(number, row, bad.reason) for row in rows]


class _Index:
    """A segment's index file, compared with the log row by row."""

    def __init__(self, disk: Disk, number: int, header: FileHeader) -> None:
        self._data = b""
        self._fault: str | None = None
        if not disk.exists(index_name(number)):
            self._fault = "it is missing"
            return
        file = disk.open(index_name(number))
        try:
            found = check_file_header(file.read(0, FILE_HEADER_SIZE), INDEX_MAGIC, number)
            self._data = file.read(FILE_HEADER_SIZE, file.size())
            if found != header:
                self._fault = "it belongs to another log file"
        except Malformed as e:
            self._fault = str(e)
        finally:
            file.close()
        whole = len(self._data) // INDEX_ROW_SIZE * INDEX_ROW_SIZE
        places = _POSITION.iter_unpack(self._data[:whole])
        self._at = {position: at for at, (position,) in enumerate(places)}

    def compare(self, row: IndexRow) -> None:
        """Compare an entry of the log with its row."""
        if self._fault is not None:
            return
        at = self._at.get(row.position)
        try:
            found = None if at is None else decode_row(self._data, INDEX_ROW_SIZE * at)
        except Malformed:
            found = None
        # The log does not know which entries were found damaged.
        if found is None or found._replace(flags=found.flags & ~ROW_DAMAGED) != row:
            self._fault = f"it is wrong about the entry at position {row.position}"

    def within(self, bad: Bad) -> list[IndexRow]:
        """The good rows of entries in a damaged piece."""
        rows: list[IndexRow] = []
        for position in sorted(self._at) if not self._fault else ():
            if bad.start <= position < bad.end:
                try:
                    row = decode_row(self._data, INDEX_ROW_SIZE * self._at[position])
                except Malformed:
                    continue
                if row.end <= bad.end:
                    rows.append(row)
        return rows

    def fault(self, entries_found: int) -> str | None:
        """The fault of the index; rows of damaged entries may be present or missing."""
        if self._fault is None and len(self._at) < entries_found:
            return "it is cut short"
        return self._fault
