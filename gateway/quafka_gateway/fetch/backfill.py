"""Backfill: chunks of a partition read into the cache, each once, in a lane of their own.

What lies below a known high watermark is read in chunks whose size does not depend on who asks,
so that all readers of a place share one read. The lane bounds the bytes of such reads that are on
the mesh at a time: a poll at the tail never waits behind more than that. While consumers at the
tail are given records, the reads are small, and the lane rests after each for as long as it took:
what is left of the processors is theirs.
"""

from __future__ import annotations

import asyncio
from collections import deque

from quafka_gateway.fetch.cache import CachedPartition, PartitionKey
from quafka_gateway.fetch.shared_polls import Ask
from quafka_gateway.memory import RESPONSE_FLOOR
from quafka_mesh_ops.ops.records import FetchOp, FetchOps, FetchOpsResp
from quafka_telemetry import semconv
from quafka_telemetry.tracing import TraceContext, Tracer

CHUNK = 1 << 20
"""Bytes of an ordinary read; a batch that is larger is read whole. Fewer where many wait."""
LARGEST_CHUNK = 4 << 20
_LIVE_SECONDS = 0.2
"""So long after a record for the tail there may be another one soon."""
_REST, _LONGEST_REST = 1.0, 0.1
LARGEST_WINDOW = 8 << 20
"""Bytes that are read ahead of a reader at most."""


class Lane:
    """A bound on bytes under way. One read always passes, however large."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._used = 0
        self._queue: deque[tuple[int, asyncio.Future[None]]] = deque()

    @property
    def share(self) -> int:
        """Bytes that let everybody who waits have a turn soon."""
        return 4 * self._limit // (1 + len(self._queue))

    def enter_now(self, size: int) -> bool:
        """Take room, if there is and nobody waits for it."""
        if self._queue or not self._fits(size):
            return False
        self._used += size
        return True

    async def enter(self, size: int) -> None:
        """Take room, first come first served."""
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


class Fills:
    """Chunk reads under way, by partition and offset; and what is read ahead of sequential readers.

    `ask` puts its answer into the cache, unless something has changed meanwhile.
    """

    def __init__(self, ask: Ask, lane_bytes: int, tracer: Tracer) -> None:
        self._ask = ask
        self._tracer = tracer
        self._lane = Lane(lane_bytes)
        self._running: dict[tuple[PartitionKey, int], asyncio.Task[FetchOpsResp]] = {}
        self._live_until = self._rest_until = 0.0  # loop time

    def tail_moved(self) -> None:
        """A consumer at the tail was given records."""
        self._live_until = asyncio.get_running_loop().time() + _LIVE_SECONDS

    async def fill(
        self, partition: CachedPartition, offset: int, trace: TraceContext | None
    ) -> None:
        """Read the chunk at `offset` into the cache, or wait for whoever does."""
        task = self._running.get((partition.key, offset))
        with self._tracer.start(semconv.FILL, trace) as span:
            span.set({semconv.SHARED: task is not None})
            if task is None:
                size = self._size(partition, 0)
                task = self._start(partition, offset, size, has_room=False, trace=span.context)
            await asyncio.shield(task)

    def begin(self, partition: CachedPartition, offset: int) -> None:
        """Read the chunk at `offset` into the cache soon, if it is not there and there is room."""
        if not partition.ahead_of(offset, 1)[1]:
            self._ahead(partition, offset, offset, 0)

    def advance(self, partition: CachedPartition, offset: int, end: int) -> None:
        """A reader was given [offset, end): read ahead, if it came from where it had been."""
        window = partition.readers.get(offset)
        grown = 0 if window is None else min(max(2 * window, CHUNK), LARGEST_WINDOW)
        partition.expect(end, grown)
        if grown:
            self._read_ahead(partition, end, grown)

    async def close(self) -> None:
        """Stop reading."""
        tasks = list(self._running.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _read_ahead(self, partition: CachedPartition, reader: int, window: int) -> None:
        end, size = partition.ahead_of(reader, window)
        if size < window and end < partition.high_watermark and not partition.dropped:
            self._ahead(partition, end, reader, window)

    def _ahead(self, partition: CachedPartition, offset: int, reader: int, window: int) -> None:
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
        """One chunk ahead of a reader is here: read the next, unless nothing came of this one."""
        if not task.cancelled() and task.exception() is None and window:
            end, _ = partition.ahead_of(reader, window)
            if end > offset:
                self._read_ahead(partition, reader, window)

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
        task = asyncio.get_running_loop().create_task(
            self._read(partition.key, offset, size, has_room, trace)
        )
        self._running[key] = task
        task.add_done_callback(lambda _: self._running.pop(key, None))
        return task

    async def _read(
        self,
        key: PartitionKey,
        offset: int,
        size: int,
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
            answer = await self._ask(FetchOps([wanted], max_bytes=size), trace)
            if self._tail_is_live:
                ended = loop.time()
                rest = min(_REST * (ended - began), _LONGEST_REST)
                self._rest_until = max(self._rest_until, ended + rest)
            return answer
        finally:
            self._lane.leave(size)

    @property
    def _tail_is_live(self) -> bool:
        return asyncio.get_running_loop().time() < self._live_until

    def _size(self, partition: CachedPartition, window: int) -> int:
        """Bytes to ask for: what keeps a window full with two reads, and no less than a batch."""
        wanted = CHUNK if self._tail_is_live else min(max(CHUNK, window // 2), LARGEST_CHUNK)
        return max(min(wanted, self._lane.share), RESPONSE_FLOOR, partition.largest)
