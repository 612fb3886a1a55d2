"""Deadlines of many operations on one timer of the event loop.

A timer for each operation costs more than many operations: the loop keeps cancelled timers in its
heap. Here a deadline is an entry in a bucket, and the loop has one timer, for the next bucket.
"""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Callable

TICK = 0.05
"""Seconds: a deadline passes up to this much late, never early, unless another tick is chosen."""


class Deadline:
    """One operation's deadline."""

    __slots__ = ("_bucket", "_callback")

    def __init__(self, bucket: set[Deadline], callback: Callable[[], object]) -> None:
        self._bucket = bucket
        self._callback = callback

    def cancel(self) -> None:
        """Forget it. A deadline that has passed, or was cancelled, may be cancelled again."""
        self._bucket.discard(self)

    def expire(self) -> None:
        """Call back."""
        self._callback()


class Deadlines:
    """The deadlines of one event loop.

    The callbacks of one bucket run in one turn of the loop. A bucket is `tick` seconds.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, tick: float = TICK) -> None:
        self._loop = loop
        self._tick = tick
        self._buckets: dict[int, set[Deadline]] = {}
        self._ticks: list[int] = []  # of the buckets, as a heap
        self._timer: asyncio.TimerHandle | None = None
        self._next = 0  # the bucket of the timer

    def add(self, when: float, callback: Callable[[], object]) -> Deadline:
        """Call back at this loop time, or up to a tick later."""
        tick = int(when / self._tick) + 1
        bucket = self._buckets.get(tick)
        if bucket is None:
            bucket = self._buckets[tick] = set()
            heapq.heappush(self._ticks, tick)
            if self._timer is None or tick < self._next:
                self._arm(tick)
        deadline = Deadline(bucket, callback)
        bucket.add(deadline)
        return deadline

    def close(self) -> None:
        """Forget all deadlines."""
        for bucket in self._buckets.values():
            bucket.clear()
        self._buckets.clear()
        self._ticks.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _arm(self, tick: int) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._next = tick
        self._timer = self._loop.call_at(tick * self._tick, self._expire)

    def _expire(self) -> None:
        self._timer = None
        now = int(self._loop.time() / self._tick)
        ticks = self._ticks
        while ticks and (ticks[0] <= now or not self._buckets[ticks[0]]):
            bucket = self._buckets.pop(heapq.heappop(ticks))
            while bucket:
                bucket.pop().expire()
        if ticks:
            self._arm(ticks[0])
