"""The rate at which a group reads a partition, from two of its commits. Pure.

Two marks are kept for each group and partition, half a minute or more apart: the committed offset
and the high watermark at that time. The last commit and the older mark give the read rate; the high
watermarks give the growth rate of the partition.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from typing import NamedTuple

_APART_MS = 30_000
_LONGEST_MS = 300_000  # a pause of this length ends a measurement
_SHORTEST_MS = 1_000  # two commits closer than this give no rate
_FRESH_MS = 60_000  # a group without a commit for this long does not read


class RateMark(NamedTuple):
    """A committed offset and the high watermark, at a wall clock time."""

    at_ms: int
    committed: int
    high_watermark: int


class ReadRates:
    """The rates of all groups in all partitions; keeps the `limit` most recent ones."""

    def __init__(self, limit: int = 100_000) -> None:
        self._limit = limit
        # The older and the newer mark.
        self._marks: OrderedDict[Hashable, tuple[RateMark, RateMark]] = OrderedDict()

    def __len__(self) -> int:
        """The number of groups and partitions with marks."""
        return len(self._marks)

    def is_due(self, key: Hashable, at_ms: int, committed: int) -> bool:
        """Whether a commit needs a mark; most do not."""
        marks = self._marks.get(key)
        if marks is None:
            return True
        newer = marks[1]
        return at_ms - newer.at_ms >= _APART_MS or committed < newer.committed

    def record(self, key: Hashable, mark: RateMark) -> None:
        """Add a mark. A commit that goes back begins a new measurement."""
        _, newer = self._marks.get(key, (mark, mark))
        if mark.committed < newer.committed or mark.at_ms - newer.at_ms > _LONGEST_MS:
            newer = mark
        self._marks[key] = (newer, mark)
        self._marks.move_to_end(key)
        if len(self._marks) > self._limit:
            self._marks.popitem(last=False)

    def restart(self, key: Hashable) -> None:
        """Begin a new measurement with the next commit."""
        self._marks.pop(key, None)

    def catch_up_seconds(
        self, key: Hashable, lag: int, last: RateMark, now_ms: int
    ) -> float | None:
        """Seconds until the group has read `lag` records at the present rates; None: unknown, or
        never.

        `last`: the last commit, with the present high watermark.
        """
        marks = self._marks.get(key)
        if marks is None or now_ms - last.at_ms > _FRESH_MS:
            return None
        base = next((mark for mark in marks if last.at_ms - mark.at_ms >= _SHORTEST_MS), None)
        if base is None:
            return None
        read = (last.committed - base.committed) / (last.at_ms - base.at_ms)
        grown = (last.high_watermark - base.high_watermark) / max(1, now_ms - base.at_ms)
        return lag / (read - grown) / 1000 if read > grown else None
