"""Bookkeeping that follows an event: long work is done in slices, in the order of the events."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Generator, Iterator

from quafka_telemetry.slices import in_slices

log = logging.getLogger("quafka.broker.groups")

Steps = Iterator[None]


class Afterwards:
    """Runs work in the order in which it was given. For one event loop.

    Short work is done at once, unless long work is before it.
    """

    def __init__(self) -> None:
        self._line: deque[Steps] = deque()
        self._task: asyncio.Task[None] | None = None

    def do(self, steps: Steps, *, is_long: bool) -> None:
        """Run these steps, each of them short, behind all that were given before."""
        if not is_long and self._task is None:
            for _ in steps:
                pass
            return
        self._line.append(steps)
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._run())

    async def done(self) -> None:
        """Wait until nothing is left to do."""
        while self._task is not None:
            await asyncio.wait([self._task])

    async def _run(self) -> None:
        try:
            while self._line:
                steps = self._line.popleft()
                try:
                    await in_slices(_each(steps))
                except Exception:  # a mistake in one event's must not stop that of all others
                    log.exception("the bookkeeping of a group's event failed")
        finally:
            self._task = None


def _each(steps: Steps) -> Generator[None, None, None]:
    yield from steps
