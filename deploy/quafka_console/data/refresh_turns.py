"""Turns of open pages to read the cluster again, so that many browsers do not keep it busy."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from quafka_loop import clock


class RefreshTurns:
    """One refresh at a time, first come, first served; all of them take at most a share of the
    time. So the more browsers are open, the less often each is refreshed.
    """

    def __init__(self, share: float = 0.05) -> None:
        """`share`: of the time, above 0 and at most 1."""
        self._pause = 1 / share - 1
        self._free_at = 0.0
        self._lock = asyncio.Lock()

    @asynccontextmanager
    async def turn(self) -> AsyncGenerator[None]:
        """Wait for a turn, which lasts as long as the block."""
        async with self._lock:
            await asyncio.sleep(max(0.0, self._free_at - clock.monotonic()))
            began = clock.monotonic()
            try:
                yield
            finally:
                ended = clock.monotonic()
                self._free_at = ended + (ended - began) * self._pause
