"""The gaps of a partition: offsets of batches that compaction has removed. Pure.

A gap's records keep their ids and offsets, so other offsets do not shift; reads continue after the
gap. The value is immutable, so a reading thread sees one consistent state. A gap takes 16 bytes.
"""

from __future__ import annotations

import sys
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from itertools import chain, pairwise

Range = tuple[int, int]
"""Offsets [first, end)."""


class Gaps:
    """Ascending ranges of offsets that are not adjacent."""

    __slots__ = ("_ends", "_firsts")

    def __init__(self, ranges: Iterable[Range] = ()) -> None:
        """The union of ranges, in any order."""
        self._firsts, self._ends = array("Q"), array("Q")
        for first, end in sorted(ranges):
            if self._ends and first <= self._ends[-1]:
                self._ends[-1] = max(self._ends[-1], end)
            elif first < end:
                self._firsts.append(first)
                self._ends.append(end)

    def __len__(self) -> int:
        """The number of gaps."""
        return len(self._firsts)

    def __iter__(self) -> Iterator[Range]:
        return zip(self._firsts, self._ends, strict=True)

    @property
    def offsets(self) -> int:
        """The number of offsets in all gaps."""
        return sum(self._ends) - sum(self._firsts)

    def end_of(self, offset: int) -> int:
        """The first offset from this one on that is in no gap."""
        at = bisect_right(self._firsts, offset) - 1
        return max(offset, self._ends[at]) if at >= 0 else offset

    def covers(self, first: int, end: int) -> bool:
        """Whether all offsets of [first, end) are in one gap."""
        at = bisect_right(self._firsts, first) - 1
        return at >= 0 and self._ends[at] >= end

    def joined(self, ranges: Iterable[Range]) -> Gaps:
        """The union with more ranges. The cost grows with all gaps above the first new one."""
        new = sorted(ranges)
        if not new:
            return self
        at = bisect_left(self._ends, new[0][0])
        rest = Gaps([*zip(self._firsts[at:], self._ends[at:], strict=True), *new])
        joined = Gaps()
        joined._firsts = self._firsts[:at] + rest._firsts
        joined._ends = self._ends[:at] + rest._ends
        return joined

    def from_offset(self, offset: int) -> Gaps:
        """The gaps, or parts of them, at or above a log start."""
        if not self._firsts or offset <= self._firsts[0]:
            return self
        left = Gaps()
        at = bisect_right(self._ends, offset)
        left._firsts, left._ends = self._firsts[at:], self._ends[at:]
        if left._firsts:
            left._firsts[0] = max(left._firsts[0], offset)
        return left

    def dump(self) -> bytes:
        """The whole value, for a checkpoint: all first offsets, then all ends, 8 bytes each,
        big-endian."""
        return _swapped(self._firsts).tobytes() + _swapped(self._ends).tobytes()

    @classmethod
    def load(cls, data: bytes) -> Gaps:
        """Load the result of `dump`.

        Raises:
            ValueError: the bytes are not gaps in order.
        """
        if not data:
            return NO_GAPS
        if len(data) % 16:
            raise ValueError(f"{len(data)} bytes are not gaps")
        loaded = cls()
        half = len(data) // 2
        loaded._firsts = _swapped(array("Q", data[:half]))
        loaded._ends = _swapped(array("Q", data[half:]))
        turns = chain.from_iterable(loaded)
        if any(a >= b for a, b in pairwise(turns)):
            raise ValueError("not gaps: they are not in order")
        return loaded


def _swapped(column: array[int]) -> array[int]:
    """A copy in the other byte order on little-endian machines."""
    copied = column[:]
    if sys.byteorder == "little":
        copied.byteswap()
    return copied


NO_GAPS = Gaps()
"""The gaps of most partitions, which have this very object."""
