"""Opens a log that may have been left in any state.

A checkpoint has the state of the log up to some position; recovery reads only the log after it.
Without a checkpoint, recovery reads the whole index. Recovery trusts the index for data that is
known to be durable (each row has a CRC), and rebuilds an incomplete index from the log. Known to be
durable are all segments but the last, which were synced when they were sealed, and the last one up
to the position in the checkpoint or in its last entry. The data after that position is verified
byte by byte.

A bad place in unverified data is the torn tail of writes that were never acknowledged: recovery
cuts it off, with everything after it, and logs this. A bad place in durable data is damage: it is
quarantined, and the rest is served. A segment whose last entries are damaged gets no more appends.

Recovery does not trust a checkpoint's list of damages: it reads the segments in the list again from
end to end. So damage that was undone from a copy of the disk is no longer damage.
"""

from __future__ import annotations

import logging
from typing import Any, NamedTuple

from quafka_broker.wal.checkpoint_file import Checkpoint
from quafka_broker.wal.contents import Contents
from quafka_broker.wal.disk import Disk, File
from quafka_broker.wal.index_rows import (
    contiguous_rows,
    covers_log,
    good_rows,
    greatest_indexed_end,
    last_durable_position,
    last_indexed_end,
    open_index,
    present_offsets,
    reaches,
    rows_while_good,
)
from quafka_broker.wal.quarantine import SegmentDamage, lost_in
from quafka_broker.wal.recount import recount_now
from quafka_broker.wal.recovery_ids import IdSequence
from quafka_broker.wal.scan import Bad, OpenGroup, Torn, scan
from quafka_broker.wal.segment import Segment, index_name, log_name
from quafka_broker.wal.segment_files import (
    is_unborn,
    name_index,
    new_index,
    numbered,
    orphan_rows,
    remove_leftovers,
    remove_unborn,
    segment_header,
)
from quafka_proto.errors import Malformed
from quafka_proto.log_format import (
    APPENDED,
    FILE_HEADER_SIZE,
    REWRITTEN,
    ROW_DAMAGED,
    FileHeader,
    IndexRow,
    encode_row,
)

log = logging.getLogger("quafka.broker.recovery")

_ROWS_PER_WRITE = 4096
_MISSING = "its file is missing"


class StaleCheckpointError(Exception):
    """Lost records are back, but the checkpoint has different ids for them, or none."""


class Recovered(NamedTuple):
    """The result of recovery.

    Attributes:
        active: the number of the segment to append to; a new one if the last takes no appends.
        empty: no record was ever in the log.
        torn: unfinished writes were cut off.
        damaged: the part of the log after the checkpoint has unknown damage, so it is uncertain
            which records are lost.
    """

    active: int
    empty: bool
    torn: bool
    damaged: bool


def recover(disk: Disk, checkpoint: Checkpoint | None, contents: Contents) -> Recovered:
    """Open all segments and fill `contents`. Blocks.

    Raises:
        DamagedLogError: the log contradicts itself, or is of a later version.
        StaleCheckpointError: records that the checkpoint does not have are back.
        OSError: a file cannot be read, or cannot be repaired.
    """
    return _Recovery(disk, checkpoint, contents).run()


