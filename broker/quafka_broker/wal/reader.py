"""Reads a log's records and index rows, by partition and offset.

A read runs on the event loop if the page cache has all of its bytes, otherwise in a thread. Every
returned batch has been verified against its index row and its CRC-32C.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import takewhile
from typing import TypeVar

from quafka_broker.partitions.errors import CorruptError, StorageError
from quafka_broker.partitions.partition import Partition
from quafka_broker.wal.contents import Contents
from quafka_broker.wal.index_rebuild import IndexRebuilds
from quafka_broker.wal.lookup import entries_from
from quafka_broker.wal.runs import (
    INLINE_BATCHES,
    INLINE_BYTES,
    BadEntry,
    EntryRun,
    NotInMemoryError,
    Room,
    announce,
    from_disk,
    from_memory,
    plan_runs,
    read_run,
)
from quafka_broker.wal.segment import BadIndexError, Read
from quafka_loop import clock, threads
from quafka_loop.slices import Slices
from quafka_proto.errors import Malformed
from quafka_proto.log_format import IndexRow

log = logging.getLogger("quafka.broker.wal")

_LOOKUPS_PER_SLICE = 100
_UNBOUNDED = 1 << 62

T = TypeVar("T")


@dataclass(slots=True)
class ReadTimes:
    """When a read began, had looked up its entries, and had read them, in ns since the epoch.

    `from_disk`: whether a thread waited for the device.
    """

    began: int = 0
    indexed: int = 0
    read: int = 0
    from_disk: bool = False


class Reader:
    """Reads a log's contents. A read that finds a bad index rebuilds it, and retries once."""

    def __init__(self, contents: Contents, rebuilds: IndexRebuilds) -> None:
        self._contents = contents
        self._rebuilds = rebuilds
        self._threads = threads.ThreadPoolExecutor(4, thread_name_prefix="wal-read")

    def close(self) -> None:
        """Wait for running reads."""
        self._threads.shutdown()

    # --- batches ----------------------------------------------------------------------------

    async def read(
        self, partition: Partition, offset: int, max_bytes: int, *, at_least_one: bool
    ) -> list[memoryview]:
        """Read whole batches from the one with `offset` on, at most `max_bytes` in total.

        With `at_least_one` the first batch is returned regardless of its size. `offset` must be
        within [log_start, high_watermark]. At the high watermark the answer is empty.

        Raises:
            StorageError: the bytes cannot be read.
            CorruptError: the first batch is lost to damage. A later lost batch ends the answer.
            OffsetGoneError: the log start is above `offset`.
        """
        return await self.read_within(partition, offset, Room(max_bytes, _UNBOUNDED, at_least_one))

    async def read_within(
        self, partition: Partition, offset: int, room: Room, times: ReadTimes | None = None
    ) -> list[memoryview]:
        """`read` with a bound on the number of batches. `times` receives the times of the steps.

        Raises:
            See `read`.
        """
        try:
            try:
                return await self._batches(partition, offset, room, times)
            except BadIndexError as e:
                if not await self._rebuilds.rebuild(e.segment):
                    raise
                return await self._batches(partition, offset, room, times)
        except (OSError, Malformed) as e:
            raise self._unreadable(partition, offset, e) from e

    async def _batches(
        self, partition: Partition, offset: int, room: Room, times: ReadTimes | None
    ) -> list[memoryview]:
        def read(how: Read) -> tuple[list[memoryview], BadEntry | None]:
            runs = plan_runs(self._contents, partition, offset, room, how)
            if times is not None:
                times.indexed = clock.time_ns()
            return _read_all(runs, times, how)

        if times is not None:
            times.began = clock.time_ns()
        # A large answer is looked up and copied in a thread from the start.
        large = room.bytes > INLINE_BYTES and partition.high_watermark - offset > INLINE_BATCHES
        return await self._sound(read, offset, large, times)

    async def locate(
        self, partition: Partition, offset: int, room: Room, times: ReadTimes | None = None
    ) -> list[EntryRun]:
        """The entries that `read_within` would read; `read_runs` reads them.

        Raises:
            See `read`, but undiscovered damage is not noticed.
        """

        def plan(how: Read) -> list[EntryRun]:
            return plan_runs(self._contents, partition, offset, room, how)

        if times is not None:
            times.began = clock.time_ns()
        try:
            try:
                runs = await self._run(plan)
            except BadIndexError as e:
                if not await self._rebuilds.rebuild(e.segment):
                    raise
                runs = await self._run(plan)
        except (OSError, Malformed) as e:
            raise self._unreadable(partition, offset, e) from e
        if times is not None:
            times.indexed = times.read = clock.time_ns()
        return runs

    async def read_runs(
        self,
        partition: Partition,
        offset: int,
        runs: list[EntryRun],
        times: ReadTimes | None = None,
    ) -> list[memoryview]:
        """Read the batches of located runs.

        Raises:
            See `read`.
        """

        large = sum(run.size for run in runs) > INLINE_BYTES
        try:
            return await self._sound(partial(_read_all, runs, times), offset, large, times)
        except OSError as e:
            raise self._unreadable(partition, offset, e) from e

    async def _sound(
        self,
        read: Callable[[Read], tuple[list[memoryview], BadEntry | None]],
        offset: int,
        large: bool,
        times: ReadTimes | None,
    ) -> list[memoryview]:
        """Read batches up to the first damaged one. Raises CorruptError if that is the first."""
        batches, bad = await (self._in_thread(read) if large else self._run(read))
        if times is not None:
            times.read = clock.time_ns()
        if bad is not None:
            self._contents.add_bad_entry(*bad)
            if not batches:
                raise CorruptError(f"offset {offset}: {bad.reason}")
        return batches

    def _unreadable(self, partition: Partition, offset: int, error: Exception) -> StorageError:
        key = partition.id.key
        log.warning("partition %s cannot be read at offset %d: %s", key, offset, error)
        return StorageError(str(error))

    # --- index rows -------------------------------------------------------------------------

    async def rows(self, partition: Partition, start: int, end: int) -> list[IndexRow]:
        """The index rows of batches with offsets in [start, end) that are not lost.

        Raises:
            StorageError: the index cannot be read.
            OffsetGoneError: the log start is above `start`.
        """
        found: list[IndexRow] = []
        while start < end:
            try:
                rows = await self._rows_before(partition, start, end)
            except CorruptError:
                start = self.end_of_lost(partition, start)
                continue
            except BadIndexError as e:
                if not await self._rebuilds.rebuild(e.segment):
                    raise StorageError(str(e)) from e
                continue
            except (OSError, Malformed) as e:
                raise StorageError(str(e)) from e
            if not rows:
                break
            found += rows
            start = rows[-1].base_offset + rows[-1].record_count
        return found

    async def _rows_before(self, partition: Partition, start: int, end: int) -> list[IndexRow]:
        def read(how: Read) -> list[IndexRow]:
            rows = (row for _, row in entries_from(self._contents, partition, start, how))
            return list(takewhile(lambda row: row.base_offset < end, rows))

        return await self._run(read)

    def readable(
        self, partition: Partition, offset: int, enough: int, most: int
    ) -> tuple[int, int]:
        """Bytes and number of whole batches from `offset` on.

        Counting stops at `enough` bytes or `most` batches. It never waits for the device: if the
        index is not in memory, the reader is far from the end, and the answer is `enough`.

        Raises:
            StorageError: the index cannot be read, or the first batch is lost.
            OffsetGoneError: the log start is above `offset`.
        """
        found = batches = 0
        try:
            for _, row in entries_from(self._contents, partition, offset, from_memory):
                if found >= enough or batches >= most:
                    break
                found += row.length
                batches += 1
        except NotInMemoryError:
            return enough, batches
        except BadIndexError:
            return enough, 1  # the following read triggers the rebuild
        except (OSError, Malformed) as e:
            raise StorageError(str(e)) from e
        return found, batches

    # --- damage -----------------------------------------------------------------------------

    def end_of_lost(self, partition: Partition, offset: int) -> int:
        """The first offset at or above this one that is not lost to damage."""
        return self._contents.quarantine.end_of_lost(partition.id, offset)

    async def next_readable(self, partition: Partition, offset: int) -> int:
        """The first offset above this one that has an entry; the high watermark if none has.

        Raises:
            StorageError: the index cannot be read.
        """
        slices = Slices(_LOOKUPS_PER_SLICE)
        offset += 1
        while (offset := self.end_of_lost(partition, offset)) < partition.high_watermark:
            await slices.done()
            try:
                if await self._has_entry(partition, offset):
                    break
            except OSError as e:
                raise StorageError(str(e)) from e
            offset += 1
        return offset

    async def _has_entry(self, partition: Partition, offset: int) -> bool:
        def look(how: Read) -> bool:
            try:
                return next(entries_from(self._contents, partition, offset, how), None) is not None
            except Malformed:
                return False

        return await self._run(look)

    # --- threads ----------------------------------------------------------------------------

    async def _run(self, job: Callable[[Read], T]) -> T:
        """Run a reading job on the event loop if the page cache has all bytes, else in a thread."""
        try:
            return job(from_memory)
        except NotInMemoryError:
            return await self._in_thread(job)

    async def _in_thread(self, job: Callable[[Read], T]) -> T:
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._threads, job, from_disk)


def _read_all(
    runs: list[EntryRun], times: ReadTimes | None, how: Read
) -> tuple[list[memoryview], BadEntry | None]:
    """Read the runs' batches up to the first damaged entry; also returns that entry."""
    if times is not None:
        times.from_disk = how is from_disk
    found: list[memoryview] = []
    if how is from_disk and len(runs) > 1:
        announce(runs)
    for run in runs:
        bad = read_run(run, how, found)
        if bad is not None:
            return found, bad
    return found, None
