"""From a virtual offset to record batches: which entries to read, neighbours in one run.

What is in memory is read at once; whatever would wait for the device is done in a thread. Every
batch that is handed out was compared with its index row and its CRC-32C.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import takewhile
from typing import NamedTuple, TypeVar

from quafka_broker.partitions.errors import CorruptError
from quafka_broker.partitions.partition import Partition, PartitionId
from quafka_broker.wal.contents import Contents
from quafka_broker.wal.disk import File
from quafka_broker.wal.quarantine import damaged_entry
from quafka_broker.wal.segment import BadIndexError, Read, Rows, Segment
from quafka_proto.errors import Malformed
from quafka_proto.log_format import (
    ENTRY_HEADER_SIZE,
    REWRITTEN,
    IndexRow,
    check_entry_header,
    row_of,
)
from quafka_proto.records import (
    BATCH_HEADER,
    BATCH_HEADER_SIZE,
    LENGTH_FROM,
    MAGIC,
    PATCHED_SIZE,
    crc32c,
)

log = logging.getLogger("quafka.broker.wal")

_PATCHED = BATCH_HEADER.part("base_offset", "length", "leader_epoch", "magic", "crc")
_AT_ONCE = 1 << 20  # bytes that are copied and summed without holding up the event loop
_FEW = 256  # batches that are looked up likewise; no more than so many records are as few
_BREATH = 50e-6
_AHEAD = 128 << 10
_HEAD_SIZE = ENTRY_HEADER_SIZE + BATCH_HEADER_SIZE

T = TypeVar("T")


class Run(NamedTuple):
    """Entries that lie side by side in one segment and are read at once."""

    segment: Segment
    rows: list[IndexRow]

    @property
    def position(self) -> int:
        """Where the first entry begins."""
        return self.rows[0].position

    @property
    def size(self) -> int:
        """Bytes from there to the end of the last entry."""
        return self.rows[-1].end - self.position


class Room(NamedTuple):
    """What an answer may hold: whole batches of so many bytes, and so many of them.

    With `at_least_one` the first batch is returned however large.
    """

    bytes: int
    batches: int
    at_least_one: bool = True


class _Bad(NamedTuple):
    """An entry that was read and is not what was written."""

    segment: Segment
    row: IndexRow
    reason: str


@dataclass(slots=True)
class ReadTimes:
    """When a read found its place in the index, and when it had read it, in ns since the epoch.

    `from_disk`: whether a thread has waited for the device.
    """

    began: int = 0
    indexed: int = 0
    read: int = 0
    from_disk: bool = False


class Reader:
    """Reads a log's contents."""

    def __init__(self, contents: Contents) -> None:
        self._contents = contents
        self._threads = ThreadPoolExecutor(4, thread_name_prefix="wal-read")

    def close(self) -> None:
        """Wait for what is being read."""
        self._threads.shutdown()

    async def batches(
        self,
        partition: Partition,
        offset: int,
        room: Room,
        times: ReadTimes | None = None,
    ) -> list[memoryview]:
        """Whole batches from the one that holds `offset` on, as many as there is room for.

        Raises:
            CorruptError: the first one is lost to damage. A later one that is ends the answer.
            Malformed, OSError: the index or the log cannot be read.
            OffsetGoneError: the log start is above `offset`.
        """

        def read(how: Read) -> tuple[list[memoryview], _Bad | None]:
            found: list[memoryview] = []
            runs = plan(self._contents, partition, offset, room, how)
            if times is not None:
                times.indexed = time.time_ns()
                times.from_disk = how is _from_disk
            for run in runs:
                bad = _read_run(run, how, found)
                if bad is not None:
                    return found, bad
            return found, None

        if times is not None:
            times.began = time.time_ns()
        # Much of it is copied, or many of them are looked up, where nobody waits for the loop.
        much = room.bytes > _AT_ONCE and partition.high_watermark - offset > _FEW
        batches, bad = await (self._in_thread(read) if much else self._run(read))
        if times is not None:
            times.read = time.time_ns()
        if bad is not None:
            self._quarantine(bad)
            if not batches:
                raise CorruptError(f"offset {offset}: {bad.reason}")
        return batches

    async def rows(
        self, partition: Partition, start: int, wanted: Callable[[IndexRow], bool]
    ) -> list[IndexRow]:
        """The index rows from the batch that holds `start` on, as long as they are wanted.

        Raises:
            CorruptError: the first one is lost to damage.
            Malformed, OSError: the index cannot be read.
            OffsetGoneError: the log start is above `start`.
        """

        def read(how: Read) -> list[IndexRow]:
            rows = (row for _, row in entries_from(self._contents, partition, start, how))
            return list(takewhile(wanted, rows))

        return await self._run(read)

    async def has_entry(self, partition: Partition, offset: int) -> bool:
        """Whether the index has the entry of a readable offset.

        Raises:
            CorruptError: it is lost to damage.
            OSError: the index cannot be read.
            OffsetGoneError: the log start is above `offset`.
        """

        def look(how: Read) -> bool:
            try:
                return next(entries_from(self._contents, partition, offset, how), None) is not None
            except Malformed:
                return False

        return await self._run(look)

    def readable(
        self, partition: Partition, offset: int, enough: int, most: int
    ) -> tuple[int, int]:
        """See `Log.readable`.

        Raises:
            See `rows`.
        """
        found = batches = 0
        try:
            for _, row in entries_from(self._contents, partition, offset, _from_memory):
                if found >= enough or batches >= most:
                    break
                found += row.length
                batches += 1
        except _NotInMemoryError:
            return enough, batches
        return found, batches

    async def _run(self, job: Callable[[Read], T]) -> T:
        """Do a job that reads: here if all of it is in memory, in a thread if not."""
        try:
            return job(_from_memory)
        except _NotInMemoryError:
            return await self._in_thread(job)

    async def _in_thread(self, job: Callable[[Read], T]) -> T:
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._threads, job, _from_disk)

    def _quarantine(self, bad: _Bad) -> None:
        damage = damaged_entry(bad.segment.number, bad.row, bad.reason)
        log.error("damaged: %s", damage)
        self._contents.quarantine.add(damage)


