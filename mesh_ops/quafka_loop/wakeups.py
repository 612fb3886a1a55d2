"""Wakes many waiters at once, without a long turn of the event loop.

A waiter of a `DirectFuture` continues within the call that wakes it. One append may wake a
thousand of them, and together they would hold up the loop.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable

from quafka_loop import clock
from quafka_loop.slices import SLICE_SECONDS


class Wakeups:
    """Calls waiters back in their order: within the call for a slice, the others in later turns."""

    def __init__(self) -> None:
        self._waiting: deque[Callable[[], object]] = deque()
        self._under_way = False
        """Whether `_run` is running, or will be called."""

    def wake(self, waiters: Iterable[Callable[[], object]]) -> None:
        """Call these after the earlier ones. A waiter that wakes others does not call them."""
        self._waiting.extend(waiters)
        if not self._under_way:
            self._run()

    def _run(self) -> None:
        self._under_way = True
        until = clock.perf_counter() + SLICE_SECONDS
        try:
            while self._waiting:
                self._waiting.popleft()()
                if self._waiting and clock.perf_counter() >= until:
                    break
        finally:
            if self._waiting:
                asyncio.get_running_loop().call_soon(self._run)
            else:
                self._under_way = False
