"""Schedules garbage collection: the search for cycles that reference counts do not free.

Python searches all objects whenever enough new ones were made. While a request for 100,000
partitions is decoded, such a search stops the event loop for up to 200 ms, although reference
counts free nearly all objects of a request. So Python searches young objects only, and this module
searches all objects after the work that made many of them. Young objects are searched less often
than by default: with 64 requests in flight nearly all of them were still in use.

A broker keeps state for as long as it runs: 110,000 producers take 300 ms to search. So a process
may set aside the survivors of a search; the next search then covers newer objects only. Set-aside
objects are searched after an hour, and earlier if the other searches find much garbage. A
search of a million of them stops the loop for 400 ms, so after one that has found little the next
one waits twice as long, a day at most.
"""

from __future__ import annotations

import asyncio
import gc
import sys
from collections.abc import Generator
from contextlib import contextmanager
from typing import NoReturn

_NEVER = 1 << 30
_YOUNG = 4_000, 2
"""The newest objects are searched when there are more than this many. After this many such
searches, the next one also covers their survivors. A search takes less than a millisecond."""
_SECONDS = 1.0
_WORTH_IT = 10
"""Least number of young searches before a full one; each follows 12,000 new objects."""
_OVERDUE = 30
"""Seconds after which a search of all objects no longer waits for the end of the work."""
_OVERDUE_ASIDE = 1
"""The same if survivors are set aside: a search takes longer with more new objects."""
_BLOCKS = 200_000
_COMPLETE_SECONDS = 3_600
_LONGEST_SECONDS = 86_400
_COMPLETE_FOUND = 10_000
"""Least number of garbage objects, found since the last complete search, that make the next one
complete; with many objects in use, it takes a tenth of them."""
_PART = 10
_LITTLE = 100
"""A complete search that finds less than this part of what is in use has found little."""


class Garbage:
    """Decides when to search. Memory is counted in blocks, about one per object."""

    def __init__(self, *, sets_aside: bool = False) -> None:
        self._low = sys.getallocatedblocks()
        self._waited = 0
        self._overdue = _OVERDUE_ASIDE if sets_aside else _OVERDUE
        self._found = 0
        self._since_complete = 0
        self._complete_seconds = _COMPLETE_SECONDS

    def is_due(self, blocks: int, searches: int) -> bool:
        """Called each second with the blocks in use and the young searches since the last full
        one."""
        self._since_complete += 1
        if searches < _WORTH_IT:
            self._low = min(self._low, blocks)
            return False
        self._waited += 1
        return self._waited >= self._overdue or blocks <= self._low + self._low // 4 + _BLOCKS

    def is_complete_due(self) -> bool:
        """Whether the next search must include the set-aside objects."""
        much = max(_COMPLETE_FOUND, self._low // _PART)
        return self._found >= much or self._since_complete >= self._complete_seconds

    def searched(self, blocks: int, found: int = 0, *, complete: bool = False) -> None:
        """Record a search: the blocks in use after it, and the garbage objects that it found."""
        self._waited = 0
        self._low = blocks
        self._found += found
        if complete:
            little = found * _LITTLE < blocks
            longer = min(2 * self._complete_seconds, _LONGEST_SECONDS)
            self._complete_seconds = longer if little else _COMPLETE_SECONDS
            self._found = self._since_complete = 0


async def collect_when_idle(*, sets_aside: bool = False) -> NoReturn:
    """Take over full searches from Python until this is cancelled."""
    before = gc.get_threshold()
    gc.set_threshold(*_YOUNG, _NEVER)
    garbage = Garbage(sets_aside=sets_aside)
    try:
        while True:
            await asyncio.sleep(_SECONDS)
            if garbage.is_due(sys.getallocatedblocks(), gc.get_count()[2]):
                _search(garbage, sets_aside=sets_aside)
    finally:
        gc.set_threshold(*before)


def _search(garbage: Garbage, *, sets_aside: bool) -> None:
    complete = sets_aside and garbage.is_complete_due()
    if complete:
        gc.unfreeze()
    found = gc.collect()
    if sets_aside:
        gc.freeze()
    garbage.searched(sys.getallocatedblocks(), found, complete=complete)


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