class _NotInMemoryError(Exception):
    """Reading would take long."""


def _from_memory(file: File, position: int, size: int) -> bytearray:
    found = file.read_cached(position, size) if size <= _AT_ONCE else None
    if found is None:
        raise _NotInMemoryError
    return found


def _from_disk(file: File, position: int, size: int) -> bytes:
    return file.read(position, size)


def _read_run(run: Run, how: Read, found: list[memoryview]) -> _Bad | None:
    """Read entries and add their batches to `found`, up to one that is bad."""
    data = how(run.segment.log, run.position, run.size)
    view = memoryview(data)
    for row in run.rows:
        start = row.position - run.position + ENTRY_HEADER_SIZE
        batch = view[start : start + row.length]
        reason = _fault(batch, row)
        if reason is not None:
            return _Bad(run.segment, row, reason)
        found.append(batch)
    return None


def _fault(batch: memoryview, row: IndexRow) -> str | None:
    """Why a batch is not the one that its row is about; None for the right one.

    The index row has a CRC of its own. It says what the bytes must be that lie outside the
    batch's CRC.
    """
    if len(batch) < row.length:
        return "the file ends before it"
    base, length, epoch, magic, crc = _PATCHED.unpack_from(batch)
    if (base, length + LENGTH_FROM, epoch, magic) != (
        row.base_offset,
        row.length,
        row.leader_epoch,
        MAGIC,
    ):
        return "the record batch is not the one that the index has"
    if crc32c(batch[PATCHED_SIZE:]) != crc:
        return "the record batch does not match its CRC"
    return None


def plan(
    contents: Contents,
    partition: Partition,
    offset: int,
    room: Room,
    how: Read,
) -> list[Run]:
    """What to read for as many whole batches from `offset` on as there is room for.

    Raises:
        See `Reader.batches`.
    """
    runs: list[Run] = []
    taken = 0
    for batches, (segment, row) in enumerate(entries_from(contents, partition, offset, how)):
        if batches >= room.batches or taken + row.length > room.bytes:
            if taken or not room.at_least_one:
                break
        elif batches and not batches % _FEW:
            _pause(how)
        taken += row.length
        last = runs[-1] if runs else None
        if last is not None and last.segment is segment and last.rows[-1].end == row.position:
            last.rows.append(row)
        else:
            runs.append(Run(segment, [row]))
    return runs


