"""Whether bytes keep moving: a deadline that each byte puts off. Pure."""

from __future__ import annotations


class Progress:
    """At least `rate` bytes a second, and never more than `base` seconds without.

    Slack begins at `base` seconds, shrinks as time passes, and grows by a second with each `rate`
    bytes, up to `base` again: what came early buys no long silence.
    """

    __slots__ = ("_base", "_rate", "_until")

    def __init__(self, base: float, rate: int) -> None:
        self._base = base
        self._rate = rate
        self._until = 0.0

    def begin(self, now: float) -> None:
        """Bytes are awaited from now on."""
        self._until = now + self._base

    def made(self, size: int, now: float) -> None:
        """So many bytes have moved."""
        self._until = min(now + self._base, self._until + size / self._rate)

    def late(self, now: float) -> bool:
        """Whether they are too slow."""
        return now > self._until
