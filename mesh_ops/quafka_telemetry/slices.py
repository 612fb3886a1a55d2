"""Long work on the event loop, with turns for others.

All long work of a loop takes turns: one slice runs in each turn of the loop, however many there
are to do, so that others wait for one slice and not for all.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Generator, Iterable
from time import perf_counter
from typing import TypeVar
from weakref import WeakKeyDictionary

T = TypeVar("T")

SLICE_SECONDS = 0.001
"""Work without a turn for others, where it is measured."""
_LOOKS = 31
"""The clock is looked at after so many items and one, a power of two."""


class _Line:
    """Those that wait for their turn on one loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._called = False

    async def turn(self) -> None:
        turn = self._loop.create_future()
        self._waiting.append(turn)
        self._call()
        await turn

    def _call(self) -> None:
        if not self._called:
            self._called = True
            self._loop.call_soon(self._next)

    def _next(self) -> None:
        self._called = False
        while self._waiting:
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(None)
                break
        if self._waiting:
            self._call()


_lines: WeakKeyDictionary[asyncio.AbstractEventLoop, _Line] = WeakKeyDictionary()


async def turn() -> None:
    """Let others run; return when it is this one's turn."""
    loop = asyncio.get_running_loop()
    line = _lines.get(loop)
    if line is None:
        line = _lines[loop] = _Line(loop)
    await line.turn()


class Slices:
    """Counts what is done, in slices of so many things: some milliseconds of work at most."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._done = 0

    async def done(self, count: int = 1) -> None:
        """So many more; now it may be others' turn."""
        self._done += count
        if self._done >= self._size:
            self._done = 0
            await turn()


async def listed(items: Iterable[T]) -> list[T]:
    """The list of what an iterator makes, with turns for others while it is made."""
    found: list[T] = []
    until = 0.0
    for item in items:
        found.append(item)
        if len(found) & _LOOKS == 0 and perf_counter() >= until:
            if until:
                await turn()
            until = perf_counter() + SLICE_SECONDS
    return found


async def in_slices(steps: Generator[None, None, T]) -> T:
    """Run work that yields after each short step; its result."""
    until = perf_counter() + SLICE_SECONDS
    try:
        while True:
            next(steps)
            if perf_counter() >= until:
                await turn()
                until = perf_counter() + SLICE_SECONDS
    except StopIteration as end:
        result: T = end.value
        return result
