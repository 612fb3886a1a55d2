"""The write-ahead log: one for all tenants and topics.

`append` promises: when it returns, the batches are in the log, durable as `wal.fsync` says, and
readable. Batches appended to one virtual topic keep their order. Until then nothing is assigned:
a failed write disturbs no later one.

Group commit: one writer takes everything that waits, gives it ids and offsets, writes it with one
call and syncs once; what arrives meanwhile is the next group. So the first append never waits for
company, and the more producers there are, the more share a sync.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from quafka_broker.virtual_topics import VirtualTopic, VirtualTopicId
from quafka_broker.wal.disk import Disk
from quafka_broker.wal.group import Append, Group
from quafka_broker.wal.reading import Run, entries_from, plan
from quafka_broker.wal.recovery import DamagedLogError, recover
from quafka_broker.wal.segment import Segment
from quafka_proto.errors import Malformed
from quafka_proto.log_format import FILE_HEADER_SIZE, IndexRow
from quafka_proto.records import BatchHeader

log = logging.getLogger("quafka.broker.wal")

_MAX_PENDING_BYTES = 64 << 20


class StorageError(Exception):
    """The log cannot take the records (KAFKA_STORAGE_ERROR). None of them is in it."""


@dataclass(frozen=True, slots=True)
class FsyncPolicy:
    """When an append is durable.

    `interval` None: before it is answered. 0: never by us. Else: at most so many seconds later.
    """

    interval: float | None = None

    @property
    def every_commit(self) -> bool:
        """Whether an answered append survives a power cut."""
        return self.interval is None


class Log:
    """Segments, virtual topics, and the one writer."""

    def __init__(self, disk: Disk, fsync: FsyncPolicy, segment_bytes: int) -> None:
        self._disk = disk
        self._fsync = fsync
        self._segment_bytes = segment_bytes
        self._segments: list[Segment] = []
        self._topics: dict[VirtualTopicId, VirtualTopic] = {}
        self._next_id = 0
        # Of the active segment; set in the writer's thread: where its last whole entry ends, up
        # to where it is known fsynced, and whether there is something to sync.
        self._written = 0
        self._durable = 0
        self._unsynced = False
        self._pending: deque[Append] = deque()
        self._pending_bytes = 0
        self._room = asyncio.Event()
        self._room_gate = asyncio.Lock()
        self._room_waiters = 0
        self._work = asyncio.Event()
        self._closing = False
        self._failed: str | None = None
        self._refusing = False  # the last write failed, and that has been said
        self._writer_thread = ThreadPoolExecutor(1, thread_name_prefix="wal-write")
        self._reader_threads = ThreadPoolExecutor(4, thread_name_prefix="wal-read")
        self._writer: asyncio.Task[None] | None = None
        self._late_sync: asyncio.Task[None] | None = None
        self.on_commit: Callable[[set[VirtualTopicId]], None] = lambda _topics: None
        """Called with the virtual topics that have grown."""

    # --- life -------------------------------------------------------------------------------

    def open(self, clean_end: tuple[int, int] | None, seen: Callable[[IndexRow], None]) -> None:
        """Recover the log and rebuild the virtual topics; `seen` gets every row. Blocks.

        Raises:
            DamagedLogError, OSError: see `recovery.recover`.
        """

        def restore(row: IndexRow) -> None:
            topic = VirtualTopicId(row.org_id, row.topic_hash, row.partition, row.generation)
            found = self._topics.get(topic)
            if found is None:
                found = self._topics[topic] = VirtualTopic(topic, row.base_offset)
            if row.base_offset != found.high_watermark:
                raise DamagedLogError(
                    f"virtual topic {topic.key} goes on at offset {row.base_offset} where "
                    f"{found.high_watermark} is next"
                )
            found.add(row)
            self._next_id = row.global_id + row.record_count
            seen(row)

        self._segments = recover(self._disk, clean_end, restore)
        if not self._segments:
            self._segments.append(Segment.create(self._disk, 0))
        # After recovery everything that is left has been synced or verified; sync once more, so
        # that what is served from now on cannot be lost any more.
        self._active.sync()
        self._written = self._durable = self._active.end

    def start(self) -> None:
        """Begin to write."""
        self._writer = asyncio.get_running_loop().create_task(self._write_groups())
        self._writer.add_done_callback(self._writer_ended)

    async def close(self) -> tuple[int, int] | None:
        """Write and sync what waits; returns what to tell the next `open`.

        None: the log had failed, or is not open.
        """
        self._closing = True
        self._work.set()
        if self._writer is not None:
            await asyncio.wait([self._writer])
        if self._late_sync is not None:
            self._late_sync.cancel()
        end = None
        if self._segments and self._failed is None:
            try:
                await self._in_writer(self._sync)
                end = (self._active.number, self._active.end)
            except _SyncError as e:
                self._fail(e)
        self._writer_thread.shutdown()
        self._reader_threads.shutdown()
        while self._segments:
            self._segments.pop().close()
        return end

    @property
    def failure(self) -> str | None:
        """Why the log takes no more writes; None while it does."""
        return self._failed

    # --- virtual topics ---------------------------------------------------------------------

    def topic(self, topic: VirtualTopicId) -> VirtualTopic:
        """The virtual topic; an empty one where nothing was ever appended."""
        found = self._topics.get(topic)
        if found is None:
            found = self._topics[topic] = VirtualTopic(topic)
        return found

    def forget(self, topic: VirtualTopicId) -> None:
        """A deleted partition's index is not needed any more."""
        self._topics.pop(topic, None)

    def keep(self, live: Collection[VirtualTopicId]) -> None:
        """Forget every virtual topic but these."""
        for topic in self._topics.keys() - live:
            del self._topics[topic]

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
        self, topic: VirtualTopic, batches: Sequence[tuple[BatchHeader, memoryview]]
    ) -> asyncio.Future[list[int]]:
        """Queue checked batches now; the future gives the offset of each batch's first record.

        The order of the calls is the log's order. Cancelling the future does not take the batches
        back. Call `wait_for_room` before, or memory is not bounded.

        The future raises:
            StorageError: the batches are not in the log.
        """
        done: asyncio.Future[list[int]] = asyncio.get_running_loop().create_future()
        if self._failed is not None or self._closing:
            done.set_exception(StorageError(self._failed or "the broker stops"))
            done.exception()
            return done
        size = sum(len(batch) for _, batch in batches)
        self._pending.append(Append(topic, batches, size, done))
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

    def _writer_ended(self, writer: asyncio.Task[None]) -> None:
        """Nothing but a mistake of ours ends the writer early; then nobody may wait for it."""
        error = None if writer.cancelled() else writer.exception()
        if error is not None:
            log.error("the log's writer failed", exc_info=error)
            self._fail(error)
            self._refuse([], str(error))

    async def _commit_group(self) -> None:
        """Write what waits, up to a segment's worth; answer and show it, or refuse it."""
        group = None
        if self._failed is not None:
            self._refuse([], self._failed)
            return
        try:
            if self._active.end >= self._segment_bytes:
                await self._in_writer(self._roll)
            active = self._active
            group = Group(active.salt, self._next_id, active.end, self._durable)
            while self._pending and group.size < self._segment_bytes:
                group.add(self._pending.popleft())
            await self._in_writer(self._write, group)
        except OSError as e:
            await self._take_back(e)
            self._refuse(group.appends if group is not None else [], e.strerror or str(e))
        else:
            self._publish(group)
            self._pending_bytes -= group.size
        self._room.set()

    async def _in_writer(self, job: Callable[..., None], *args: object) -> None:
        await asyncio.get_running_loop().run_in_executor(self._writer_thread, job, *args)

    def _write(self, group: Group) -> None:
        """Write a group, in the writer's thread. Raises OSError; then `cut` puts things back."""
        self._unsynced = True
        self._active.write(group.buffers, group.rows)
        self._written = group.position
        if self._fsync.every_commit:
            self._sync()

    def _roll(self) -> None:
        """Seal the active segment and begin the next, in the writer's thread. Raises OSError."""
        self._sync()
        self._active.index.sync()
        self._segments.append(Segment.create(self._disk, self._active.number + 1))
        self._written = self._durable = FILE_HEADER_SIZE

    def _sync(self) -> None:
        """Sync the active segment, in the writer's thread.

        Raises:
            _SyncError: it failed. What the kernel still holds is unknown from then on, so nothing
                is ever retried (the "fsyncgate" lesson).
        """
        if not self._unsynced:
            return
        try:
            self._active.log.sync()
        except OSError as e:
            raise _SyncError(e.errno, f"fsync failed: {e.strerror or e}") from e
        self._unsynced = False
        self._durable = self._written

    def _publish(self, group: Group) -> None:
        """The group is in the log: show it to readers, answer, wake."""
        self._active.note(group.rows)
        self._next_id = group.next_id
        grown: set[VirtualTopicId] = set()
        rows = iter(group.rows)
        for append, offsets in zip(group.appends, group.offsets, strict=True):
            for _ in offsets:
                row = next(rows)
                append.topic.add(row)
            grown.add(append.topic.id)
            if not append.done.cancelled():
                append.done.set_result(offsets)
        self.on_commit(grown)
        if self._refusing:
            self._refusing = False
            log.warning("the log takes writes again")
        if self._fsync.interval and self._late_sync is None:
            self._late_sync = asyncio.create_task(self._sync_later(self._fsync.interval))

    async def _take_back(self, error: OSError) -> None:
        """Cut off what a failed write left; where that cannot be, the log is over."""
        try:
            if isinstance(error, _SyncError):
                raise error
            await self._in_writer(self._active.cut)
        except OSError as e:
            self._fail(e)
            return
        if not self._refusing:
            self._refusing = True
            log.error("the log cannot be written: %s", error.strerror or error)

    def _fail(self, error: BaseException) -> None:
        reason = error.strerror if isinstance(error, OSError) else None
        self._failed = f"the log takes no more writes: {reason or error}"
        log.critical("%s; reads go on", self._failed)

    def _refuse(self, appends: list[Append], reason: str) -> None:
        """These are not in the log.

        What waits behind them is refused too: a later batch of an idempotent producer must not
        get into the log before the earlier one.
        """
        refused = [*appends, *self._pending]
        self._pending.clear()
        self._pending_bytes = 0
        for append in refused:
            if not append.done.cancelled():
                append.done.set_exception(StorageError(reason))
                append.done.exception()  # seen: its caller may be gone

    async def _sync_later(self, interval: float) -> None:
        """`wal.fsync=interval:...`: sync what has been written, so many seconds after it was."""
        await asyncio.sleep(interval)
        self._late_sync = None
        try:
            await self._in_writer(self._sync)
        except _SyncError as e:
            self._fail(e)

    # --- read -------------------------------------------------------------------------------

    async def read(
        self, topic: VirtualTopic, offset: int, max_bytes: int, *, at_least_one: bool
    ) -> list[memoryview]:
        """Whole batches from the one that holds `offset` on, together at most `max_bytes`.

        With `at_least_one` the first batch is returned however large. `offset` must be within
        [log_start, high_watermark]; at the high watermark there is nothing.

        Raises:
            StorageError: the bytes cannot be read.
            OffsetGoneError: the log start is above `offset`.
        """
        batches: list[memoryview] = []
        try:
            for run in plan(self._segments, topic, offset, max_bytes, at_least_one=at_least_one):
                batches += await self._read_run(run)
        except (OSError, Malformed) as e:
            log.warning("virtual topic %s cannot be read at offset %d: %s", topic.id.key, offset, e)
            raise StorageError(str(e)) from e
        return batches

    async def rows(self, topic: VirtualTopic, start: int, end: int) -> list[IndexRow]:
        """The index rows of the batches that hold the offsets in [start, end).

        Raises:
            StorageError: the index cannot be read.
            OffsetGoneError: the log start is above `start`.
        """
        found: list[IndexRow] = []
        try:
            for _, row in entries_from(self._segments, topic, start):
                if row.base_offset >= end:
                    break
                found.append(row)
        except (OSError, Malformed) as e:
            raise StorageError(str(e)) from e
        return found

    def readable_bytes(self, topic: VirtualTopic, offset: int, enough: int) -> int:
        """Bytes of whole batches from `offset` on; counting stops once it is `enough`.

        Raises:
            StorageError: the index cannot be read.
        """
        found = 0
        try:
            for _, row in entries_from(self._segments, topic, offset):
                if found >= enough:
                    break
                found += row.length
        except (OSError, Malformed) as e:
            raise StorageError(str(e)) from e
        return found

    async def _read_run(self, run: Run) -> list[memoryview]:
        file = run.segment.log
        cached = file.read_cached(run.position, run.size)
        if cached is not None:
            return run.batches(cached)
        data = await asyncio.get_running_loop().run_in_executor(
            self._reader_threads, file.read, run.position, run.size
        )
        if len(data) < run.size:
            raise Malformed(f"segment {run.segment.number} ends before entries that it had")
        return run.batches(data)

    @property
    def _active(self) -> Segment:
        return self._segments[-1]


class _SyncError(OSError):
    """An fsync failed: the log is over."""
