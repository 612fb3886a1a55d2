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
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from quafka_broker.virtual_topics import VirtualTopic, VirtualTopicId
from quafka_broker.wal.disk import Buffer, Disk
from quafka_broker.wal.recovery import recover
from quafka_broker.wal.segment import Segment
from quafka_proto.errors import Malformed
from quafka_proto.log_format import (
    ENTRY_HEADER_SIZE,
    FILE_HEADER_SIZE,
    IndexRow,
    encode_entry_header,
)
from quafka_proto.records import PATCHED_SIZE, BatchHeader, rebase

log = logging.getLogger("quafka.broker.wal")

_LEADER_EPOCH = 0
_MAX_PENDING_BYTES = 64 << 20
_ROWS_PER_READ = 64


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


@dataclass(slots=True, eq=False)
class _Append:
    topic: VirtualTopic
    batches: Sequence[tuple[BatchHeader, memoryview]]
    size: int
    done: asyncio.Future[list[int]]


@dataclass(slots=True)
class _Group:
    """What one write carries. Gives each batch its id, offset and position as it is added.

    Attributes:
        next_id: the next global message id.
        position: where the next entry begins in the segment file.
        durable: up to where that file is known fsynced before this write.
    """

    next_id: int
    position: int
    durable: int
    appends: list[_Append] = field(default_factory=list[_Append])
    offsets: list[list[int]] = field(default_factory=list[list[int]])
    buffers: list[Buffer] = field(default_factory=list[Buffer])
    rows: list[IndexRow] = field(default_factory=list[IndexRow])
    size: int = 0
    ends: dict[VirtualTopicId, int] = field(default_factory=dict[VirtualTopicId, int])

    def add(self, append: _Append) -> None:
        """Place an append's batches behind those of its virtual topic."""
        topic = append.topic
        offset = self.ends.get(topic.id, topic.high_watermark)
        offsets: list[int] = []
        for header, batch in append.batches:
            self._place(topic.id, header, batch, offset)
            offsets.append(offset)
            offset += header.record_count
        self.ends[topic.id] = offset
        self.appends.append(append)
        self.offsets.append(offsets)
        self.size += append.size

    def _place(
        self, topic: VirtualTopicId, header: BatchHeader, batch: memoryview, offset: int
    ) -> None:
        patched = bytearray(batch[:PATCHED_SIZE])
        rebase(patched, offset, _LEADER_EPOCH)
        entry = encode_entry_header(
            patched,
            length=header.length,
            global_id=self.next_id,
            base_offset=offset,
            durable_position=self.durable,
            topic_hash=topic.topic_hash,
            org_id=topic.org_id,
            partition=topic.partition,
            generation=topic.generation,
            record_count=header.record_count,
        )
        self.buffers += (entry + patched, batch[PATCHED_SIZE:])
        self.rows.append(
            IndexRow(
                self.next_id,
                offset,
                self.position,
                topic.topic_hash,
                header.max_timestamp,
                header.producer_id,
                header.base_sequence,
                topic.org_id,
                topic.partition,
                topic.generation,
                header.record_count,
                header.length,
                header.producer_epoch,
            )
        )
        self.next_id += header.record_count
        self.position += ENTRY_HEADER_SIZE + header.length


