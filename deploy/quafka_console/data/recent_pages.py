"""Status pages that several views and people share: read again only when they are old."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from quafka_console.data.status_reader import OperationsPort, StatusPages, read_status_pages
from quafka_loop import clock

_FRESH_SECONDS = 2.0


class RecentPages:
    """The status pages of some ports, at most two seconds old; one reading serves all who wait."""

    def __init__(self) -> None:
        self._ports: Sequence[OperationsPort] = ()
        self._reading: asyncio.Task[StatusPages] | None = None
        self._began = 0.0

    async def read(self, ports: Sequence[OperationsPort]) -> StatusPages:
        """The pages of these ports."""
        now, reading = clock.monotonic(), self._reading
        if reading is None or ports != self._ports or now - self._began > _FRESH_SECONDS:
            self._ports, self._began = ports, now
            reading = self._reading = asyncio.create_task(read_status_pages(ports))
        return await asyncio.shield(reading)  # one who leaves does not end the others' reading
