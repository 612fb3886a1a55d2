"""Counts the live records in each segment. A record is live while a partition has its id.

The counts follow appends and deletions, so finding a segment to free needs no look at partitions.
Only a start counts all records, in slices, while the log is in use.

An id belongs to the segment with the highest first id up to it. A segment's first id is recorded
once: a rewrite, which may raise the first id, changes no count.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from collections import deque
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from quafka_broker.partitions.ids import GlobalIds
from quafka_broker.partitions.partition import Partition, PartitionId
from quafka_loop import clock

_AT_ONCE = 8  # segments that `died` counts itself
_SLICE_SECONDS = 0.002
_PAUSE_SECONDS = 0.006


class _Dead(NamedTuple):
    """Dead ids in [first_id, end_id)."""

    ids: GlobalIds
    first_id: int
    end_id: int


class LiveRecords:
    """Counts by segment number. All methods belong to the event loop's thread.

    Invariant, once `settle` has returned: `count(n)` is the number of ids of partitions in segment
    n.
    """

    def __init__(self) -> None:
        self._first_ids: list[int] = []
        self._numbers: list[int] = []  # the segments with those first ids
        self._counts: dict[int, int] = {}
        self._partitions: dict[PartitionId, Partition] = {}  # not counted yet
        self._counted_from = 0  # ids from here on are counted when appended
        self._dead: deque[_Dead] = deque()
        self._settling = asyncio.Lock()

    def begin(
        self, segments: Iterable[tuple[int, int]], partitions: Iterable[Partition], next_id: int
    ) -> None:
        """Count from scratch: (number, first id) of segments with entries, oldest first.

        All records have ids below `next_id`.
        """
        self._first_ids, self._numbers, self._counts = [], [], {}
        for number, first_id in segments:
            self._see(number, first_id)
        self._partitions = {partition.id: partition for partition in partitions}
        self._counted_from = next_id

    def added(self, number: int, first_id: int, count: int) -> None:
        """Count records appended to a segment, with ids from `first_id` on."""
        if not self._numbers or self._numbers[-1] != number:
            self._see(number, first_id)
        self._counts[number] += count

    def died(self, partition: PartitionId, ids: GlobalIds, end_id: int) -> None:
        """Discount a partition's ids below `end_id`. The caller must no longer change `ids`."""
        first_id = self._counted_from if partition in self._partitions else 0
        dead = _Dead(ids, first_id, end_id)
        within = self._span(dead)
        if within is None:
            return
        if within <= _AT_ONCE and not self._dead:
            self._take_away(dead)
        else:
            self._dead.append(dead)

    def dropped(self, partition: Partition) -> None:
        """Discount all ids of a deleted partition."""
        self.died(partition.id, partition.ids, partition.next_id)
        self._partitions.pop(partition.id, None)

    def removed(self, number: int) -> None:
        """Drop the count of a removed segment."""
        if number in self._counts:
            at = self._numbers.index(number)
            del self._numbers[at], self._first_ids[at], self._counts[number]

    def count(self, number: int) -> int:
        """The number of live records in a segment; exact right after `settle`."""
        return self._counts.get(number, 0)

    async def settle(self) -> None:
        """Count everything not counted yet, in a quarter of the event loop's time."""
        async with self._settling:
            began = clock.perf_counter()
            while self._step():
                if clock.perf_counter() - began >= _SLICE_SECONDS:
                    await asyncio.sleep(_PAUSE_SECONDS)
                    began = clock.perf_counter()

    def _step(self) -> bool:
        """Count one partition or one deletion; False if none is left."""
        if self._partitions:
            _, partition = self._partitions.popitem()
            for number, count in self._spread(partition.ids, 0, self._counted_from):
                self._counts[number] += count
        elif self._dead:
            self._take_away(self._dead.popleft())
        else:
            return False
        return True

    def _take_away(self, dead: _Dead) -> None:
        for number, count in self._spread(*dead):
            self._counts[number] -= count

    def _span(self, dead: _Dead) -> int | None:
        """The number of segments between the first and the last id; None if there are no ids."""
        first = dead.ids.next_from(dead.first_id)
        if first is None or first >= dead.end_id:
            return None
        return bisect_right(self._first_ids, dead.end_id - 1) - bisect_right(self._first_ids, first)

    def _spread(self, ids: GlobalIds, first_id: int, end_id: int) -> Iterator[tuple[int, int]]:
        """The segments with ids in [first_id, end_id), each with their number."""
        first = ids.next_from(first_id)
        while first is not None and first < end_id:
            at = bisect_right(self._first_ids, first)
            end = self._first_ids[at] if at < len(self._first_ids) else end_id
            if at:  # otherwise the id is older than every segment
                yield self._numbers[at - 1], ids.count_between(first, min(end, end_id))
            first = ids.next_from(end)

    def _see(self, number: int, first_id: int) -> None:
        self._numbers.append(number)
        self._first_ids.append(first_id)
        self._counts[number] = 0
