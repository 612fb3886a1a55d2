"""Detects a stalled or slow transfer: a deadline that each byte moves. Pure."""

from __future__ import annotations


class RequiredProgress:
    """Requires at least `rate` bytes a second, and no pause of more than `base` seconds.

    The slack begins at `base` seconds, shrinks as time passes, and grows by a second with each
    `rate` bytes, up to `base` again: a fast beginning does not allow a long pause.
    """

    __slots__ = ("_base", "_rate", "_until")

    def __init__(self, base: float, rate: int) -> None:
        self._base = base
        self._rate = rate
        self._until = 0.0

    def begin(self, now: float) -> None:
        """Expect bytes from now on."""
        self._until = now + self._base

    def add(self, size: int, now: float) -> None:
        """Count bytes that have moved."""
        self._until = min(now + self._base, self._until + size / self._rate)

    def is_late(self, now: float) -> bool:
        """Whether the bytes are too slow."""
        return now > self._until
