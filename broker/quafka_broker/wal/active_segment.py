"""The active segment as its writer extends it.

The event loop itself writes short groups: a write to the page cache takes some 10 µs, and passing
it to a thread several times that. A thread syncs, writes long groups, and does all other work that
waits for the disk. After a slow write, writes are left to the thread for a while (the kernel blocks
writers when too much is unsynced).
"""

from __future__ import annotations

import errno
import resource
from collections.abc import Callable
from functools import partial
from typing import TypeVar

from quafka_broker.partitions.partition import Partition
from quafka_broker.wal.acceptance import Acceptance
from quafka_broker.wal.commit_group import CommitGroup, WriterStats
from quafka_broker.wal.contents import Contents
from quafka_broker.wal.disk import Buffer, Disk
from quafka_broker.wal.errors import SyncError
from quafka_broker.wal.fsync import FsyncPolicy, sync_file
from quafka_broker.wal.log_thread import LogThread
from quafka_broker.wal.segment import Segment
from quafka_loop import clock

_SHORT_BYTES = 64 << 10
"""The event loop writes groups of at most this size."""

_SHORT_BUFFER = 1 << 10
"""Buffers of at most this average size are joined for the write, as are those of short groups."""

_LONG_SECONDS = 0.004
_WARY_SECONDS = 2.0
"""After a slower write of the event loop, the thread does the writes for this long."""

T = TypeVar("T")


class ActiveSegment:
    """The files of the log's last segment. Jobs of its thread change them, and the event loop
    while there is no such job.

    Attributes:
        stats: counters of writes since the start.
        end: the position after the last complete group, published or under way.
        entries: the entries up to there.
        next_id: the id after the last record up to there.
        durable: the position up to which the log is known to be durable.
        is_copy: whether the chain has the log: then the files are never synced.
        syncs_groups: whether a group is synced when it is written.
    """

    def __init__(
        self,
        disk: Disk,
        contents: Contents,
        acceptance: Acceptance,
        stats: WriterStats,
        fsync: FsyncPolicy | None,
    ) -> None:
        """All of the contents' last segment is durable. No `fsync`: a chain has the log."""
        self._disk = disk
        self._contents = contents
        self._acceptance = acceptance
        self.stats = stats
        self.is_copy = fsync is None
        self.syncs_groups = fsync is not None and fsync.every_commit
        segment = self.segment
        self.end, self.entries, self.next_id = segment.end, segment.entries, contents.next_id
        # The end of the last complete entry, and whether a sync is needed.
        self._written = self.durable = segment.end
        self._unsynced = False
        self._failed_sync: SyncError | None = None
        self._thread = LogThread("wal-write")
        self._wary_until = 0.0

    @property
    def segment(self) -> Segment:
        """The log's last segment."""
        return self._contents.segments[-1]

    async def run(self, job: Callable[[], T]) -> T:
        """Run a blocking job while nothing is written."""
        return await self._thread.run(job)

    def release(self) -> None:
        """Release the thread."""
        self._thread.close()

    # --- groups -----------------------------------------------------------------------------

    def new_group(self, ends: dict[Partition, int]) -> CommitGroup:
        """An empty group after the last complete one. `ends`: see `CommitGroup`."""
        epoch = self._contents.epochs.current
        return CommitGroup(self.segment.salt, self.next_id, self.end, self.durable, epoch, ends)

    async def write(self, group: CommitGroup) -> None:
        """Write a group, and sync it if required. Raises OSError; `take_back` undoes it."""
        began, waits = clock.perf_counter(), _waits()
        is_short = group.size <= _SHORT_BYTES and began >= self._wary_until
        if not is_short or self._thread.is_busy:
            await self._thread.run(partial(self._write_and_sync, group))
            return
        self._write(group)
        ended = clock.perf_counter()
        if ended - began > _LONG_SECONDS and _waits() > waits:
            self._wary_until = ended + _WARY_SECONDS
        if self.syncs_groups:
            await self._thread.run(partial(self._sync_group, group))

    def _write(self, group: CommitGroup) -> None:
        self._unsynced = not self.is_copy
        group.began = clock.time_ns()
        buffers: list[Buffer] = group.buffers
        if group.size <= max(_SHORT_BYTES, _SHORT_BUFFER * len(buffers)):
            buffers = [b"".join(buffers)]  # cheaper than a list of many short buffers
        self.segment.write(buffers, group.rows)
        self._written = group.position
        group.written = group.synced = clock.time_ns()

    def _sync_group(self, group: CommitGroup) -> None:
        self._sync()
        group.synced = clock.time_ns()

    def _write_and_sync(self, group: CommitGroup) -> None:
        self._write(group)
        if self.syncs_groups:
            self._sync_group(group)

    def advance(self, group: CommitGroup) -> None:
        """Let the next group follow this one, which has been written."""
        self.end, self.next_id = group.position, group.next_id
        self.entries += len(group.rows)

    async def take_back(self) -> None:
        """Durably truncate the files to the complete groups. Raises OSError."""
        await self._thread.run(lambda: self.segment.truncate(self.end, self.entries))

    async def begin_next(self) -> None:
        """Begin a new segment, unless the active one is empty. Raises OSError.

        No group may be under way.
        """
        if self.segment.entries:
            await self._thread.run(self._roll)
            self.end, self.entries = self.segment.end, 0

    def _roll(self) -> None:
        """Seal the active segment and begin the next, in the thread. Raises OSError."""
        self._sync()
        sync_file(self.segment.index)
        self._contents.append_segment(Segment.create(self._disk, self.segment.number + 1))
        self._written = self.durable = self.segment.end

    # --- sync -------------------------------------------------------------------------------

    async def make_durable(self) -> tuple[int, int]:
        """Sync the log and its index; returns the segment's number and its durable position.

        Raises:
            OSError: the log has failed, or fails now.
        """

        def sync() -> tuple[int, int]:
            self._sync()
            sync_file(self.segment.index)
            return self.segment.number, self.durable

        return await self._syncing(sync)

    async def make_log_durable(self) -> None:
        """Sync the written part of the log, but not the index, so that appends hardly wait for it.

        Raises:
            OSError: the log has failed, or fails now.
        """
        await self._syncing(self._sync)

    async def _syncing(self, sync: Callable[[], T]) -> T:
        acceptance = self._acceptance
        if acceptance.failure is not None:
            raise OSError(errno.EIO, acceptance.failure)
        try:
            return await self._thread.run(sync)
        except SyncError as e:
            acceptance.fail(e)
            raise

    def _sync(self) -> None:
        """Sync the log, in the thread. Raises SyncError, and does so for ever after."""
        if self._failed_sync is not None:
            raise self._failed_sync
        if not self._unsynced:
            return
        began = clock.perf_counter()
        try:
            sync_file(self.segment.log)
        except SyncError as e:
            self._failed_sync = e
            raise
        self.stats.fsync.observe(clock.perf_counter() - began)
        self._unsynced = False
        self.durable = self._written


def _waits() -> int:
    """How often this thread has waited voluntarily, not for a processor in use by others."""
    return resource.getrusage(resource.RUSAGE_THREAD).ru_nvcsw
