"""How fast counts grow, from readings of the last minute. Pure."""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable

_SECONDS = 60.0
_POINTS = 16
_LEAST_SECONDS = 4.0
_MOST_KEYS = 5_000


class Growth:
    """Readings by key. Bounded: a new key replaces the one that was read the longest time ago."""

    def __init__(self) -> None:
        self._readings: dict[Hashable, deque[tuple[float, int]]] = {}

    def per_second(self, key: Hashable, at: float, count: int) -> float | None:
        """Add a reading, and return the growth per second since the oldest one in a minute.

        None: there is no earlier one. A count that has become less begins anew.
        """
        readings = self._readings.pop(key, None)
        if readings is None or readings[-1][1] > count or at - readings[-1][0] > _SECONDS:
            readings = deque[tuple[float, int]](maxlen=_POINTS)
            if len(self._readings) >= _MOST_KEYS:
                del self._readings[next(iter(self._readings))]
        self._readings[key] = readings
        while readings and at - readings[0][0] > _SECONDS:
            readings.popleft()
        if not readings or at - readings[-1][0] >= _LEAST_SECONDS:
            readings.append((at, count))
        began, before = readings[0]
        return (count - before) / (at - began) if at > began else None
