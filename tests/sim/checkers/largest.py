"""Running maxima."""

from __future__ import annotations

import math
from bisect import bisect_left


class Largest:
    """The largest of the numbers that were added with a smaller moment."""

    def __init__(self) -> None:
        """Begin without numbers."""
        self._moments: list[float] = []
        self._largest: list[float] = []

    def add(self, moment: float, number: float) -> None:
        """Add a number; moments never go back."""
        self._moments.append(moment)
        self._largest.append(max(number, self._largest[-1]) if self._largest else number)

    def before(self, moment: float) -> float:
        """The largest number; minus infinity if there is none."""
        index = bisect_left(self._moments, moment)
        return self._largest[index - 1] if index else -math.inf