class Log:
    """Segments, virtual topics, and the one writer."""

    def __init__(self, disk: Disk, fsync: FsyncPolicy, segment_bytes: int) -> None:
        self._disk = disk
        self._fsync = fsync
        self._segment_bytes = segment_bytes
        self._segments: list[Segment] = []
        self._topics: dict[VirtualTopicId, VirtualTopic] = {}
        self._next_id = 0
        self._durable = 0  # position in the active segment up to which it is known fsynced
        self._unsynced = False
        self._pending: deque[_Append] = deque()
        self._pending_bytes = 0
        self._room = asyncio.Event()
        self._room_gate = asyncio.Lock()
        self._room_waiters = 0
        self._work = asyncio.Event()
        self._closing = False
        self._failed: str | None = None
        self._writer_thread = ThreadPoolExecutor(1, thread_name_prefix="wal-write")
        self._reader_threads = ThreadPoolExecutor(4, thread_name_prefix="wal-read")
        self._tasks: list[asyncio.Task[None]] = []
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
            found.add(row.global_id, row.record_count)
            self._next_id = row.global_id + row.record_count
            seen(row)

        self._segments = recover(self._disk, clean_end, restore)
        if not self._segments:
            self._segments.append(Segment.create(self._disk, 0))
        # After recovery everything that is left has been synced or verified; sync once more, so
        # that what is served from now on cannot be lost any more.
        self._active.sync()
        self._durable = self._active.end

    def start(self) -> None:
        """Begin to write."""
        loop = asyncio.get_running_loop()
        self._tasks.append(loop.create_task(self._write_groups(), name="wal-writer"))
        if self._fsync.interval:
            self._tasks.append(loop.create_task(self._sync_often(), name="wal-sync"))

    async def close(self) -> tuple[int, int] | None:
        """Write and sync what waits; returns what to tell the next `open`, None if it failed."""
        self._closing = True
        self._work.set()
        if self._tasks:
            await self._tasks[0]
        for task in self._tasks[1:]:
            task.cancel()
        loop = asyncio.get_running_loop()
        if self._failed is None:
            await loop.run_in_executor(self._writer_thread, self._sync)
        end = None if self._failed else (self._active.number, self._active.end)
        self._writer_thread.shutdown()
        self._reader_threads.shutdown()
        for segment in self._segments:
            segment.close()
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
        self._pending.append(_Append(topic, batches, size, done))
        self._pending_bytes += size
        self._work.set()
        return done

    async def _write_groups(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await self._work.wait()
            self._work.clear()
            while self._pending:
                group = self._take_group()
                try:
                    await loop.run_in_executor(self._writer_thread, self._write, group)
                except OSError as e:
                    await self._refuse(group, e)
                else:
                    self._publish(group)
                self._pending_bytes -= group.size
                self._room.set()
            if self._closing:
                return

    def _take_group(self) -> _Group:
        """Everything that waits, up to a segment's worth."""
        active = self._active
        if active.end >= self._segment_bytes:
            group = _Group(self._next_id, FILE_HEADER_SIZE, FILE_HEADER_SIZE)
        else:
            group = _Group(self._next_id, active.end, self._durable)
        while self._pending and group.size < self._segment_bytes:
            group.add(self._pending.popleft())
        return group

    def _write(self, group: _Group) -> None:
        """Write a group, in the writer's thread. Raises OSError; then `cut` puts things back."""
        if group.rows[0].position < self._active.end:
            self._roll()
        self._active.write(group.buffers, group.rows)
        self._unsynced = True
        if self._fsync.every_commit:
            self._sync()

    def _roll(self) -> None:
        """Seal the active segment and begin the next. Blocks."""
        self._sync()
        self._active.index.sync()
        self._segments.append(Segment.create(self._disk, self._active.number + 1))
        self._durable = FILE_HEADER_SIZE

    def _sync(self) -> None:
        """Sync the active segment, in the writer's thread.

        Raises:
            _SyncError: it failed. What the kernel still holds is unknown from then on, so nothing
                is ever retried (the "fsyncgate" lesson).
        """
        if not self._unsynced:
            return
        self._unsynced = False
        try:
            self._active.log.sync()
        except OSError as e:
            raise _SyncError(e.errno, f"fsync failed: {e.strerror or e}") from e

    def _publish(self, group: _Group) -> None:
        """The group is in the log: show it to readers, answer, wake."""
        self._active.note(group.rows)
        self._next_id = group.next_id
        if self._fsync.every_commit:
            self._durable = self._active.end
        grown: set[VirtualTopicId] = set()
        rows = iter(group.rows)
        for append, offsets in zip(group.appends, group.offsets, strict=True):
            for _ in offsets:
                row = next(rows)
                append.topic.add(row.global_id, row.record_count)
            grown.add(append.topic.id)
            if not append.done.cancelled():
                append.done.set_result(offsets)
        self.on_commit(grown)

    async def _refuse(self, group: _Group, error: OSError) -> None:
        """The group is not in the log: take back what was written of it, and say so.

        What waits behind it is refused too: a later batch of an idempotent producer must not get
        into the log before the earlier one.
        """
        reason = error.strerror or str(error)
        try:
            if isinstance(error, _SyncError):
                raise error
            await asyncio.get_running_loop().run_in_executor(self._writer_thread, self._active.cut)
        except OSError as e:
            self._failed = f"the log takes no more writes: {e.strerror or e}"
            log.critical("%s; reads go on", self._failed)
        else:
            log.error("a write of %d bytes failed: %s", group.size, reason)
        refused = [*group.appends, *self._pending]
        self._pending.clear()
        self._pending_bytes = group.size
        for append in refused:
            if not append.done.cancelled():
                append.done.set_exception(StorageError(reason))
                append.done.exception()  # seen: its caller may be gone

    async def _sync_often(self) -> None:
        """`wal.fsync=interval:...`: sync what was written since the last time."""
        interval = self._fsync.interval or 0.0
        loop = asyncio.get_running_loop()
        while self._failed is None:
            await asyncio.sleep(interval)
            end = self._active.end
            try:
                await loop.run_in_executor(self._writer_thread, self._sync)
            except OSError as e:
                self._failed = f"the log takes no more writes: {e.strerror or e}"
                log.critical("%s; reads go on", self._failed)
                return
            self._durable = min(end, self._active.end)

    # --- read -------------------------------------------------------------------------------

    async def read(
        self, topic: VirtualTopic, offset: int, max_bytes: int, *, at_least_one: bool
    ) -> list[memoryview]:
        """Whole batches from the one that holds `offset` on, together at most `max_bytes`.

        With `at_least_one` the first batch is returned however large. `offset` must be within
        [log_start, high_watermark]; at the high watermark there is nothing.

        Raises:
            StorageError: the bytes cannot be read.
        """
        batches: list[memoryview] = []
        try:
            for segment, rows in self._runs(topic, offset, max_bytes, at_least_one):
                batches += await self._read_run(segment, rows)
        except (OSError, Malformed) as e:
            raise StorageError(str(e)) from e
        return batches

    def readable_bytes(self, topic: VirtualTopic, offset: int, enough: int) -> int:
        """Bytes of whole batches from `offset` on; counting stops once it is `enough`."""
        found = 0
        ahead = _RowsAhead(self._segments)
        while offset < topic.high_watermark and found < enough:
            _, row = ahead.find(topic, offset)
            found += row.length
            offset = row.base_offset + row.record_count
        return found

    def _runs(
        self, topic: VirtualTopic, offset: int, max_bytes: int, at_least_one: bool
    ) -> list[tuple[Segment, list[IndexRow]]]:
        """The entries to read, neighbours in one run."""
        runs: list[tuple[Segment, list[IndexRow]]] = []
        taken = 0
        ahead = _RowsAhead(self._segments)
        while offset < topic.high_watermark:
            segment, row = ahead.find(topic, offset)
            if taken + row.length > max_bytes and not (at_least_one and not taken):
                break
            taken += row.length
            last = runs[-1] if runs else None
            if last is not None and last[0] is segment and _adjacent(last[1][-1], row):
                last[1].append(row)
            else:
                runs.append((segment, [row]))
            offset = row.base_offset + row.record_count
        return runs

    async def _read_run(self, segment: Segment, rows: list[IndexRow]) -> list[memoryview]:
        start = rows[0].position
        size = rows[-1].position + ENTRY_HEADER_SIZE + rows[-1].length - start
        data = segment.log.read_cached(start, size)
        if data is None:
            loop = asyncio.get_running_loop()
            data = await loop.run_in_executor(self._reader_threads, segment.log.read, start, size)
        if len(data) < size:
            raise Malformed(f"segment {segment.number} ends before position {start + size}")
        view = memoryview(data)
        batches: list[memoryview] = []
        for row in rows:
            at = row.position - start + ENTRY_HEADER_SIZE
            batches.append(view[at : at + row.length])
        return batches

    @property
    def _active(self) -> Segment:
        return self._segments[-1]


class _SyncError(OSError):
    """An fsync failed: the log is over."""


def _adjacent(row: IndexRow, following: IndexRow) -> bool:
    return row.position + ENTRY_HEADER_SIZE + row.length == following.position


class _RowsAhead:
    """Finds the entry of an offset; reads index rows in blocks, since the next is often near."""

    def __init__(self, segments: Sequence[Segment]) -> None:
        self._segments = segments
        self._segment: Segment | None = None
        self._start = 0
        self._rows: list[IndexRow] = []
        self._next = 0

    def find(self, topic: VirtualTopic, offset: int) -> tuple[Segment, IndexRow]:
        """The entry that holds the record at a readable offset."""
        near = self._following(topic.id, offset)
        if near is not None:
            return near
        global_id = topic.global_id_at(offset)
        at = bisect_right(self._segments, global_id, key=_first_id) - 1
        segment = self._segments[at]
        number = segment.row_number(global_id)
        if segment is not self._segment or not self._start <= number < self._start + len(
            self._rows
        ):
            self._segment, self._start = segment, number
            self._rows = segment.rows(number, _ROWS_PER_READ)
        self._next = number - self._start + 1
        return segment, self._rows[self._next - 1]

    def _following(self, topic: VirtualTopicId, offset: int) -> tuple[Segment, IndexRow] | None:
        """The next row, where it happens to be the one."""
        if self._segment is None or self._next >= len(self._rows):
            return None
        row = self._rows[self._next]
        same = (
            row.base_offset == offset
            and row.topic_hash == topic.topic_hash
            and row.partition == topic.partition
            and row.org_id == topic.org_id
            and row.generation == topic.generation
        )
        if not same:
            return None
        self._next += 1
        return self._segment, row


def _first_id(segment: Segment) -> int:
    """An empty segment is the last: no id is in it."""
    first = segment.first_id
    return 1 << 64 if first is None else first
