"""Reads the metrics of the gateways again and again, and keeps an hour of rates."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence

from quafka_console.data.history import SAMPLE_SECONDS, History, counters_of
from quafka_console.data.status_reader import OperationsPort, read_metrics
from quafka_loop import clock

log = logging.getLogger("quafka.console")


class Rates:
    """What the gateways did in the last hour."""

    def __init__(self, ports: Sequence[OperationsPort]) -> None:
        self.history = History()
        self._ports = ports
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to read."""
        self._task = asyncio.create_task(self._run())

    async def close(self) -> None:
        """Stop reading."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait((self._task,))

    async def _run(self) -> None:
        while True:
            try:
                pages = await read_metrics(self._ports)
                counters = {url: counters_of(page) for url, page in pages.items()}
                gateways = {url: each for url, each in counters.items() if each.durations}
                self.history.add(clock.time(), gateways)
            except Exception:  # a defect must not end later readings
                log.exception("reading the metrics failed")
            await asyncio.sleep(SAMPLE_SECONDS)
