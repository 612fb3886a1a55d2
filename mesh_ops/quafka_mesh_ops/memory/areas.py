"""Areas of a fixed range of bytes: first fit. No I/O."""

from __future__ import annotations

from bisect import bisect_left


class Areas:
    """Hands out areas that do not overlap, the lowest that fits first.

    Low areas are used again and again, so the memory behind high ones is rarely touched.
    """

    __slots__ = ("_free", "_taken", "size")

    def __init__(self, size: int) -> None:
        self.size = size
        self._free = [(0, size)]
        """Start and length of each gap, in ascending order; no two gaps touch."""
        self._taken: dict[int, int] = {}

    @property
    def taken(self) -> int:
        """The number of areas that are in use."""
        return len(self._taken)

    def take(self, length: int) -> int | None:
        """Return the start of a new area of `length` bytes; None if no gap is large enough."""
        for at, (start, gap) in enumerate(self._free):
            if gap >= length:
                if gap == length:
                    del self._free[at]
                else:
                    self._free[at] = start + length, gap - length
                self._taken[start] = length
                return start
        return None

    def give_back(self, start: int) -> None:
        """Free the area that begins at `start`. Raises KeyError if there is none."""
        length = self._taken.pop(start)
        at = bisect_left(self._free, (start, 0))
        if at < len(self._free) and self._free[at][0] == start + length:
            length += self._free.pop(at)[1]
        if at and sum(self._free[at - 1]) == start:
            start, before = self._free.pop(at - 1)
            length += before
            at -= 1
        self._free.insert(at, (start, length))
