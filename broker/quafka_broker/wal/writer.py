"""The one writer of the log.

Group commit: the writer takes all waiting appends, assigns ids and offsets, writes them with one
call and syncs once. Appends that arrive meanwhile form the next group. So the first append never
waits for others, and with more producers, more appends share a sync.

The event loop itself writes short groups: a write to the page cache takes some 10 µs, and passing
it to a thread several times that. A thread syncs, writes long groups, and does all other work that
waits for the disk. After a slow write, writes are left to the thread for a while (the kernel blocks
writers when too much is unsynced).
"""

from __future__ import annotations

import asyncio
import errno
import logging
import resource
from collections.abc import Callable, Sequence, Set
from dataclasses import dataclass, field
from functools import partial
from typing import TypeVar

from quafka_broker.partitions.errors import InDoubtError
from quafka_broker.partitions.partition import PartitionId
from quafka_broker.wal.append_queue import AppendQueue
from quafka_broker.wal.commit_group import Append, CommitGroup
from quafka_broker.wal.contents import Contents
from quafka_broker.wal.disk import Buffer, Disk
from quafka_broker.wal.errors import SyncError
from quafka_broker.wal.fsync import FsyncPolicy, sync_file
from quafka_broker.wal.log_thread import LogThread
from quafka_broker.wal.reserve import Reserve
from quafka_broker.wal.segment import Segment
from quafka_loop import clock
from quafka_loop.eager_task import EagerTask
from quafka_proto.log_format import FILE_HEADER_SIZE
from quafka_telemetry.metrics import Histogram

log = logging.getLogger("quafka.broker.wal")

MAX_APPENDS = 512
"""The maximum number of appends per commit. The event loop assigns their ids in one turn."""

_SHORT_BYTES = 64 << 10
"""The event loop writes groups of at most this size."""

_SHORT_BUFFER = 1 << 10
"""Buffers of at most this average size are joined for the write, as are those of short groups."""

_LONG_SECONDS = 0.004
_WARY_SECONDS = 2.0
"""After a slower write of the event loop, the thread does the writes for this long."""

T = TypeVar("T")


@dataclass(slots=True)
class WriterStats:
    """Plain counters since the start. `largest`: the maximum number of appends in one commit."""

    groups: int = 0
    appends: int = 0
    bytes: int = 0
    largest: int = 0
    fsync: Histogram = field(default_factory=Histogram)
    """Seconds of each sync of the log; observed in the writer's thread."""


