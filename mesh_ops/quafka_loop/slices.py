"""Long work on the event loop, cut into slices.

All long work of a loop takes turns: one slice runs in each turn of the loop, so other tasks wait
for one slice at most, however much long work is pending. Orgs take turns, too: the long work of an
org has every second slice beside that of another one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Generator, Iterable
from typing import TypeVar
from weakref import WeakKeyDictionary

from quafka_loop import clock
from quafka_loop.log_context import current_party
from quafka_loop.org_queue import OrgQueue

T = TypeVar("T")

SLICE_SECONDS = 0.001
"""Longest measured work between two turns."""
_LOOKS = 31
"""The clock is read after this many items plus one, a power of two."""


class _Line:
    """The slices that wait for their turn on one loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._waiting: OrgQueue[asyncio.Future[None]] = OrgQueue()
        self._called = False

    async def turn(self) -> None:
        turn = self._loop.create_future()
        self._waiting.add(current_party(), turn)
        self._call()
        await turn

    def _call(self) -> None:
        if not self._called:
            self._called = True
            self._loop.call_soon(self._next)

    def _next(self) -> None:
        self._called = False
        while self._waiting:
            turn = self._waiting.pop()
            if not turn.done():
                turn.set_result(None)
                break
        if self._waiting:
            self._call()


_lines: WeakKeyDictionary[asyncio.AbstractEventLoop, _Line] = WeakKeyDictionary()


async def turn() -> None:
    """Let other tasks run; returns when it is this slice's turn."""
    loop = asyncio.get_running_loop()
    line = _lines.get(loop)
    if line is None:
        line = _lines[loop] = _Line(loop)
    await line.turn()


class Slices:
    """Counts work in items, and ends a slice after `size` of them: some milliseconds at most."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._done = 0

    async def done(self, count: int = 1) -> None:
        """Count `count` items; waits for the next turn at the end of a slice."""
        self._done += count
        if self._done >= self._size:
            self._done = 0
            await turn()


async def listed(items: Iterable[T]) -> list[T]:
    """Return the items of an iterator as a list, made in slices."""
    found: list[T] = []
    until = 0.0
    for item in items:
        found.append(item)
        if len(found) & _LOOKS == 0 and clock.perf_counter() >= until:
            if until:
                await turn()
            until = clock.perf_counter() + SLICE_SECONDS
    return found


def at_once(steps: Generator[None, None, T]) -> T:
    """Run a generator of few steps without yielding to others; returns its result."""
    try:
        while True:
            next(steps)
    except StopIteration as end:
        result: T = end.value
        return result


async def in_slices(steps: Generator[None, None, T]) -> T:
    """Run a generator that yields after each short step; returns its result."""
    until = clock.perf_counter() + SLICE_SECONDS
    try:
        while True:
            next(steps)
            if clock.perf_counter() >= until:
                await turn()
                until = clock.perf_counter() + SLICE_SECONDS
    except StopIteration as end:
        result: T = end.value
        return result
