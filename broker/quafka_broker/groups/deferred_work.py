"""Bookkeeping after events: long work is sliced; all work runs in the order of the events."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Generator, Iterator

from quafka_loop.slices import in_slices

log = logging.getLogger("quafka.broker.groups")

Steps = Iterator[None]


class DeferredWork:
    """Runs work in the order in which it was submitted. For one event loop.

    Short work runs at once, unless long work is waiting or running.
    """

    def __init__(self) -> None:
        self._queue: deque[Steps] = deque()
        self._task: asyncio.Task[None] | None = None

    def run(self, steps: Steps, *, is_long: bool) -> None:
        """Run these steps, each of them short, after all earlier ones."""
        if not is_long and self._task is None:
            for _ in steps:
                pass
            return
        self._queue.append(steps)
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._run())

    async def wait_until_done(self) -> None:
        """Wait until no work is left."""
        while self._task is not None:
            await asyncio.wait([self._task])

    async def _run(self) -> None:
        try:
            while self._queue:
                steps = self._queue.popleft()
                try:
                    await in_slices(_each(steps))
                except Exception:  # a bug in one event's bookkeeping must not stop the others'
                    log.exception("the bookkeeping of a group's event failed")
        finally:
            self._task = None


def _each(steps: Steps) -> Generator[None, None, None]:
    yield from steps
