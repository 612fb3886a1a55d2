"""The threads that check credentials: few, with a bounded queue."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar

from quafka_gateway.security.sasl.mechanism import BusyError
from quafka_loop import threads

T = TypeVar("T")

_THREADS = 2
_MOST_WAITING = 256
"""Some seconds of work: more would end at the connections' deadlines anyway."""


_NICE = 10


def _yield_to_the_loop() -> None:
    """Lower this thread's priority: password guessing must not take the loop's core."""
    with suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _NICE)


class Workers:
    """Runs checks outside the event loop. Hashing a password holds no lock of the interpreter."""

    def __init__(self, count: int = _THREADS, most_waiting: int = _MOST_WAITING) -> None:
        self._pool = threads.ThreadPoolExecutor(count, "credentials", _yield_to_the_loop)
        self._most = count + most_waiting
        self._taken = 0

    async def run(self, check: Callable[[], T]) -> T:
        """Run a check in a thread.

        Raises:
            BusyError: too many wait already.
        """
        if self._taken >= self._most:
            raise BusyError("too many credentials are being checked")
        self._taken += 1
        try:
            return await asyncio.get_running_loop().run_in_executor(self._pool, check)
        finally:
            self._taken -= 1

    def close(self) -> None:
        """Drop what has not begun."""
        self._pool.shutdown(wait=False, cancel_futures=True)
