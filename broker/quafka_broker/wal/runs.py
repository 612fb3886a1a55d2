"""Runs of adjacent entries: plans those of an answer, and reads their batches, verified."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from quafka_broker.partitions.errors import CorruptError, OffsetGoneError
from quafka_broker.partitions.partition import Partition
from quafka_broker.wal.contents import Contents
from quafka_broker.wal.disk import File
from quafka_broker.wal.lookup import entries_from
from quafka_broker.wal.segment import Read, Segment
from quafka_loop import clock
from quafka_proto.log_format import ENTRY_HEADER_SIZE, IndexRow
from quafka_proto.records import BATCH_HEADER, LENGTH_FROM, MAGIC, PATCHED_SIZE, crc32c

_PATCHED = BATCH_HEADER.part("base_offset", "length", "leader_epoch", "magic", "crc")
INLINE_BYTES = 1 << 20
"""The maximum bytes that are copied and checksummed on the event loop."""
INLINE_BATCHES = 256
"""The maximum number of batches looked up on the event loop, and in a thread between two pauses."""
_PAUSE_SECONDS = 50e-6


# --- read modes -----------------------------------------------------------------------------


class NotInMemoryError(Exception):
    """The read would block the event loop."""


def from_memory(file: File, position: int, size: int) -> bytearray:
    """Read from the page cache only.

    Raises:
        NotInMemoryError: the bytes are not cached, or too many for the event loop.
        OSError: the file cannot be read.
    """
    found = file.read_cached(position, size) if size <= INLINE_BYTES else None
    if found is None:
        raise NotInMemoryError
    return found


def from_disk(file: File, position: int, size: int) -> bytes:
    """Read, waiting for the device. Blocks.

    Raises:
        OSError: the file cannot be read.
    """
    return file.read(position, size)


# --- runs -----------------------------------------------------------------------------------


class Room(NamedTuple):
    """The bounds of an answer: bytes of whole batches, and the number of batches.

    With `at_least_one` the first batch is returned regardless of its size.
    """

    bytes: int
    batches: int
    at_least_one: bool = True


class EntryRun(NamedTuple):
    """Contiguous entries of one segment, read with one call."""

    segment: Segment
    rows: list[IndexRow]

    @property
    def position(self) -> int:
        """The position of the first entry."""
        return self.rows[0].position

    @property
    def size(self) -> int:
        """Bytes from there to the end of the last entry."""
        return self.rows[-1].end - self.position


def below(runs: list[EntryRun], end: int) -> list[EntryRun]:
    """The entries with base offsets below `end`; runs are in the order of offsets."""
    if not runs or runs[-1].rows[-1].base_offset < end:
        return runs
    cut = [
        EntryRun(run.segment, [row for row in run.rows if row.base_offset < end]) for run in runs
    ]
    return [run for run in cut if run.rows]


class BadEntry(NamedTuple):
    """An entry whose bytes have changed since they were written."""

    segment: Segment
    row: IndexRow
    reason: str


def plan_runs(
    contents: Contents, partition: Partition, offset: int, room: Room, how: Read
) -> list[EntryRun]:
    """Plan the runs of as many whole batches from `offset` on as there is room for.

    Raises:
        CorruptError: `offset` is lost to damage.
        NotInMemoryError: `how` must not block, and this would.
        Malformed, OSError: the index cannot be read.
        OffsetGoneError: the log start is above `offset`.
    """
    runs: list[EntryRun] = []
    size = 0
    for batches, (segment, row) in enumerate(entries_from(contents, partition, offset, how)):
        if batches >= room.batches or size + row.length > room.bytes:
            if size or not room.at_least_one:
                break
        elif batches and not batches % INLINE_BATCHES:
            _pause(how)
        size += row.length
        last = runs[-1] if runs else None
        if last is not None and last.segment is segment and last.rows[-1].end == row.position:
            last.rows.append(row)
        else:
            runs.append(EntryRun(segment, [row]))
    return runs


def _pause(how: Read) -> None:
    """Continue a long lookup in a thread, which then regularly yields the interpreter."""
    if how is from_memory:
        raise NotInMemoryError
    clock.sleep(_PAUSE_SECONDS)


def batches_between(
    contents: Contents, partition: Partition, start: int, end: int
) -> Iterator[tuple[IndexRow, memoryview]]:
    """The verified batches with base offsets in [start, end), for a thread.

    Raises:
        CorruptError: a batch is lost to damage.
        Malformed, OSError: the log cannot be read.
    """
    room = Room(INLINE_BYTES, INLINE_BATCHES)
    while start < end:
        try:
            runs = plan_runs(contents, partition, start, room, from_disk)
        except OffsetGoneError:
            start = max(start, partition.log_start)
            continue
        for run in runs:
            batches: list[memoryview] = []
            bad = read_run(run, from_disk, batches)
            if bad is not None:
                raise CorruptError(f"offset {bad.row.base_offset}: {bad.reason}")
            for row, batch in zip(run.rows, batches, strict=True):
                if row.base_offset >= end:
                    return
                yield row, batch
                start = row.base_offset + row.record_count
        if not runs:
            return


def announce(runs: Iterable[EntryRun]) -> None:
    """Announce the reads of all runs."""
    ranges: dict[Segment, list[tuple[int, int]]] = {}
    for run in runs:
        ranges.setdefault(run.segment, []).append((run.position, run.size))
    for segment, some in ranges.items():
        segment.log.will_read(some)


def read_run(run: EntryRun, how: Read, batches: list[memoryview]) -> BadEntry | None:
    """Read a run and append its batches to `batches`, up to the first bad entry."""
    data = how(run.segment.log, run.position, run.size)
    view = memoryview(data)
    for row in run.rows:
        start = row.position - run.position + ENTRY_HEADER_SIZE
        batch = view[start : start + row.length]
        reason = _fault(batch, row)
        if reason is not None:
            return BadEntry(run.segment, row, reason)
        batches.append(batch)
    return None


def _fault(batch: memoryview, row: IndexRow) -> str | None:
    """Why a batch does not match its row; None if it does.

    The row, which has a CRC of its own, covers the header fields outside the batch's CRC.
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
