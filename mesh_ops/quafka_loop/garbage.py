"""Schedules garbage collection: the search for cycles that reference counts do not free.

By default Python searches all objects whenever a quarter more than before are in use. That stops
the event loop for 300 ms with 110,000 producers at a broker, and for 440 with fetches of 480,000
partitions that wait at a gateway. So Python searches young objects only, less often than by
default: with 64 requests in flight nearly all of them were still in use. What survives is searched
here, once, before it is more than some 20 ms take, and then set aside.

Set-aside objects are searched after an hour, and earlier if the other searches find much garbage. A
search of a million of them stops the loop for 400 ms, so after one that has found little the next
one waits twice as long, a day at most. Until then garbage among them stays. So the product leaves
no cycles behind that have lived for long: see `ignore` and `freed_transports.py`.
"""

from __future__ import annotations

import asyncio
import gc
import sys
from collections.abc import Generator
from contextlib import contextmanager
from typing import NoReturn

from quafka_loop import clock

_NEVER = 1 << 30
_YOUNG = 4_000, 2
"""The newest objects are searched when there are more than this many. After this many such
searches, the next one also covers their survivors. A search takes less than a millisecond."""
_WORTH_IT = 6
"""Young searches from which on survivors are searched; each follows 12,000 new objects."""
_COMPLETE_SECONDS = 3_600
_LONGEST_SECONDS = 86_400
_COMPLETE_FOUND = 10_000
"""Least number of garbage objects, found since the last complete search, that make the next one
complete; with many objects in use, it takes a tenth of them."""
_PART = 10
_LITTLE = 100
"""A complete search that finds less than this part of what is in use has found little."""


class Garbage:
    """Decides which searches are complete. Times are seconds of a monotonic clock."""

    def __init__(self, blocks: int, now: float) -> None:
        """`blocks`: of memory in use, about one per object."""
        self._blocks = blocks
        self._found = 0
        self._complete = now
        self._complete_seconds = _COMPLETE_SECONDS

    def is_complete_due(self, now: float) -> bool:
        """Whether the next search must include the set-aside objects."""
        much = max(_COMPLETE_FOUND, self._blocks // _PART)
        return self._found >= much or now - self._complete >= self._complete_seconds

    def searched(self, blocks: int, found: int, now: float, *, complete: bool) -> None:
        """Record a search: the blocks in use after it, and the garbage objects that it found."""
        self._blocks = blocks
        self._found += found
        if complete:
            little = found * _LITTLE < blocks
            longer = min(2 * self._complete_seconds, _LONGEST_SECONDS)
            self._complete_seconds = longer if little else _COMPLETE_SECONDS
            self._found, self._complete = 0, now


async def search_survivors() -> NoReturn:
    """Take over the searches of older objects from Python until this is cancelled."""
    loop = asyncio.get_running_loop()
    due = asyncio.Event()

    def searched(phase: str, info: dict[str, int]) -> None:
        """Called by Python around each of its searches, in the thread that it stopped."""
        older = phase == "stop" and info["generation"] == 1
        if older and gc.get_count()[2] >= _WORTH_IT and not loop.is_closed():
            loop.call_soon_threadsafe(due.set)

    before = gc.get_threshold()
    gc.set_threshold(*_YOUNG, _NEVER)
    gc.callbacks.append(searched)
    garbage = Garbage(sys.getallocatedblocks(), clock.monotonic())
    try:
        while True:
            await due.wait()
            search(garbage)
            due.clear()
    finally:
        gc.callbacks.remove(searched)
        gc.set_threshold(*before)


def search(garbage: Garbage) -> None:
    """Search the objects that are not set aside, or all, and set the survivors aside."""
    complete = garbage.is_complete_due(clock.monotonic())
    if complete:
        gc.unfreeze()
    found = gc.collect()
    gc.freeze()
    garbage.searched(sys.getallocatedblocks(), found, clock.monotonic(), complete=complete)


def ignore(*_: object) -> None:
    """Replaces a callback that will not be called any more.

    The caller and the owner of a callback refer to each other: a cycle, until one drops the other.
    """


@contextmanager
def without_gc() -> Generator[None]:
    """Suspend automatic collection while many objects are made, none of which is garbage."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
