"""What a process measures, and how it is read.

A hot path adds to a plain integer. Everything else happens when somebody asks: a collector walks
what is there and gives families, whose samples are made one by one as they are written, so that a
family of 100,000 partitions is never held and never keeps the event loop.
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
"""Seconds that a page waits for figures which may block, and for what takes many turns of the
loop; then it shows those of the last time."""

SECONDS = (
    0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0,
)  # fmt: skip
"""The buckets of every latency."""


class Kind(StrEnum):
    """What a family's numbers are, by Prometheus' names."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


class Histogram:
    """Counts by fixed buckets. Written by one thread; any may read."""

    __slots__ = ("bounds", "counts", "sum")

    def __init__(self, bounds: tuple[float, ...] = SECONDS) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        """Of each bucket alone; the last is of what is above all bounds."""
        self.sum = 0.0

    def observe(self, value: float) -> None:
        """Count one."""
        self.counts[bisect_left(self.bounds, value)] += 1
        self.sum += value

    @property
    def count(self) -> int:
        """How many there were."""
        return sum(self.counts)

    def cumulative(self) -> Iterator[int]:
        """How many were at or below each bound, and in all."""
        return accumulate(self.counts)

    def quantile(self, share: float) -> float | None:
        """Below which value so many of them lie, about: evenly spread within a bucket.

        None where there are none; the last bound where it is above that.
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
"""The values of a family's labels, and the number."""


class Family(NamedTuple):
    """All samples of one name.

    `name` has no `_total`: a counter's is written with it. `labels` are the names for the values
    that each sample has.
    """

    name: str
    kind: Kind
    help: str
    samples: Iterable[Sample]
    labels: tuple[str, ...] = ()


def counter(name: str, help: str, value: float) -> Family:  # noqa: A002
    """A counter without labels."""
    return Family(name, Kind.COUNTER, help, (((), value),))


def gauge(name: str, help: str, value: float) -> Family:  # noqa: A002
    """A gauge without labels."""
    return Family(name, Kind.GAUGE, help, (((), value),))


Collect = Callable[[], Iterable[Family]]


class _Before:
    """What is done before a collection. Several who ask at a time wait for one and the same."""

    def __init__(self, step: Callable[[], Awaitable[object]], patience: float) -> None:
        self._step = step
        self._patience = patience
        self._task: asyncio.Task[None] | None = None

    async def done(self) -> None:
        """Do it, or wait for whoever does; but no longer than is bearable."""
        if self._task is None:
            self._task = asyncio.create_task(self._run())
            self._task.add_done_callback(self._over)
        await asyncio.wait({self._task}, timeout=self._patience)

    async def _run(self) -> None:
        await self._step()

    def _over(self, task: asyncio.Task[None]) -> None:
        self._task = None
        if not task.cancelled() and task.exception() is not None:
            logger.error("some figures cannot be read", exc_info=task.exception())


class Metrics:
    """The collectors of one process: the few, and the many (`detail`)."""

    def __init__(self) -> None:
        self._few: list[Collect] = []
        self._many: list[Collect] = []
        self._blocking: list[Callable[[], object]] = []
        self._before_few = [_Before(self._read_blocking, _SLOWEST_READ)]
        self._before_many: list[_Before] = []

    def add(self, collect: Collect, *, detail: bool = False) -> None:
        """Read these, too. `detail`: there is one for every partition or group."""
        (self._many if detail else self._few).append(collect)

    def before(self, read: Callable[[], object]) -> None:
        """Call this in a thread before each collection of the few: what it looks at may block."""
        self._blocking.append(read)

    def before_detail(self, step: Callable[[], Awaitable[object]]) -> None:
        """Await this before each collection of the many."""
        self._before_many.append(_Before(step, _SLOWEST_STEP))

    async def refresh(self, *, detail: bool = False) -> None:
        """Do what is to be done before a collection."""
        for step in self._before_many if detail else self._before_few:
            await step.done()

    async def read(self, *, detail: bool = False) -> Iterator[Family]:
        """The families as they are now; the caller may take its time over them."""
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
                logger.debug("a figure cannot be read: %s", e)
