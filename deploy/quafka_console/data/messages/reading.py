"""Reads records of a topic: the newest ones, or from an offset or a time on.

A filter may look at everything up to the end, so a reading is bounded by what it fetches and by
what it keeps, tells its progress, and can be stopped. Requests are made one after another.
"""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Container
from dataclasses import dataclass

from quafka_client import offsets
from quafka_client.cluster import ClientCluster
from quafka_client.connection import ClientConnection
from quafka_client.errors import ClientError
from quafka_client.records import FetchedBatches, fetch
from quafka_console.data.messages.decoding import Best, Choice, Part, Progress, decode
from quafka_console.data.messages.records import ReadRecord
from quafka_proto.schema.metadata import MetadataResponseTopic

_FETCH_BYTES, _LEAST_FETCH = 1 << 20, 64 << 10
_FIRST_WINDOW = 500
_MORE = 4
"""How much larger each window is than the one after it."""


@dataclass(frozen=True, slots=True)
class Limits:
    """The bounds of a reading.

    Attributes:
        count: records that are returned.
        kept: about their bytes in memory.
        fetched: bytes that are fetched.
        fetches: requests.
        scan: the last offsets of each partition in which `newest` looks.
    """

    count: int
    kept: int = 32 << 20
    fetched: int = 4 << 30
    fetches: int = 20_000
    scan: int = 20_000


@dataclass(frozen=True, slots=True)
class ReadRange:
    """Where a reading looks.

    Attributes:
        partitions: None: all.
        offset: no earlier offset of each partition.
        since: from the first record on with at least this timestamp, in ms since 1970.
        until: up to the first record with at least this timestamp.
    """

    partitions: Container[int] | None = None
    offset: int | None = None
    since: int | None = None
    until: int | None = None


async def newest(
    cluster: ClientCluster,
    topic: str,
    span: ReadRange,
    choice: Choice,
    limits: Limits,
    progress: Progress,
) -> list[ReadRecord]:
    """The last records that are wanted, the newest first.

    Of each partition only the last `scan` offsets are looked at. Raises ClientError.
    """
    reading = await _Reading.begin(cluster, topic, span, choice, limits, progress)
    for number, (start, end) in reading.ranges.items():
        if reading.over:
            break
        await reading.backwards(number, max(start, end - limits.scan), end)
    return reading.best.records()


async def onwards(
    cluster: ClientCluster,
    topic: str,
    span: ReadRange,
    choice: Choice,
    limits: Limits,
    progress: Progress,
) -> list[ReadRecord]:
    """The first records that are wanted: all partitions merged by time, each in its own order.

    Raises ClientError.
    """
    reading = await _Reading.begin(cluster, topic, span, choice, limits, progress)
    await reading.merge()
    return reading.best.records()


@dataclass(slots=True)
class _Reading:
    """One reading. `ranges`: of each partition the first offset and the one after the last."""

    topic: str
    leaders: dict[int, ClientConnection]
    ranges: dict[int, tuple[int, int]]
    stable: dict[int, int]
    choice: Choice
    limits: Limits
    progress: Progress
    best: Best
    fetches: int = 0
    fetched: int = 0

    @classmethod
    async def begin(
        cls, cluster: ClientCluster, topic: str, span: ReadRange, choice: Choice, limits: Limits,
        progress: Progress,
    ) -> _Reading:  # fmt: skip
        """Look up leaders and offsets. Raises ClientError."""
        found, leaders = await _topic(cluster, topic, span.partitions)
        starts = await offsets.list_offsets(cluster, found, offsets.START)
        stable = await offsets.list_offsets(cluster, found, offsets.END, committed=True)
        ends = stable
        if not choice.committed:
            ends = await offsets.list_offsets(cluster, found, offsets.END)
        since = until = dict[int, int]()
        if span.since is not None:
            since = await offsets.list_offsets(cluster, found, span.since)
        if span.until is not None:
            until = await offsets.list_offsets(cluster, found, span.until)
        ranges: dict[int, tuple[int, int]] = {}
        for number in leaders:
            first, last = max(starts[number], span.offset or 0), ends[number]
            if number in since:
                first = max(first, since[number]) if since[number] >= 0 else last
            if until.get(number, -1) >= 0:
                last = min(last, until[number])
            if first < last:
                ranges[number] = first, last
        best = Best(limits.count, limits.kept)
        return cls(topic, leaders, ranges, stable, choice, limits, progress, best)

    @property
    def over(self) -> bool:
        """Whether it was stopped, or has reached its limit."""
        if self.fetches >= self.limits.fetches or self.fetched >= self.limits.fetched:
            self.progress.limited = True
        return self.progress.stopped or self.progress.limited

    async def backwards(self, number: int, start: int, end: int) -> None:
        """The newest records of a partition: windows of offsets from its end on, ever larger."""
        size = left = self.limits.count
        if self.choice.wanted is not None:
            size = max(size, _FIRST_WINDOW)
        while end > start and left > 0 and not self.over:
            part = Part(number, max(start, end - size), end)
            end, size = part.at, size * _MORE
            while part.at < part.end and not self.over:
                await self._step(part, _FETCH_BYTES, latest=True)
            left -= part.matched

    async def merge(self) -> None:
        """The earliest records: read on where time has advanced least."""
        size = max(_LEAST_FETCH, _FETCH_BYTES // max(1, len(self.ranges)))
        parts = [Part(number, *its) for number, its in self.ranges.items()]
        behind = [(part.time, part.number, part) for part in parts]
        heapq.heapify(behind)
        while behind and not self.over:
            time, number, part = heapq.heappop(behind)
            if not self.best.takes((time, number, part.at)):
                continue  # what follows there is later than all that is kept
            await self._step(part, size, latest=False)
            if part.at < part.end and part.matched < self.limits.count:
                heapq.heappush(behind, (part.time, number, part))

    async def _step(self, part: Part, most: int, *, latest: bool) -> None:
        leader = self.leaders[part.number]
        committed = part.at < self.stable[part.number]
        found = await fetch(
            leader, self.topic, part.number, part.at, committed=committed, most=most
        )
        self.fetches += 1
        self.fetched += len(found.batches)
        await asyncio.to_thread(self._decode, found, part, latest)

    def _decode(self, found: FetchedBatches, part: Part, latest: bool) -> None:
        decode(found, part, self.choice, self.best, self.progress, latest=latest)


async def _topic(
    cluster: ClientCluster, name: str, partitions: Container[int] | None
) -> tuple[MetadataResponseTopic, dict[int, ClientConnection]]:
    found = await cluster.topic(name)
    known = {
        number: leader
        for leader, its in await cluster.each_leader(found)
        for number in its
        if partitions is None or number in partitions
    }
    if not known:
        raise ClientError(f"topic {name!r} has none of these partitions")
    return found, dict(sorted(known.items()))