class Writer:
    """Appends to the active segment, and rolls to the next one."""

    def __init__(
        self,
        disk: Disk,
        contents: Contents,
        reserve: Reserve,
        fsync: FsyncPolicy,
        segment_bytes: int,
    ) -> None:
        """The contents' last segment is the active one; all of it is durable."""
        self._disk = disk
        self._contents = contents
        self._reserve = reserve
        self._fsync = fsync
        self._segment_bytes = self._group_bytes = segment_bytes
        # State of the active segment: the end of its last complete entry, the position up to which
        # it is known to be fsynced, and whether a sync is needed. Jobs of the thread change it, and
        # the loop while there is no such job.
        self._written = self._durable = self._active.end
        self._unsynced = False
        self.queue = AppendQueue()
        self._writing: Sequence[Append] = ()  # taken from the queue, not yet answered
        self._closing = False
        self.refusing: str | None = None
        """Why the last write failed; None if it did not."""
        self.failure: str | None = None
        """Why there are no more writes; None while there may be."""
        self.stats = WriterStats()
        self.on_commit: Callable[[Set[PartitionId]], None] = lambda _partitions: None
        """Called with the partitions that have grown."""
        self._thread = LogThread("wal-write")
        self._others_jobs = 0  # jobs of the thread that are not part of a commit
        self._wary_until = 0.0
        self._task: EagerTask[None] | None = None
        self._late_sync: asyncio.Task[None] | None = None
        self._seal_asked: asyncio.Future[None] | None = None

    # --- life -------------------------------------------------------------------------------

    def start(self) -> None:
        """Begin to write."""
        self._task = EagerTask(self._write_groups())
        self._task.add_done_callback(self._ended)

    async def close(self) -> None:
        """Write all waiting appends, and sync. `failure` is set if that is impossible."""
        self._closing = True
        self.queue.closed = self.queue.closed or "the broker stops"
        self.queue.wake()
        if self._task is not None:
            await asyncio.wait([self._task])
        self.queue.answers.send_all()
        if self._late_sync is not None:
            self._late_sync.cancel()
        if self.failure is None:
            await self._sync_or_fail()

    def release(self) -> None:
        """Release the thread."""
        self._thread.close()

    @property
    def busy(self) -> bool:
        """Whether appends wait."""
        return bool(self.queue.waiting)

    async def make_durable(self) -> tuple[int, int]:
        """Sync the active segment and its index; returns its number and durable position.

        Raises:
            OSError: the log has failed, or fails now.
        """

        def sync() -> tuple[int, int]:
            self._sync()
            sync_file(self._active.index)
            return self._active.number, self._durable

        return await self._syncing(sync)

    async def make_log_durable(self) -> None:
        """Sync the written part of the log, but not the index, so that appends hardly wait for it.

        Raises:
            OSError: the log has failed, or fails now.
        """
        await self._syncing(self._sync)

    async def run(self, job: Callable[[], T]) -> T:
        """Run a blocking job while there are no appends."""
        self._others_jobs += 1
        try:
            return await self._thread.run(job)
        finally:
            self._others_jobs -= 1

    async def _syncing(self, sync: Callable[[], T]) -> T:
        if self.failure is not None:
            raise OSError(errno.EIO, self.failure)
        try:
            return await self.run(sync)
        except SyncError as e:
            self._fail(e)
            raise

    async def seal(self) -> None:
        """Begin a new segment, unless the active one is empty: sealed ones can be rewritten.

        Raises:
            OSError: the segment is still the active one, or the log has failed.
        """
        if self.failure is not None or self.queue.closed is not None:
            raise OSError(errno.EIO, self.failure or self.queue.closed)
        if self._seal_asked is None:
            self._seal_asked = asyncio.get_running_loop().create_future()
            self.queue.wake()
        await asyncio.shield(self._seal_asked)

    async def _seal_if_asked(self) -> None:
        asked, self._seal_asked = self._seal_asked, None
        if asked is None:
            return
        try:
            await self._begin_segment()
        except OSError as e:
            if isinstance(e, SyncError):
                self._fail(e)
            asked.set_exception(e)
        else:
            asked.set_result(None)

    # --- commit -----------------------------------------------------------------------------

    async def _write_groups(self) -> None:
        queue = self.queue
        while True:
            await queue.wait_for_work()
            await self._seal_if_asked()
            while queue.waiting:
                await self._commit_group()
                await self._let_others_run()
                await self._seal_if_asked()
            if self._closing:
                return

    async def _let_others_run(self) -> None:
        """Wait for the answers of the last group, whose callers often have the next append.

        Without a sync, a commit may not have yielded at all.
        """
        answers = self.queue.answers
        if not self._fsync.every_commit:
            await self.queue.turn()
        while answers.are_due:
            await self.queue.turn()

    def _ended(self, task: asyncio.Future[None]) -> None:
        """Refuse appends if a bug has ended the writer: none may keep waiting for it."""
        error = None if task.cancelled() else task.exception()
        if error is not None:
            log.error("the log's writer failed", exc_info=error)
            self._fail(error)
            self._doubt(self._writing)
            self.queue.refuse([], str(error))

    async def _commit_group(self) -> None:
        """Write the waiting appends, up to the size of a segment, and answer them."""
        queue = self.queue
        if self.failure is not None:
            queue.refuse([], self.failure)
            return
        appends: list[Append] = []
        try:
            if not self._reserve.held:
                await self._hold_reserve()
            if self._end >= self._segment_bytes:
                await self._begin_segment()
            group = self._new_group()
            self._writing = appends = group.appends
            await self._fill(group)
            if appends:
                await self._write(group)
        except OSError as e:
            await self._take_back(e)
            self._not_written(e, appends)
        else:
            if appends:
                self._commit(group)
        queue.check_room()

    @property
    def _end(self) -> int:
        """The position of the next group in the active segment."""
        return self._active.end

    def _new_group(self) -> CommitGroup:
        active, contents = self._active, self._contents
        return CommitGroup(
            active.salt, contents.next_id, active.end, self._durable, contents.epochs.current
        )

    def _commit(self, group: CommitGroup) -> None:
        """Complete a group that has been written."""
        self._publish(group)

    async def _fill(self, group: CommitGroup) -> None:
        """Add the waiting appends, yielding between the steps of one with many members, since only
        the writer changes positions."""
        waiting = self.queue.waiting
        while waiting and group.size < self._group_bytes and len(group.appends) < MAX_APPENDS:
            append = waiting.popleft()
            group.add(append)
            if append.members:
                for step, _ in enumerate(group.add_members(append)):
                    if step:
                        await self.queue.turn()

    async def _hold_reserve(self) -> None:
        """Hold the reserve again after its use; producers wait for this.

        Not if only urgent appends wait, whose room it would take.
        """
        if all(append.urgent for append in self.queue.waiting):
            return
        if not await self._thread.run(self._reserve.hold):
            self.queue.refuse([], "the disk is full", but_urgent=True)

    async def _write(self, group: CommitGroup) -> None:
        """Write a group, and sync it if required. Raises OSError; `_take_back` undoes it."""
        began, waits = clock.perf_counter(), _waits()
        is_short = group.size <= _SHORT_BYTES and began >= self._wary_until
        if not is_short or self._others_jobs:
            await self._thread.run(partial(self._write_and_sync, group))
            return
        self._write_now(group)
        ended = clock.perf_counter()
        if ended - began > _LONG_SECONDS and _waits() > waits:
            self._wary_until = ended + _WARY_SECONDS
        if self._fsync.every_commit:
            await self._thread.run(partial(self._sync_group, group))

    def _write_now(self, group: CommitGroup) -> None:
        self._unsynced = True
        group.began = clock.time_ns()
        buffers: list[Buffer] = group.buffers
        if group.size <= max(_SHORT_BYTES, _SHORT_BUFFER * len(buffers)):
            buffers = [b"".join(buffers)]  # cheaper than a list of many short buffers
        self._active.write(buffers, group.rows)
        self._written = group.position
        group.written = group.synced = clock.time_ns()

    def _sync_group(self, group: CommitGroup) -> None:
        self._sync()
        group.synced = clock.time_ns()

    def _write_and_sync(self, group: CommitGroup) -> None:
        self._write_now(group)
        if self._fsync.every_commit:
            self._sync_group(group)

    async def _begin_segment(self) -> None:
        """Begin a new segment, unless the active one is empty. Raises OSError."""
        if self._active.entries:
            await self._thread.run(self._roll)

    def _roll(self) -> None:
        """Seal the active segment and begin the next, in the writer's thread. Raises OSError."""
        self._sync()
        sync_file(self._active.index)
        self._contents.append_segment(Segment.create(self._disk, self._active.number + 1))
        self._written = self._durable = FILE_HEADER_SIZE

    def _sync(self) -> None:
        """Sync the active segment's log, in the writer's thread. Raises SyncError."""
        if not self._unsynced:
            return
        began = clock.perf_counter()
        sync_file(self._active.log)
        self.stats.fsync.observe(clock.perf_counter() - began)
        self._unsynced = False
        self._durable = self._written

    def _publish(self, group: CommitGroup) -> None:
        """Make a group that is in the log visible to readers, and answer its appends.

        First all state is updated: an answered caller may look at any of it. Parked fetches are
        woken last: no consumer is answered before the producers of its records.
        """
        queue = self.queue
        self._active.add_rows(group.rows)
        first_id = self._contents.next_id
        self._contents.live.added(self._active.number, first_id, group.next_id - first_id)
        self._contents.next_id = group.next_id
        queue.written(group.appends)
        self._count(group)
        group.report_times()
        grown: dict[PartitionId, None] = {}  # in the order of the log
        rows = iter(group.rows)
        for append, offsets in zip(group.appends, group.offsets, strict=True):
            if append.members:
                for partition, row in zip(append.partitions(), rows, strict=False):
                    partition.add(row)
                    grown[partition.id] = None
                continue
            for _ in offsets:
                append.partition.add(next(rows))
            grown[append.partition.id] = None
        queue.decide(list(zip(group.appends, group.offsets, strict=True)))
        queue.answers.add_call(partial(self.on_commit, grown.keys()))
        if self.refusing is not None:
            self.refusing = None
            log.warning("the log takes writes again")
        if self._fsync.interval and self._late_sync is None:
            self._late_sync = asyncio.create_task(self._sync_later(self._fsync.interval))
        queue.answers.send()

    def _count(self, group: CommitGroup) -> None:
        self.stats.groups += 1
        self.stats.appends += len(group.appends)
        self.stats.bytes += group.size
        self.stats.largest = max(self.stats.largest, len(group.appends))

    # --- failure ----------------------------------------------------------------------------

    async def _take_back(self, error: OSError) -> None:
        """Durably truncate the remains of a failed write. If that fails, the log has failed.

        After a failed sync the log has always failed. The truncation then only makes it unlikely
        that the next start finds batches that were never acknowledged.
        """
        if isinstance(error, SyncError):
            self._fail(error)
        try:
            await self._thread.run(self._truncate)
        except OSError as e:
            if self.failure is None:
                self._fail(e)
        if self.failure is not None:
            return
        if self.refusing is None:
            log.error("the log cannot be written: %s", error.strerror or error)
        self.refusing = f"the log cannot be written: {error.strerror or error}"

    def _truncate(self) -> None:
        self._active.truncate()

    def _not_written(self, error: OSError, appends: list[Append]) -> None:
        """Refuse all appends. On a full disk, retry the urgent ones with the reserve instead."""
        queue = self.queue
        if self.failure is not None:
            queue.written(appends)
            self._doubt(appends)
            queue.refuse([], self.failure)
            return
        retries = error.errno == errno.ENOSPC and any(
            append.urgent for append in (*appends, *queue.waiting)
        )
        retries = retries and self._reserve.release()
        queue.refuse(appends, error.strerror or str(error), but_urgent=retries)

    def _fail(self, error: BaseException) -> None:
        reason = error.strerror if isinstance(error, OSError) else None
        self.failure = self.queue.closed = f"the log takes no more writes: {reason or error}"
        log.critical("%s; reads go on", self.failure)

    def _doubt(self, appends: Sequence[Append]) -> None:
        """Answer appends whose write failed with the log: they may or may not be on the disk."""
        self.queue.fail(appends, InDoubtError, self.failure or "")

    async def _sync_later(self, interval: float) -> None:
        """For `wal.fsync=interval:...`: sync the writes of the last `interval` seconds."""
        await asyncio.sleep(interval)
        self._late_sync = None
        await self._sync_or_fail()

    async def _sync_or_fail(self) -> None:
        try:
            await self.run(self._sync)
        except SyncError as e:
            self._fail(e)

    @property
    def _active(self) -> Segment:
        return self._contents.segments[-1]


def _waits() -> int:
    """How often this thread has waited voluntarily, not for a processor in use by others."""
    return resource.getrusage(resource.RUSAGE_THREAD).ru_nvcsw
