"""The lag of groups over the last hour, in memory: for charts. Pure."""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Iterable, Sequence
from typing import NamedTuple

_POINTS = 360
_MOST_GROUPS = 2_000
SeenGroup = tuple[Hashable, str]
"""Who sees a group, and its name."""


class LagPoint(NamedTuple):
    """A group's lag at a time, in seconds since 1970; None: unknown."""

    at: float
    records: int | None
    seconds: float | None


class LagHistory:
    """The last points of each group, at least `interval` seconds apart.

    Groups are kept by who sees them: two orgs may have groups of the same name. Bounded: the points
    of a group, and the number of groups; a new group replaces the one that was seen the longest
    time ago.
    """

    def __init__(self, interval: float = 10.0) -> None:
        self._interval = interval
        self._groups: dict[SeenGroup, deque[LagPoint]] = {}

    def add(self, at: float, lags: Iterable[tuple[SeenGroup, int | None, float | None]]) -> None:
        """Add points of groups: who sees it and its name, lag in records, lag in seconds."""
        for name, records, seconds in lags:
            points = self._groups.pop(name, None)
            if points is None:
                points = deque[LagPoint](maxlen=_POINTS)
                if len(self._groups) >= _MOST_GROUPS:
                    del self._groups[next(iter(self._groups))]
            self._groups[name] = points
            if not points or at - points[-1].at >= self._interval:
                points.append(LagPoint(at, records, seconds))

    def of(self, group: SeenGroup) -> Sequence[LagPoint]:
        """The points of a group, the oldest first."""
        return list(self._groups.get(group, ()))