class _Recovery:
    """One run over all segments, oldest first."""

    def __init__(self, disk: Disk, checkpoint: Checkpoint | None, contents: Contents) -> None:
        self._disk = disk
        self._checkpoint = checkpoint
        self._contents = contents
        self._known = {s.number: s for s in checkpoint.segments} if checkpoint else {}
        self._suspects: dict[int, list[SegmentDamage]] = {}
        for damage in checkpoint.damages if checkpoint else ():
            self._suspects.setdefault(damage.segment, []).append(damage)
        self._durable = checkpoint.durable if checkpoint else (-1, 0)
        self._tail = max(self._known, default=-1)
        self._ids = IdSequence(contents)
        self._rewritten: list[Segment] = []  # since the checkpoint
        self._unborn = -1  # a segment that a crash left without a header
        self._torn = False

    def run(self) -> Recovered:
        remove_leftovers(self._disk)
        names = self._disk.names()
        logs, indexes = numbered(names, ".log"), numbered(names, ".oidx")
        numbers = sorted(logs | indexes | self._known.keys())
        for number in self._suspects.keys() - logs:
            for damage in self._suspects[number]:
                self._contents.add_damage(damage._replace(start=0, end=0, reason=_MISSING))
        for number in numbers:
            last = number == numbers[-1]
            if number in logs:
                self._segment(number, last)
            else:
                self._unreadable(number, _MISSING, 0)
        end_id = self._checkpoint.end_id if self._checkpoint is not None else 0
        self._ids.close_damages(max(self._ids.next_id, end_id))
        self._ids.reach(end_id)
        self._contents.next_id = self._ids.next_id
        self._restore_gaps()
        active = self._active_number([number for number in numbers if number != self._unborn])
        return Recovered(active, not self._ids.next_id, self._torn, self._is_newly_damaged())

    def _is_newly_damaged(self) -> bool:
        checkpoint = self._checkpoint
        known = {damage[:3] for damage in checkpoint.damages} if checkpoint is not None else ()
        covered = checkpoint.next_id if checkpoint is not None else 0
        return any(
            damage.end_id > covered and damage[:3] not in known
            for damage in self._contents.quarantine.damages
        )

    def _active_number(self, numbers: list[int]) -> int:
        if not numbers:
            return 0
        segments = self._contents.segments
        if not segments or segments[-1].number != numbers[-1] or segments[-1].kind != APPENDED:
            return numbers[-1] + 1
        damages = self._contents.quarantine.damages
        damaged = any(d.segment == numbers[-1] and d.end > d.start for d in damages)
        return numbers[-1] + damaged

    # --- a segment ----------------------------------------------------------------------------

    def _segment(self, number: int, last: bool) -> None:
        file = self._disk.open(log_name(number))
        size = file.size()
        header = self._header(number, file)
        if header is None:
            unborn = is_unborn(file)
            file.close()
            if last and unborn and number > self._durable[0]:
                self._unborn = number
                self._torn = True
                remove_unborn(self._disk, number)
            else:
                self._unreadable(number, "its file header is damaged", size)
            return
        index = open_index(self._disk, number, header)
        state = self._known.get(number)
        if state is not None and (state.salt, state.kind) != header:
            state = None
        if number in self._suspects or (state and not reaches(state, size, index)):
            self._read_again(number, header, file, index, last)
            return
        segment = Segment(number, header, file, index or new_index(self._disk, number, header))
        self._contents.append_segment(segment)
        if state is None and segment.kind == REWRITTEN:
            self._rewritten.append(segment)
        if state is not None:
            segment.load_state(state)
            if segment.first_id is not None:
                self._ids.close_damages(segment.first_id)
            self._ids.reach(segment.next_id)
            sizes = size, segment.index.size()
            if number < self._tail and sizes == (state.end, segment.index_end):
                return
        self._entries(segment, size, last)
        if index is None:
            name_index(self._disk, segment)

    def _restore_gaps(self) -> None:
        """Find the records without an entry, which compaction has removed since the checkpoint.

        Without a checkpoint, `restore_row` has found them. A damaged segment is not compacted.
        """
        damaged = {damage.segment for damage in self._contents.quarantine.damages}
        segments = [s for s in self._contents.segments if s.first_id is not None]
        for at, segment in enumerate(segments) if self._checkpoint is not None else ():
            if segment not in self._rewritten or segment.number in damaged:
                continue
            first_id = segments[at - 1].next_id if at else 0
            following = segments[at + 1].first_id if at + 1 < len(segments) else None
            end_id = self._contents.next_id if following is None else following
            present = present_offsets(segment)
            for partition, start, end in self._contents.restore_gaps(first_id, end_id, present):
                recount_now(self._contents, partition, start, end)

    def _read_again(
        self, number: int, header: FileHeader, file: File, index: File | None, last: bool
    ) -> None:
        """Verify every byte of a segment, and rebuild its index.

        Needed if the checkpoint has damage in the segment, or the files do not match the
        checkpoint. The old index is used only for damaged pieces of the log.
        """
        size, rows, durable = file.size(), b"", 0
        state = self._known.get(number)
        if state is not None and state.salt == header.salt:  # otherwise it was repaired
            durable = max((damage.end for damage in self._suspects.get(number, ())), default=0)
        if index is not None:
            before = Segment(number, header, file, index)
            durable = max(durable, self._durable_end(before, size, last))
            rows = index.read(FILE_HEADER_SIZE, index.size())
            index.close()
        segment = Segment(number, header, file, new_index(self._disk, number, header))
        durable = max(durable, self._durable_end(segment, size, last))
        self._contents.append_segment(segment)
        self._scan(segment, durable, rows)
        name_index(self._disk, segment)

    def _check_returned(self, number: int, row: IndexRow) -> None:
        """Check an entry in a formerly damaged place.

        Raises:
            StaleCheckpointError: the checkpoint lacks the entry, or has other ids for it.
        """
        for damage in self._suspects.get(number, ()):
            was_lost = damage.start <= row.position < damage.end or damage.end == 0
            if was_lost and not self._contents.agrees(row):
                raise StaleCheckpointError(
                    f"{log_name(number)} has records again that the checkpoint lacks"
                )

    def _header(self, number: int, file: File) -> FileHeader | None:
        try:
            header, fault = segment_header(self._disk, number, file)
        except Malformed:
            return None
        if fault is not None:
            if is_unborn(file):
                return None
            next_id = self._ids.next_id
            self._contents.add_damage(
                SegmentDamage(number, 0, FILE_HEADER_SIZE, fault, next_id, next_id)
            )
        return header

    def _entries(self, segment: Segment, size: int, last: bool) -> None:
        """Recover the entries after those that the checkpoint has, and repair the files."""
        durable = self._durable_end(segment, size, last)
        known = segment.end
        believed = min(durable, size)
        if segment.kind == APPENDED:
            for row in contiguous_rows(segment, believed):
                if row.global_id < self._ids.next_id or (
                    row.global_id > self._ids.next_id and row.position != FILE_HEADER_SIZE
                ):
                    break
                self._ids.add_entry(segment, row)
        elif covers_log(segment, size):
            for row in list(rows_while_good(segment)):
                self._ids.add_entry(segment, row)
        left = segment.index.read(segment.index_end, segment.index.size())
        if left:
            segment.index.truncate(segment.index_end)
        if segment.end < max(size, durable):
            if known < segment.end < believed or segment.end == FILE_HEADER_SIZE < believed:
                log.warning("%s: indexing from %d on", log_name(segment.number), segment.end)
            self._scan(segment, durable, left)
        elif left:
            segment.sync()

    def _durable_end(self, segment: Segment, size: int, last: bool) -> int:
        """The position up to which a segment's log was durable, even if the file is shorter."""
        number, position = self._durable
        if segment.kind == REWRITTEN:
            return max(size, greatest_indexed_end(segment))
        durable = position if number == segment.number else 0
        state = self._known.get(segment.number)
        if state is not None and state.salt == segment.salt:
            durable = max(durable, state.end)
        if not last:
            return max(durable, size, last_indexed_end(segment))
        return max(durable, last_durable_position(segment, size))

    def _scan(self, segment: Segment, durable: int, left: bytes) -> None:
        start = segment.end if segment.kind == APPENDED else FILE_HEADER_SIZE
        rows: list[IndexRow] = []
        next_id = self._ids.next_id if segment.kind == APPENDED else None
        group = OpenGroup(segment.kind)
        for found in scan(segment.log, segment.salt, start, durable, next_id):
            if isinstance(found, Torn):
                rows = group.cut(rows)
                self._cut_torn(segment, found, [row.end for row in rows])
                break
            if segment.kind == APPENDED and (
                (len(rows) >= _ROWS_PER_WRITE and not group.missing) or isinstance(found, Bad)
            ):
                self._index(segment, rows)
                rows = []
            group.add(found)
            rows += self._bad(segment, found, left) if isinstance(found, Bad) else [found]
        else:
            if group.missing and durable <= group.start:
                rows = group.cut(rows)
                torn = Torn(group.start, "the end of a group of entries is missing")
                self._cut_torn(segment, torn, [row.end for row in rows])
        if segment.kind == REWRITTEN:
            rows.sort(key=lambda row: row.global_id)
            segment.reset()
            segment.index.truncate(FILE_HEADER_SIZE)
        self._index(segment, rows)
        segment.sync()

    def _index(self, segment: Segment, rows: list[IndexRow]) -> None:
        segment.index.append([encode_row(row) for row in rows])
        for row in rows:
            if not row.flags & ROW_DAMAGED:
                self._check_returned(segment.number, row)
            self._ids.add_entry(segment, row)

    def _bad(self, segment: Segment, bad: Bad, left: bytes) -> list[IndexRow]:
        """Add damage; returns the known rows of entries in it."""
        rows = [bad.row] if bad.row is not None else good_rows(left, bad)
        damage = SegmentDamage(segment.number, bad.start, bad.end, bad.reason, 0, 0)
        if rows and segment.kind == APPENDED:
            first, end = rows[0].global_id, rows[-1].global_id + rows[-1].record_count
            self._contents.add_damage(damage._replace(first_id=first, end_id=end))
        elif rows:  # ids of valid entries may be between theirs
            first, end = min(rows).global_id, max(rows).global_id + 1
            self._contents.add_damage(
                damage._replace(first_id=first, end_id=end, lost=lost_in(rows))
            )
        elif segment.kind == APPENDED:
            self._ids.open_damage(damage)
        else:  # it may have any of the missing ids
            known = (d for d in self._suspects.get(segment.number, ()) if d.start == bad.start)
            self._contents.add_damage(damage._replace(**_ids_of(next(known, damage))))
        return [row._replace(flags=row.flags | ROW_DAMAGED) for row in rows]

    def _cut_torn(self, segment: Segment, torn: Torn, ends: list[int]) -> None:
        size = segment.log.size()
        self._torn = True
        log.warning(
            "%s: cut off %d bytes of unfinished writes at position %d: %s",
            log_name(segment.number),
            size - torn.start,
            torn.start,
            torn.reason,
        )
        segment.log.truncate(max([segment.end, *ends[-1:]]))

    # --- missing files ------------------------------------------------------------------------

    def _unreadable(self, number: int, reason: str, size: int) -> None:
        """Add the damage of a missing or unreadable log file, by its index if it has one.

        If the segment was freed just before the crash, none of its records is live.
        """
        state = self._known.get(number)
        rows = orphan_rows(self._disk, number)
        damage = SegmentDamage(number, 0, size, reason, 0, 0)
        if state is not None and state.first_id is not None:
            first: int | None = state.first_id
        else:
            first = rows[0].global_id if rows else None
        if first is None:
            if size:
                self._ids.open_damage(damage)
            elif self._disk.exists(index_name(number)):
                self._disk.remove(index_name(number))
            return
        first = max(first, self._ids.next_id)
        self._ids.close_damages(first)
        self._ids.add_orphans(rows)
        if state is not None:
            self._ids.reach(state.next_id)
        self._contents.add_damage(damage._replace(first_id=first, end_id=self._ids.next_id))


def _ids_of(damage: SegmentDamage) -> dict[str, Any]:
    return {"first_id": damage.first_id, "end_id": damage.end_id, "lost": damage.lost}
