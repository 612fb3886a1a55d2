"""Long work on the event loop, with turns for others."""

from __future__ import annotations

import asyncio

_THINGS = 2_000


class Slices:
    """Counts what is made, some thousand things of a microsecond or two."""

    def __init__(self) -> None:
        self._made = 0

    async def made(self, count: int) -> None:
        """So many more; now it may be others' turn."""
        self._made += count
        if self._made >= _THINGS:
            self._made = 0
            await asyncio.sleep(0)
