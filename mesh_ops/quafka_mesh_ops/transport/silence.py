"""How long a peer has been silent, by the looks of a process that may itself stand still. Pure.

While this process stands still (a long turn of its loop, no CPU, SIGSTOP) it hears nothing, and
its peer may wait for its words in vain. So a look counts for the time since the one before it,
but for no more than two intervals: a stall of any length is one look, and a peer that is alive
has been heard before the next.
"""

from __future__ import annotations


class Silence:
    """Counts the seconds without a sign of life between regular looks.

    Attributes:
        counted: seconds that the last look counts for.
        seconds: silence that was listened to since the last sign of life; 0 if there was one
            since the look before.
    """

    __slots__ = ("_heard", "_interval", "_looked", "counted", "seconds")

    def __init__(self, interval: float, now: float) -> None:
        """`interval`: seconds between two looks when nothing holds them up."""
        self._interval = interval
        self._heard = self._looked = now
        self.counted = self.seconds = 0.0

    def observe(self, now: float, heard: float) -> float:
        """Look once more. `heard`: when the last sign of life came. Returns `seconds`."""
        self.counted = min(now - self._looked, 2 * self._interval)
        self._looked = now
        if heard > self._heard:
            self._heard = heard
            self.seconds = 0.0
        else:
            self.seconds += self.counted
        return self.seconds