def _pause(how: Read) -> None:
    """Let the event loop go on: so many batches are looked up in a thread, with turns for it."""
    if how is _from_memory:
        raise _NotInMemoryError
    time.sleep(_BREATH)


def entries_from(
    contents: Contents, partition: Partition, offset: int, how: Read
) -> Iterator[tuple[Segment, IndexRow]]:
    """The entry that holds a readable offset, and those of the virtual topic behind it.

    They end before the first that is lost to damage.

    Raises:
        CorruptError: that is the first one.
        Malformed, OSError: the index cannot be read.
        OffsetGoneError: the log start is above `offset`.
    """
    lost = contents.quarantine.first_lost(partition.id, offset)
    if lost == offset:
        raise CorruptError(f"offset {offset} is lost to damage")
    block: Rows | None = None
    last: IndexRow | None = None
    ahead = _Ahead(how)
    number = 0
    while offset < (partition.high_watermark if lost is None else lost):
        number += 1
        if block is not None and block.segment.kind == REWRITTEN:
            row = ahead.row_behind(block.segment, last.end) if last is not None else None
            row = row if row is not None and _is_at(row, partition.id, offset) else None
        else:
            row = _if_next(block, number, partition.id, offset)
        if row is None or block is None:
            block, number, row = _look_up(contents, partition, offset, block, how)
        yield block.segment, row
        last = row
        offset = row.base_offset + row.record_count


def _look_up(
    contents: Contents, partition: Partition, offset: int, block: Rows | None, how: Read
) -> tuple[Rows, int, IndexRow]:
    global_id = partition.global_id_at(offset)
    segment = contents.segment_of(global_id)
    if segment is None:
        raise Malformed(f"no segment holds the record {global_id}")
    rows, number = segment.find(global_id, how, block)
    row = rows.row(number)
    # Its neighbour may be another partition's, with an offset that fits.
    if not row.global_id <= global_id < row.global_id + row.record_count:
        raise BadIndexError(segment, f"it lacks the record {global_id}")
    return rows, number, row


def _if_next(
    block: Rows | None, number: int, partition: PartitionId, offset: int
) -> IndexRow | None:
    """The row behind the last one, where it happens to be the one: no search is needed."""
    if block is None or number >= block.end:
        return None
    row = block.row(number)
    return row if _is_at(row, partition, offset) else None


class _Ahead:
    """Reads straight on in the log of a rewritten segment, where its index has no neighbours.

    A virtual topic's entries lie one behind the other there. Their rows in the index, which is in
    the order of ids, do not: looking each up would be a read here and there for every batch.
    """

    def __init__(self, how: Read) -> None:
        self._how = how
        self._segment: Segment | None = None
        self._start = 0
        self._data = memoryview(b"")

    def row_behind(self, segment: Segment, position: int) -> IndexRow | None:
        """The row of the entry at a position behind another one; None if none is seen there."""
        at = position - self._start
        if segment is not self._segment or not 0 <= at <= len(self._data) - _HEAD_SIZE:
            size = min(_AHEAD, segment.end - position)
            if size < _HEAD_SIZE:
                return None
            self._data = memoryview(self._how(segment.log, position, size))
            self._segment, self._start, at = segment, position, 0
        try:
            entry = check_entry_header(self._data, at, segment.salt)
        except Malformed:
            return None  # the index knows what is there
        return row_of(entry, position, self._data[at + ENTRY_HEADER_SIZE :])


def _is_at(row: IndexRow, partition: PartitionId, offset: int) -> bool:
    return (
        row.base_offset == offset
        and row.topic_hash == partition.topic_hash
        and row.partition == partition.partition
        and row.org_id == partition.org_id
        and row.generation == partition.generation
    )
