"""The metrics of a process, and how they are collected.

A hot path adds to a plain integer. All other work happens when the metrics are read: a collector
yields families, whose samples are made one by one while they are written, so a family of 100,000
partitions is never held in memory and never blocks the event loop.
"""

from __future__ import annotations

import asyncio
import logging
from bisect import bisect_left
from collections.abc import Awaitable, Callable, Iterable, Iterator
from enum import StrEnum
from itertools import accumulate
from typing import NamedTuple

logger = logging.getLogger("quafka.metrics")

_SLOWEST_READ, _SLOWEST_STEP = 1.0, 20.0
"""Seconds that a page waits for figures read in a thread, and for those that take many turns of the
loop. After that, the page shows the previous figures."""

SECONDS = (
    0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0,
)  # fmt: skip
"""The bucket bounds of every latency histogram."""


class FamilyKind(StrEnum):
    """The type of a family, by Prometheus' names."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


class Histogram:
    """Counts by fixed buckets. Written by one thread; any may read."""

    __slots__ = ("bounds", "counts", "sum")

    def __init__(self, bounds: tuple[float, ...] = SECONDS) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        """Not cumulative; the last bucket counts the values above all bounds."""
        self.sum = 0.0

    def observe(self, value: float) -> None:
        """Count a value."""
        self.counts[bisect_left(self.bounds, value)] += 1
        self.sum += value

    @property
    def count(self) -> int:
        """The number of values."""
        return sum(self.counts)

    def cumulative(self) -> Iterator[int]:
        """The number of values at or below each bound, and the total."""
        return accumulate(self.counts)

    def quantile(self, share: float) -> float | None:
        """Estimate a quantile, with values spread evenly within a bucket.

        None without values; the last bound if the quantile is above it.
        """
        rank = share * self.count
        if not rank:
            return None
        below, low = 0, 0.0
        for bound, count in zip(self.bounds, self.counts, strict=False):
            if below + count >= rank:
                return low + (bound - low) * (rank - below) / count
            below, low = below + count, bound
        return low


Value = int | float | Histogram
Sample = tuple[tuple[str, ...], Value]
"""The values of a family's labels, and the sample's value."""


class Family(NamedTuple):
    """All samples of one name.

    `name` is without `_total`, which is added when a counter is written. `labels`: the names for
    the label values of each sample.
    """

    name: str
    kind: FamilyKind
    help: str
    samples: Iterable[Sample]
    labels: tuple[str, ...] = ()


def counter(name: str, help: str, value: float) -> Family:  # noqa: A002
    """A counter without labels."""
    return Family(name, FamilyKind.COUNTER, help, (((), value),))


def gauge(name: str, help: str, value: float) -> Family:  # noqa: A002
    """A gauge without labels."""
    return Family(name, FamilyKind.GAUGE, help, (((), value),))


Collect = Callable[[], Iterable[Family]]


class _Before:
    """A step before a collection. Concurrent collections share one run of it."""

    def __init__(self, step: Callable[[], Awaitable[object]], patience: float) -> None:
        self._step = step
        self._patience = patience
        self._task: asyncio.Task[None] | None = None

    async def done(self) -> None:
        """Run the step, or wait for the current run, for a bounded time."""
        if self._task is None:
            self._task = asyncio.create_task(self._run())
            self._task.add_done_callback(self._over)
        await asyncio.wait({self._task}, timeout=self._patience)

    async def _run(self) -> None:
        await self._step()

    def _over(self, task: asyncio.Task[None]) -> None:
        self._task = None
        if not task.cancelled() and task.exception() is not None:
            logger.error("some metrics cannot be read", exc_info=task.exception())


class Metrics:
    """The collectors of one process: those of few samples, and those of many (`detail`)."""

    def __init__(self) -> None:
        self._few: list[Collect] = []
        self._many: list[Collect] = []
        self._blocking: list[Callable[[], object]] = []
        self._before_few = [_Before(self._read_blocking, _SLOWEST_READ)]
        self._before_many: list[_Before] = []

    def add(self, collect: Collect, *, detail: bool = False) -> None:
        """Add a collector. `detail`: it has a sample for every partition or group."""
        (self._many if detail else self._few).append(collect)

    def before(self, read: Callable[[], object]) -> None:
        """Call `read`, which may block, in a thread before each collection without detail."""
        self._blocking.append(read)

    def before_detail(self, step: Callable[[], Awaitable[object]]) -> None:
        """Await `step` before each collection with detail."""
        self._before_many.append(_Before(step, _SLOWEST_STEP))

    async def refresh(self, *, detail: bool = False) -> None:
        """Run the steps before a collection."""
        for step in self._before_many if detail else self._before_few:
            await step.done()

    async def read(self, *, detail: bool = False) -> Iterator[Family]:
        """Return the current families. The caller may iterate over them slowly."""
        await self.refresh(detail=detail)
        collectors = self._many if detail else self._few
        return (family for collect in collectors for family in collect())

    async def _read_blocking(self) -> None:
        await asyncio.to_thread(self._call_blocking)

    def _call_blocking(self) -> None:
        for read in self._blocking:
            try:
                read()
            except OSError as e:
                logger.debug("a metric cannot be read: %s", e)
