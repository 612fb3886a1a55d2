"""The one writer of the log.

Group commit: it takes everything that waits, gives it ids and offsets, writes it with one call and
syncs once; what arrives meanwhile is the next group. So the first append never waits for company,
and the more producers there are, the more share a sync.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TypeVar

from quafka_broker.partitions.errors import InDoubtError, StorageError
from quafka_broker.partitions.partition import Partition, PartitionId
from quafka_broker.wal.commit_group import Append, CommitGroup, WriteTimes
from quafka_broker.wal.contents import Contents
from quafka_broker.wal.disk import Disk
from quafka_broker.wal.errors import SyncError
from quafka_broker.wal.fsync import FsyncPolicy, sync_file
from quafka_broker.wal.reserve import Reserve
from quafka_broker.wal.segment import Segment
from quafka_proto.log_format import FILE_HEADER_SIZE
from quafka_proto.records import BatchHeader
from quafka_telemetry.metrics import Histogram

log = logging.getLogger("quafka.broker.wal")

_MAX_PENDING_BYTES = 64 << 20
_MOST_APPENDS = 512
"""Appends that share a commit: giving them ids, and answering them, is done on the event loop."""

T = TypeVar("T")


@dataclass(slots=True)
class WriterStats:
    """Plain counters, since the start; `largest` is the most appends that shared a commit."""

    groups: int = 0
    appends: int = 0
    bytes: int = 0
    largest: int = 0
    fsync: Histogram = field(default_factory=Histogram)
    """Seconds of each sync of the log, counted in the writer's thread."""


