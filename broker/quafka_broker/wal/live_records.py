"""How many live records each segment holds: a record is live while a virtual topic has its id.

The counts follow what is appended and what dies, so that finding a segment to free costs nothing
for each partition. Only a start counts everything, in slices, while the log is in use.

An id belongs to the segment with the greatest first id that is not above it. First ids are noted
when a segment is first seen: rewriting a segment, which may raise its first id, changes no count.
"""

from __future__ import annotations

import asyncio
import time
from bisect import bisect_right
from collections import deque
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from quafka_broker.partitions.ids import GlobalIds
from quafka_broker.partitions.partition import Partition, PartitionId

_AT_ONCE = 8  # segments; in the call that reports a death
_SLICE_SECONDS = 0.002
_PAUSE_SECONDS = 0.006


class _Dead(NamedTuple):
    """Ids of [first_id, end_id) that have died."""

    ids: GlobalIds
    first_id: int
    end_id: int


class LiveRecords:
    """Counts by segment number. All methods belong to the event loop's thread.

    Invariant, once `settle` has returned: `count(n)` is the number of ids in segment n that a
    virtual topic has.
    """

    def __init__(self) -> None:
        self._first_ids: list[int] = []
        self._numbers: list[int] = []  # of the segments with those first ids
        self._counts: dict[int, int] = {}
        self._partitions: dict[PartitionId, Partition] = {}  # not counted yet
        self._counted_from = 0  # ids below are counted with their topic, the others as they come
        self._dead: deque[_Dead] = deque()
        self._settling = asyncio.Lock()

    def begin(
        self, segments: Iterable[tuple[int, int]], partitions: Iterable[Partition], next_id: int
    ) -> None:
        """What a start has found: (number, first id) of segments with entries, oldest first.

        All records have ids below `next_id`. What was counted before is forgotten.
        """
        self._first_ids, self._numbers, self._counts = [], [], {}
        for number, first_id in segments:
            self._see(number, first_id)
        self._partitions = {partition.id: partition for partition in partitions}
        self._counted_from = next_id

    def added(self, number: int, first_id: int, count: int) -> None:
        """Records were appended to a segment, with ids from `first_id` on."""
        if not self._numbers or self._numbers[-1] != number:
            self._see(number, first_id)
        self._counts[number] += count

    def died(self, partition: PartitionId, ids: GlobalIds, end_id: int) -> None:
        """A virtual topic has lost its ids below `end_id`; `ids` is not changed any more."""
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
        """A virtual topic is gone, with all of its ids."""
        self.died(partition.id, partition.ids, partition.next_id)
        self._partitions.pop(partition.id, None)

    def removed(self, number: int) -> None:
        """A segment is gone."""
        if number in self._counts:
            at = self._numbers.index(number)
            del self._numbers[at], self._first_ids[at], self._counts[number]

    def count(self, number: int) -> int:
        """The live records of a segment; exact when `settle` has just returned."""
        return self._counts.get(number, 0)

    async def settle(self) -> None:
        """Count what is not counted yet, at a quarter of the event loop's time."""
        async with self._settling:
            began = time.perf_counter()
            while self._step():
                if time.perf_counter() - began >= _SLICE_SECONDS:
                    await asyncio.sleep(_PAUSE_SECONDS)
                    began = time.perf_counter()

    def _step(self) -> bool:
        """Count one topic or one death; False where there is none."""
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
        """How many segments lie between the first and the last of the ids; None: there are none."""
        first = dead.ids.next_from(dead.first_id)
        if first is None or first >= dead.end_id:
            return None
        return bisect_right(self._first_ids, dead.end_id - 1) - bisect_right(self._first_ids, first)

    def _spread(self, ids: GlobalIds, first_id: int, end_id: int) -> Iterator[tuple[int, int]]:
        """Segments that hold some of the ids in [first_id, end_id), and how many each."""
        first = ids.next_from(first_id)
        while first is not None and first < end_id:
            at = bisect_right(self._first_ids, first)
            end = self._first_ids[at] if at < len(self._first_ids) else end_id
            if at:  # else it is older than every segment
                yield self._numbers[at - 1], ids.count_between(first, min(end, end_id))
            first = ids.next_from(end)

    def _see(self, number: int, first_id: int) -> None:
        self._numbers.append(number)
        self._first_ids.append(first_id)
        self._counts[number] = 0
