"""When a process looks for garbage among everything that it has.

Python does so whenever enough objects were made, and looks at each that is older: of a request
about 100,000 partitions, for up to 200 ms in the midst of decoding it, in which nobody is served.
Nearly all of what a request leaves is freed without such a search. So young objects alone are
searched as usual, all of them once the work that made many of them is over.
"""

from __future__ import annotations

import asyncio
import gc
import sys
from typing import NoReturn

_NEVER = 1 << 30
_SECONDS = 1.0
_WORTH_IT = 10
"""Searches among young objects, as many as Python waits for; each was for 7,000 new objects."""
_OVERDUE = 30
"""Seconds after which all objects are searched, however many there are."""
_BLOCKS = 200_000


class Garbage:
    """Decides when to search. `blocks`: how much memory Python has in use, in objects."""

    def __init__(self) -> None:
        self._low = sys.getallocatedblocks()
        self._waited = 0

    def is_due(self, blocks: int, searches: int) -> bool:
        """Called each second, with the searches among young objects since the last full one."""
        if searches < _WORTH_IT:
            self._low = min(self._low, blocks)
            return False
        self._waited += 1
        return self._waited >= _OVERDUE or blocks <= self._low + self._low // 4 + _BLOCKS

    def searched(self, blocks: int) -> None:
        """All objects were searched; so much is in use now."""
        self._waited = 0
        self._low = blocks


async def collect_when_idle() -> NoReturn:
    """Take over from Python until this is cancelled."""
    before = gc.get_threshold()
    gc.set_threshold(before[0], before[1], _NEVER)
    garbage = Garbage()
    try:
        while True:
            await asyncio.sleep(_SECONDS)
            if garbage.is_due(sys.getallocatedblocks(), gc.get_count()[2]):
                gc.collect()
                garbage.searched(sys.getallocatedblocks())
    finally:
        gc.set_threshold(*before)