class Writer:
    """Appends to the active segment, and begins the next one."""

    def __init__(
        self,
        disk: Disk,
        contents: Contents,
        reserve: Reserve,
        fsync: FsyncPolicy,
        segment_bytes: int,
    ) -> None:
        """The last of the contents' segments is the active one; all of it is durable."""
        self._disk = disk
        self._contents = contents
        self._reserve = reserve
        self._fsync = fsync
        self._segment_bytes = segment_bytes
        # Of the active segment; set in the writer's thread: where its last whole entry ends, up
        # to where it is known fsynced, and whether there is something to sync.
        self._written = self._durable = self._active.end
        self._unsynced = False
        self._pending: deque[Append] = deque()
        self._writing: Sequence[Append] = ()  # taken from those that wait, not yet answered
        self._pending_bytes = 0
        self._room = asyncio.Event()
        self._room_gate = asyncio.Lock()
        self._room_waiters = 0
        self._work = asyncio.Event()
        self._closing = False
        self.refusing: str | None = None
        """Why the last write failed; None after one that did not."""
        self.failure: str | None = None
        """Why there will be no more writes; None while there may be."""
        self.stats = WriterStats()
        self.on_commit: Callable[[set[PartitionId]], None] = lambda _partitions: None
        """Called with the virtual topics that have grown."""
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="wal-write")
        self._task: asyncio.Task[None] | None = None
        self._late_sync: asyncio.Task[None] | None = None

    # --- life -------------------------------------------------------------------------------

    def start(self) -> None:
        """Begin to write."""
        self._task = asyncio.get_running_loop().create_task(self._write_groups())
        self._task.add_done_callback(self._ended)

    async def close(self) -> None:
        """Write what waits; sync it. `failure` says if that could not be."""
        self._closing = True
        self._work.set()
        if self._task is not None:
            await asyncio.wait([self._task])
        if self._late_sync is not None:
            self._late_sync.cancel()
        if self.failure is None:
            await self._sync_or_fail()

    def release(self) -> None:
        """Release the thread."""
        self._thread.shutdown()

    @property
    def pending_bytes(self) -> int:
        """Of the appends that wait or are being written."""
        return self._pending_bytes

    @property
    def busy(self) -> bool:
        """Whether appends wait."""
        return bool(self._pending)

    async def make_durable(self) -> tuple[int, int]:
        """Sync the active segment and its index; its number and up to where it is durable.

        Raises:
            OSError: the log has failed, or does so now.
        """

        def sync() -> tuple[int, int]:
            self._sync()
            sync_file(self._active.index)
            return self._active.number, self._durable

        return await self._syncing(sync)

    async def make_log_durable(self) -> None:
        """Sync what has been written to the log, but not the index: appends hardly wait for it.

        Raises:
            OSError: the log has failed, or does so now.
        """
        await self._syncing(self._sync)

    async def run(self, job: Callable[[], T]) -> T:
        """Do something while nothing is appended."""
        return await self._in_thread(job)

    async def _syncing(self, sync: Callable[[], T]) -> T:
        if self.failure is not None:
            raise OSError(errno.EIO, self.failure)
        try:
            return await self._in_thread(sync)
        except SyncError as e:
            self._fail(e)
            raise

    # --- append -----------------------------------------------------------------------------

    async def wait_for_room(self) -> None:
        """Wait while too many bytes are pending. Callers go on in the order in which they came.

        Does not suspend when there is room: then the order of calls is that of the appends.
        """
        if not self._room_waiters and self._pending_bytes < _MAX_PENDING_BYTES:
            return
        self._room_waiters += 1
        try:
            async with self._room_gate:
                while self._pending_bytes >= _MAX_PENDING_BYTES:
                    self._room.clear()
                    await self._room.wait()
        finally:
            self._room_waiters -= 1

    def append(
        self,
        partition: Partition,
        batches: Sequence[tuple[BatchHeader, memoryview]],
        *,
        urgent: bool,
        writes: list[WriteTimes] | None = None,
    ) -> asyncio.Future[list[int]]:
        """See `Log.append`."""
        done: asyncio.Future[list[int]] = asyncio.get_running_loop().create_future()
        if self.failure is not None or self._closing:
            done.set_exception(StorageError(self.failure or "the broker stops"))
            done.exception()
            return done
        size = sum(len(batch) for _, batch in batches)
        self._pending.append(Append(partition, batches, size, done, urgent, writes))
        self._pending_bytes += size
        self._work.set()
        return done

    async def _write_groups(self) -> None:
        while True:
            await self._work.wait()
            self._work.clear()
            while self._pending:
                await self._commit_group()
            if self._closing:
                return

    def _ended(self, task: asyncio.Task[None]) -> None:
        """Nothing but a mistake of ours ends the writer early; then nobody may wait for it."""
        error = None if task.cancelled() else task.exception()
        if error is not None:
            log.error("the log's writer failed", exc_info=error)
            self._fail(error)
            self._doubt(self._writing)
            self._refuse([], str(error))

    async def _commit_group(self) -> None:
        """Write what waits, up to a segment's worth; answer and show it, or refuse it."""
        if self.failure is not None:
            self._refuse([], self.failure)
            return
        appends: list[Append] = []
        try:
            # Not for the sake of what may use it: that would take away its room again.
            if not self._reserve.held and not all(append.urgent for append in self._pending):
                await self._hold_reserve()
            if self._active.end >= self._segment_bytes:
                await self._in_thread(self._roll)
            active = self._active
            contents = self._contents
            group = CommitGroup(
                active.salt, contents.next_id, active.end, self._durable, contents.epochs.current
            )
            while self._pending and group.size < self._segment_bytes:
                group.add(self._pending.popleft())
                if len(group.appends) == _MOST_APPENDS:
                    break
            self._writing = appends = group.appends
            if appends:
                await self._in_thread(lambda: self._write(group))
        except OSError as e:
            await self._take_back(e)
            self._not_written(e, appends)
        else:
            if appends:
                self._publish(group)
        self._room.set()

    async def _hold_reserve(self) -> None:
        """The reserve is in use: producers wait until it can be held again."""
        if not await self._in_thread(self._reserve.hold):
            self._refuse([], "the disk is full", but_urgent=True)

    async def _in_thread(self, job: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, job)

    def _write(self, group: CommitGroup) -> None:
        """Write a group, in the writer's thread. Raises OSError; then `cut` puts things back."""
        self._unsynced = True
        group.began = time.time_ns()
        self._active.write(group.buffers, group.rows)
        self._written = group.position
        group.written = group.synced = time.time_ns()
        if self._fsync.every_commit:
            self._sync()
            group.synced = time.time_ns()

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
        began = time.perf_counter()
        sync_file(self._active.log)
        self.stats.fsync.observe(time.perf_counter() - began)
        self._unsynced = False
        self._durable = self._written

    def _publish(self, group: CommitGroup) -> None:
        """The group is in the log: show it to readers, answer, wake."""
        self._active.add_rows(group.rows)
        first_id = self._contents.next_id
        self._contents.live.added(self._active.number, first_id, group.next_id - first_id)
        self._contents.next_id = group.next_id
        self._pending_bytes -= group.size
        self._count(group)
        group.report_times()
        grown: set[PartitionId] = set()
        rows = iter(group.rows)
        for append, offsets in zip(group.appends, group.offsets, strict=True):
            for _ in offsets:
                append.partition.add(next(rows))
            grown.add(append.partition.id)
            if not append.done.cancelled():
                append.done.set_result(offsets)
        self.on_commit(grown)
        if self.refusing is not None:
            self.refusing = None
            log.warning("the log takes writes again")
        if self._fsync.interval and self._late_sync is None:
            self._late_sync = asyncio.create_task(self._sync_later(self._fsync.interval))

    def _count(self, group: CommitGroup) -> None:
        self.stats.groups += 1
        self.stats.appends += len(group.appends)
        self.stats.bytes += group.size
        self.stats.largest = max(self.stats.largest, len(group.appends))

    # --- failure ----------------------------------------------------------------------------

    async def _take_back(self, error: OSError) -> None:
        """Cut off what a failed write left, durably; where that cannot be, the log is over.

        After a failed sync it is over anyhow: then the cut only makes it likely that the next
        start does not find what nobody was promised.
        """
        if isinstance(error, SyncError):
            self._fail(error)
        try:
            await self._in_thread(self._active.truncate)
        except OSError as e:
            if self.failure is None:
                self._fail(e)
        if self.failure is not None:
            return
        if self.refusing is None:
            log.error("the log cannot be written: %s", error.strerror or error)
        self.refusing = f"the log cannot be written: {error.strerror or error}"

    def _not_written(self, error: OSError, appends: list[Append]) -> None:
        """Refuse what waits; but on a full disk, what may use the reserve is tried with that."""
        if self.failure is not None:
            self._doubt(appends)
            self._refuse([], self.failure)
            return
        urgent: list[Append] = []
        if error.errno == errno.ENOSPC:
            urgent = [append for append in (*appends, *self._pending) if append.urgent]
            if urgent and not self._reserve.release():
                urgent = []
        waiting = [append for append in (*appends, *self._pending) if append not in urgent]
        self._pending.clear()
        self._refuse(waiting, error.strerror or str(error))
        self._pending.extend(urgent)
        self._pending_bytes = sum(append.size for append in urgent)

    def _fail(self, error: BaseException) -> None:
        reason = error.strerror if isinstance(error, OSError) else None
        self.failure = f"the log takes no more writes: {reason or error}"
        log.critical("%s; reads go on", self.failure)

    def _doubt(self, appends: Sequence[Append]) -> None:
        """The log has failed while it wrote these; nobody knows what is on the disk."""
        for append in appends:
            _answer_error(append, InDoubtError(self.failure or ""))

    def _refuse(self, appends: list[Append], reason: str, *, but_urgent: bool = False) -> None:
        """These are not in the log.

        What waits behind them is refused too: a later batch of an idempotent producer must not
        get into the log before the earlier one.
        """
        refused = [*appends, *self._pending]
        self._pending.clear()
        if but_urgent:
            self._pending.extend(append for append in refused if append.urgent)
            refused = [append for append in refused if not append.urgent]
        self._pending_bytes = sum(append.size for append in self._pending)
        for append in refused:
            _answer_error(append, StorageError(reason))

    async def _sync_later(self, interval: float) -> None:
        """`wal.fsync=interval:...`: sync what has been written, so many seconds after it was."""
        await asyncio.sleep(interval)
        self._late_sync = None
        await self._sync_or_fail()

    async def _sync_or_fail(self) -> None:
        try:
            await self._in_thread(self._sync)
        except SyncError as e:
            self._fail(e)

    @property
    def _active(self) -> Segment:
        return self._contents.segments[-1]


def _answer_error(append: Append, error: StorageError) -> None:
    if not append.done.done():
        append.done.set_exception(error)
        append.done.exception()  # seen: its caller may be gone
