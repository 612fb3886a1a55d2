"""A thread with its own event loop for the connections to Redis.

Parsing large answers and encoding records takes milliseconds of Python, which must not delay the
broker's own loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from quafka_loop import threads

_CLOSE_SECONDS = 2.0

T = TypeVar("T")


class Worker:
    """Runs coroutines in its thread, which starts with the first of them."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threads.Thread | None = None

    def submit(self, call: Coroutine[Any, Any, T]) -> asyncio.Future[T]:
        """Start a coroutine; the future belongs to the caller's loop, and cancels it."""
        if self._loop is None:
            self._loop = asyncio.new_event_loop()
            self._thread = threads.Thread(target=self._run, name="redis", daemon=True)
            self._thread.start()
        return asyncio.wrap_future(asyncio.run_coroutine_threadsafe(call, self._loop))

    def _run(self) -> None:
        assert self._loop is not None
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_forever()
        finally:
            self._loop.close()

    async def close(self) -> None:
        """Cancel running coroutines, and end the thread."""
        loop, thread = self._loop, self._thread
        if loop is None or thread is None:
            return
        await self.submit(_cancel_others())
        loop.call_soon_threadsafe(loop.stop)
        await asyncio.to_thread(thread.join)
        self._loop = self._thread = None


async def _cancel_others() -> None:
    every = asyncio.all_tasks() - {asyncio.current_task()}
    others = sorted(every, key=lambda task: task.get_name())
    if others:  # cancelled ones are closing their connections
        await asyncio.wait(others, timeout=_CLOSE_SECONDS)
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)
