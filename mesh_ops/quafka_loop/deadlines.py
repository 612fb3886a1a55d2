"""Deadlines of many operations on one timer of the event loop.

A timer for each operation costs more than many operations: the loop keeps cancelled timers in its
heap. Here a deadline is an entry in a bucket, and the loop has one timer, for the next bucket.
"""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Callable
from typing import Protocol

from quafka_loop import clock
from quafka_loop.slices import SLICE_SECONDS

_SPARE = 32
TICK = 0.05
"""Seconds: a deadline passes up to this much late, never early, unless another tick is chosen."""


class Expiring(Protocol):
    """An operation with a deadline."""

    def expire(self) -> None:
        """The deadline has passed."""
        ...


Bucket = dict[Expiring, None]
"""Operations in the order in which they began. (A set would have the order of their addresses.)"""


class Deadline:
    """A deadline that calls back."""

    __slots__ = ("_callback", "bucket")

    def __init__(self, callback: Callable[[], object]) -> None:
        self._callback = callback
        self.bucket: Bucket

    def cancel(self) -> None:
        """Forget it. A deadline that has passed, or was cancelled, may be cancelled again."""
        self.bucket.pop(self, None)

    def expire(self) -> None:
        """Call back."""
        self._callback()


class Deadlines:
    """The deadlines of one event loop.

    Deadlines that pass together are handled in slices. A bucket is `tick` seconds.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, tick: float = TICK) -> None:
        self._loop = loop
        self._tick = tick
        self._buckets: dict[int, Bucket] = {}
        self._ticks: list[int] = []  # of the buckets, as a heap
        self._timer: asyncio.TimerHandle | None = None
        self._next = 0  # the bucket of the timer
        self._most = _SPARE  # buckets above which empty ones are looked for

    def add(self, when: float, callback: Callable[[], object]) -> Deadline:
        """Call back at this loop time, or up to a tick later."""
        deadline = Deadline(callback)
        deadline.bucket = self.watch(when, deadline)
        return deadline

    def watch(self, when: float, operation: Expiring) -> Bucket:
        """Call its `expire` at this loop time, or up to a tick later.

        Returns the bucket from which the operation removes itself when it has ended.
        """
        tick = int(when / self._tick) + 1
        bucket = self._buckets.get(tick)
        if bucket is None:
            if len(self._buckets) >= self._most:
                self._drop_empty()
            bucket = self._buckets[tick] = {}
            heapq.heappush(self._ticks, tick)
            if self._timer is None or tick < self._next:
                self._arm(tick)
        bucket[operation] = None
        return bucket

    def close(self) -> None:
        """Forget all deadlines."""
        for bucket in self._buckets.values():
            bucket.clear()
        self._buckets.clear()
        self._ticks.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _drop_empty(self) -> None:
        """Forget buckets whose operations have all ended.

        Small and made all the time, they would keep arenas of Python's memory that are empty
        otherwise: most operations end long before their deadlines.
        """
        self._buckets = {tick: bucket for tick, bucket in self._buckets.items() if bucket}
        self._ticks[:] = [tick for tick in self._ticks if tick in self._buckets]
        heapq.heapify(self._ticks)
        self._most = _SPARE + 2 * len(self._buckets)

    def _arm(self, tick: int) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._next = tick
        self._timer = self._loop.call_at(tick * self._tick, self._expire)

    def _expire(self) -> None:
        self._timer = None
        # The timer's own bucket is due, even if rounding puts its time just below the tick.
        now = max(self._next, int(self._loop.time() / self._tick))
        until = clock.perf_counter() + SLICE_SECONDS
        ticks = self._ticks
        try:
            while ticks and (ticks[0] <= now or not self._buckets[ticks[0]]):
                if clock.perf_counter() >= until:
                    break
                self._expire_bucket(heapq.heappop(ticks), until)
        finally:
            if ticks:
                self._arm(ticks[0])

    def _expire_bucket(self, tick: int, until: float) -> None:
        """Call the operations of a bucket, the last one first, until the slice ends."""
        bucket = self._buckets[tick]
        try:
            while bucket and clock.perf_counter() < until:
                bucket.popitem()[0].expire()
        finally:
            if bucket:
                heapq.heappush(self._ticks, tick)
            elif self._buckets.get(tick) is bucket:
                del self._buckets[tick]
