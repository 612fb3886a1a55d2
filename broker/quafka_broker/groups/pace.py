"""How fast a group reads a partition, from two of its commits. Pure.

A partition's pace is two marks, half a minute or more apart: what was committed, and the high
watermark, at that time. Against the older one the last commit says how fast the group reads, and
the high watermark how fast the partition grows.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from typing import NamedTuple

_APART_MS = 30_000
_LONGEST_MS = 300_000  # a pause as long as this ends a pace
_SHORTEST_MS = 1_000  # two commits as near as this say nothing
_FRESH_MS = 60_000  # who has not committed for as long does not read


class Mark(NamedTuple):
    """What was known at a time (wall clock)."""

    at_ms: int
    committed: int
    high_watermark: int


class Paces:
    """The paces of all groups in all partitions: the `limit` that committed last."""

    def __init__(self, limit: int = 100_000) -> None:
        self._limit = limit
        self._marks: OrderedDict[Hashable, tuple[Mark, Mark]] = OrderedDict()  # older, newer

    def __len__(self) -> int:
        """How many are kept."""
        return len(self._marks)

    def is_due(self, key: Hashable, at_ms: int, committed: int) -> bool:
        """Whether a commit is to be marked; most are not."""
        marks = self._marks.get(key)
        if marks is None:
            return True
        newer = marks[1]
        return at_ms - newer.at_ms >= _APART_MS or committed < newer.committed

    def mark(self, key: Hashable, mark: Mark) -> None:
        """Remember a commit. One that goes back begins a new pace."""
        _, newer = self._marks.get(key, (mark, mark))
        if mark.committed < newer.committed or mark.at_ms - newer.at_ms > _LONGEST_MS:
            newer = mark
        self._marks[key] = (newer, mark)
        self._marks.move_to_end(key)
        if len(self._marks) > self._limit:
            self._marks.popitem(last=False)

    def restart(self, key: Hashable) -> None:
        """The next commit begins a new pace."""
        self._marks.pop(key, None)

    def catch_up_seconds(self, key: Hashable, lag: int, last: Mark, now_ms: int) -> float | None:
        """How long until nothing is left of `lag`, at the present pace; None: not known, or never.

        `last`: the last commit, with the high watermark of now.
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
