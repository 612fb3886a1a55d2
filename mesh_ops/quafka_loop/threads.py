"""Threads, what threads wait for, and their way back to the event loop.

`asyncio.to_thread` and `loop.run_in_executor` are the loop's own: a simulated loop runs their jobs.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from queue import SimpleQueue
from threading import Barrier, Event, Lock, RLock, Thread, local

__all__ = [
    "Barrier", "Event", "Lock", "LoopSignal", "RLock", "SimpleQueue", "Thread",
    "ThreadPoolExecutor", "local",
]  # fmt: skip


class LoopSignal:
    """Calls a function on an event loop when any thread calls `set`.

    `call_soon_threadsafe` costs some 15 µs more: it sends a byte through a socket, and the loop
    receives until the socket is empty. Several calls of `set` may lead to one call of the function.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, callback: Callable[[], object]) -> None:
        """Must be called on the loop's thread."""
        self._loop = loop
        self._callback = callback
        self._fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        loop.add_reader(self._fd, self._called)

    def set(self) -> None:
        """Have the function called in the next turn of the loop. From any thread."""
        os.eventfd_write(self._fd, 1)

    def close(self) -> None:
        """Call the function no more. No thread may call `set` after that."""
        if not self._loop.is_closed():
            self._loop.remove_reader(self._fd)
        os.close(self._fd)

    def _called(self) -> None:
        os.eventfd_read(self._fd)
        self._callback()
