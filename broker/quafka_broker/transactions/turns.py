"""Turns of transactional ids. A turn that is free at once costs no turn of the loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, TypeVar
from weakref import WeakValueDictionary

from quafka_broker.transactions.table import Key
from quafka_loop.eager_task import DirectFuture, EagerTask

T = TypeVar("T")


class ChangeTurns:
    """Runs the changes of one transactional id one after the other. For one event loop."""

    def __init__(self) -> None:
        self._locks: WeakValueDictionary[Key, asyncio.Lock] = WeakValueDictionary()
        self._running: set[EagerTask[Any]] = set()

    async def take(self, key: Key, change: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Run a change after all earlier ones, to its end, even if the caller is cancelled."""

        async def run() -> T:
            async with self._locks.setdefault(key, asyncio.Lock()):
                return await change()

        task = EagerTask(run())
        if not task.done():
            self._running.add(task)
            over: DirectFuture[None] = DirectFuture()  # to be cancelled instead of the task
            task.add_direct_callback(partial(self._ended, task, over))
            await over
        return task.result()

    def _ended(self, task: EagerTask[Any], over: DirectFuture[None]) -> None:
        self._running.discard(task)
        if not over.done():
            over.set_result(None)
        elif not task.cancelled():
            task.exception()  # marks it as seen: its cancelled caller no longer waits for it

    async def close(self) -> None:
        """Wait for the changes under way."""
        while self._running:
            await asyncio.wait(self._running)
