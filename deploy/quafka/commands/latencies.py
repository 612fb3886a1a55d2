"""Percentiles of any number of durations, in little memory."""

from __future__ import annotations

from collections import Counter
from math import ceil, floor, log10

_DIGITS = 3


class Latencies:
    """Counts durations, each rounded up to three significant digits: an error of at most 1 %."""

    def __init__(self) -> None:
        self._counts = Counter[int]()
        self._sum = 0.0
        self._most = 0.0

    def add(self, seconds: float) -> None:
        """Count one."""
        micros = max(1, ceil(seconds * 1e6))
        if micros >= 10**_DIGITS:
            unit = 10 ** (len(str(micros)) - _DIGITS)
            micros = -(-micros // unit) * unit
        self._counts[micros] += 1
        self._sum += seconds
        self._most = max(self._most, seconds)

    @property
    def count(self) -> int:
        """How many were counted."""
        return sum(self._counts.values())

    def at(self, share: float) -> float:
        """The seconds within which this share of them is, by nearest rank. One was counted."""
        left = ceil(share * self.count)
        for micros in sorted(self._counts):
            left -= self._counts[micros]
            if left <= 0:
                return min(micros / 1e6, self._most)
        return self._most

    def as_milliseconds(self) -> dict[str, float] | None:
        """Mean, percentiles and maximum, for people and programs; None: nothing was counted."""
        if not self._counts:
            return None
        found = {
            "mean": self._sum / self.count,
            "p50": self.at(0.5),
            "p95": self.at(0.95),
            "p99": self.at(0.99),
            "p99.9": self.at(0.999),
            "max": self._most,
        }
        return {name: round(seconds * 1e3, 3) for name, seconds in found.items()}


def three_digits(ms: float) -> str:
    """Milliseconds for people: three significant digits, and no part of a microsecond."""
    decimals = 2 - floor(log10(ms)) if ms > 0 else 0
    return f"{ms:.{min(3, max(0, decimals))}f}"
