"""Long work on the event loop, with turns for others."""

from __future__ import annotations

import asyncio


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
            await asyncio.sleep(0)
