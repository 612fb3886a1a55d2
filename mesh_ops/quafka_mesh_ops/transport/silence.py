"""Measures how long a peer has been silent, in a process that may stall itself. Pure.

A stalled process (a long turn of its loop, no CPU, SIGSTOP) receives nothing, and its peer may wait
for it. So an observation counts for the time since the previous one, but for two intervals at most:
a stall of any length is one observation, and a live peer has been heard before the next.
"""

from __future__ import annotations


class Silence:
    """Counts the seconds without a sign of life over regular observations.

    Attributes:
        counted: the seconds that the last observation counts for.
        seconds: the observed silence since the last sign of life; 0 if there was one since the
            previous observation.
    """

    __slots__ = ("_heard", "_interval", "_observed", "counted", "seconds")

    def __init__(self, interval: float, now: float) -> None:
        """`interval`: seconds between two observations without a stall."""
        self._interval = interval
        self._heard = self._observed = now
        self.counted = self.seconds = 0.0

    def observe(self, now: float, heard: float) -> float:
        """Observe once more. `heard`: the time of the last sign of life. Returns `seconds`."""
        self.counted = min(now - self._observed, 2 * self._interval)
        self._observed = now
        if heard > self._heard:
            self._heard = heard
            self.seconds = 0.0
        else:
            self.seconds += self.counted
        return self.seconds
