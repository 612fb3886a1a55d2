"""Backfill: reads chunks of a partition into the cache, each once, in a lane of their own.

Below a known high watermark, partitions are read in chunks whose size does not depend on the
fetch, so that all readers of an offset share one read. The lane bounds the bytes of such reads in
flight: a poll at the tail never waits for more than that. While consumers at the tail receive
records, the reads are small, and the lane rests after each read for as long as the read took: the
rest of the processors' time belongs to those consumers.
"""

from __future__ import annotations

import asyncio
from collections import deque

from quafka_gateway.fetch.aborted import READ_COMMITTED, READ_UNCOMMITTED
from quafka_gateway.fetch.broker_fetch import BrokerFetch
from quafka_gateway.fetch.cached_partition import CachedPartition, PartitionKey
from quafka_gateway.memory import RESPONSE_FLOOR
from quafka_mesh_ops.ops.records import FetchOp, FetchOps, FetchOpsResp
from quafka_telemetry import semconv
from quafka_telemetry.tracing import TraceContext, Tracer

CHUNK = 1 << 20
"""Bytes of an ordinary read; fewer if many reads wait. A larger batch is read whole."""
LARGEST_CHUNK = 4 << 20
_LIVE_SECONDS = 0.2
"""After a record at the tail, another one is expected for this long."""
_REST, _LONGEST_REST = 1.0, 0.1
LARGEST_WINDOW = 8 << 20
"""The largest read-ahead of a reader, in bytes."""


class Lane:
    """A bound on the bytes of reads in flight. One read always passes, however large."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._used = 0
        self._queue: deque[tuple[int, asyncio.Future[None]]] = deque()

    @property
    def share(self) -> int:
        """The size of a read with which every waiting read has its turn soon."""
        return 4 * self._limit // (1 + len(self._queue))

    def enter_now(self, size: int) -> bool:
        """Take room if there is some and no other read waits for it. Returns whether it did."""
        if self._queue or not self._fits(size):
            return False
        self._used += size
        return True

    async def enter(self, size: int) -> None:
        """Wait for room, first come, first served."""
        if self.enter_now(size):
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._queue.append((size, turn))
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self.leave(size)
            raise

    def leave(self, size: int) -> None:
        """Give the room back."""
        self._used -= size
        while self._queue:
            size, turn = self._queue[0]
            if turn.cancelled():
                self._queue.popleft()
            elif self._fits(size):
                self._queue.popleft()
                self._used += size
                turn.set_result(None)
            else:
                return

    def _fits(self, size: int) -> bool:
        return not self._used or self._used + size <= self._limit


class Backfill:
    """The reads of one broker in flight, by partition and offset, and read-ahead for readers."""

    def __init__(self, broker: BrokerFetch, lane_bytes: int, tracer: Tracer) -> None:
        self._broker = broker
        self._tracer = tracer
        self._lane = Lane(lane_bytes)
        self._running: dict[tuple[PartitionKey, int], asyncio.Task[FetchOpsResp]] = {}
        self._live_until = self._rest_until = 0.0  # loop time

    def tail_moved(self) -> None:
        """Record that a consumer at the tail received records."""
        self._live_until = asyncio.get_running_loop().time() + _LIVE_SECONDS

    async def fill(
        self, partition: CachedPartition, offset: int, trace: TraceContext | None
    ) -> None:
        """Read the chunk at `offset` into the cache, or wait for the read in flight."""
        task = self._running.get((partition.key, offset))
        with self._tracer.start(semconv.FILL, trace) as span:
            span.set({semconv.SHARED: task is not None})
            if task is None:
                size = self._size(partition, 0)
                task = self._start(partition, offset, size, has_room=False, trace=span.context)
            await asyncio.shield(task)

    def fill_soon(self, partition: CachedPartition, offset: int) -> None:
        """Read the chunk at `offset` in the background, if it is missing and the lane has room."""
        if not partition.cached_from(offset, 1)[1]:
            self._read_one_ahead(partition, offset, offset, 0)

    def read_ahead(self, partition: CachedPartition, offset: int, end: int) -> None:
        """Read ahead of a reader that received [offset, end), if it reads sequentially."""
        window = partition.readers.get(offset)
        grown = 0 if window is None else min(max(2 * window, CHUNK), LARGEST_WINDOW)
        partition.expect_reader(end, grown)
        if grown:
            self._fill_window(partition, end, grown)

    async def close(self) -> None:
        """Cancel the reads in flight."""
        tasks = list(self._running.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _fill_window(self, partition: CachedPartition, reader: int, window: int) -> None:
        end, size = partition.cached_from(reader, window)
        if size < window and end < partition.high_watermark and not partition.dropped:
            self._read_one_ahead(partition, end, reader, window)

    def _read_one_ahead(
        self, partition: CachedPartition, offset: int, reader: int, window: int
    ) -> None:
        size = self._size(partition, window)
        if (partition.key, offset) in self._running or not self._lane.enter_now(size):
            return
        task = self._start(partition, offset, size, has_room=True, trace=None)
        task.add_done_callback(lambda task: self._next(task, partition, offset, reader, window))

    def _next(
        self,
        task: asyncio.Task[FetchOpsResp],
        partition: CachedPartition,
        offset: int,
        reader: int,
        window: int,
    ) -> None:
        """Read the next chunk ahead of a reader, unless this one brought nothing."""
        if not task.cancelled() and task.exception() is None and window:
            end, _ = partition.cached_from(reader, window)
            if end > offset:
                self._fill_window(partition, reader, window)

    def _start(
        self,
        partition: CachedPartition,
        offset: int,
        size: int,
        *,
        has_room: bool,
        trace: TraceContext | None,
    ) -> asyncio.Task[FetchOpsResp]:
        key = partition.key, offset
        # If all is decided, chunks come with their aborted transactions, for every reader.
        decided = offset < partition.last_stable_offset
        level = READ_COMMITTED if decided else READ_UNCOMMITTED
        task = asyncio.get_running_loop().create_task(
            self._read(partition.key, offset, size, level, has_room, trace)
        )
        self._running[key] = task
        task.add_done_callback(lambda _: self._running.pop(key, None))
        return task

    async def _read(
        self,
        key: PartitionKey,
        offset: int,
        size: int,
        level: int,
        has_room: bool,
        trace: TraceContext | None,
    ) -> FetchOpsResp:
        if not has_room:
            await self._lane.enter(size)
        loop = asyncio.get_running_loop()
        try:
            while (rest := self._rest_until - loop.time()) > 0:
                await asyncio.sleep(rest)
            began = loop.time()
            wanted = FetchOp("", key.partition, offset, size, key.topic_id)
            op = FetchOps([wanted], max_bytes=size, isolation_level=level)
            answer = await self._broker.fetch_accounted(op, trace)
            if self.tail_is_live:
                ended = loop.time()
                rest = min(_REST * (ended - began), _LONGEST_REST)
                self._rest_until = max(self._rest_until, ended + rest)
            return answer
        finally:
            self._lane.leave(size)

    @property
    def tail_is_live(self) -> bool:
        """Whether consumers at the tail receive records at present."""
        return asyncio.get_running_loop().time() < self._live_until

    def _size(self, partition: CachedPartition, window: int) -> int:
        """Bytes to read: two reads fill a window, and no read is smaller than a batch."""
        wanted = CHUNK if self.tail_is_live else min(max(CHUNK, window // 2), LARGEST_CHUNK)
        return max(min(wanted, self._lane.share), RESPONSE_FLOOR, partition.largest)
