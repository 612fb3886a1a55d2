"""Measures the turns of the event loop.

A turn is the work of the loop between two polls of its sockets. Data that arrives during a turn
waits for its end, so the longest turn is the worst delay that this process adds to a request. The
loop is asyncio's; its selector and the end of its transports are ours. Turns below a millisecond,
nearly all, are not counted: the probe costs about 0.3 µs a turn.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from selectors import SelectorKey

from quafka_loop import clock
from quafka_loop.fair_selector import FairSelector, attach
from quafka_loop.freed_transports import FreedTransportsLoop
from quafka_telemetry.metrics import Family, FamilyKind, Histogram, gauge

_BOUNDS = (0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
_SHORT = 0.001


class LoopTurns:
    """Counts the turns of one event loop of a millisecond or more, by length."""

    def __init__(self) -> None:
        self.histogram = Histogram(_BOUNDS)
        self._longest = 0.0

    def new_loop(self) -> asyncio.AbstractEventLoop:
        """Make an event loop whose turns are counted here."""
        selector = _TimedSelector(self)
        loop = FreedTransportsLoop(selector)
        attach(loop, selector)
        return loop

    def ended(self, seconds: float) -> None:
        """Count a turn."""
        self.histogram.observe(seconds)
        if seconds > self._longest:
            self._longest = seconds

    def take_longest(self) -> float:
        """Return the longest turn since the last call, in seconds."""
        longest, self._longest = self._longest, 0.0
        return longest

    def collect(self) -> Iterator[Family]:
        """Yield the families for `/metrics`. Reading them resets the longest turn."""
        yield Family(
            "quafka_loop_turn_seconds", FamilyKind.HISTOGRAM,
            "Turns of the event loop of 1 ms or more; data that arrives meanwhile waits",
            [((), self.histogram)],
        )  # fmt: skip
        yield gauge(
            "quafka_loop_longest_turn_seconds",
            "Longest turn of the event loop since the last scrape", self.take_longest(),
        )  # fmt: skip


class _TimedSelector(FairSelector):
    """Reports the time between the end of one `select` and the start of the next."""

    def __init__(self, turns: LoopTurns) -> None:
        super().__init__()
        self._ended = turns.ended
        self._wait = super().select
        self._began = clock.perf_counter()

    def select(self, timeout: float | None = None) -> list[tuple[SelectorKey, int]]:
        seconds = clock.perf_counter() - self._began
        if seconds >= _SHORT:
            self._ended(seconds)
        found = self._wait(timeout)
        self._began = clock.perf_counter()
        return found
