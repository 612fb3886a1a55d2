"""A bound on the request bytes that all connections of a gateway hold together. Pure.

Whole requests are answered sooner or later, whatever their clients do: while there are too many,
nobody is read from. Parts of requests may never become whole: the connection whose bytes go over
the bound is to be closed.
"""

from __future__ import annotations

from collections.abc import Callable


class RequestMemory:
    """Counts bytes; tells paused connections when there is room again."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._whole = 0
        self._partial = 0
        self._paused: dict[object, Callable[[], None]] = {}

    @property
    def held(self) -> int:
        """Bytes held of whole and unfinished requests."""
        return self._whole + self._partial

    @property
    def full(self) -> bool:
        """Whether nobody may be read from."""
        return self._whole > self._limit

    def take(self, size: int) -> None:
        """A whole request is held."""
        self._whole += size

    def give(self, size: int) -> None:
        """It is answered. Resumes everybody who was paused, once there is room."""
        self._whole -= size
        if self._paused and not self.full:
            paused, self._paused = self._paused, {}
            for resume in paused.values():
                resume()

    def part(self, change: int) -> bool:
        """More bytes, or fewer, are held of unfinished requests; False: they are too many."""
        self._partial += change
        return change <= 0 or self._partial <= self._limit

    def pause(self, who: object, resume: Callable[[], None]) -> None:
        """Call `resume` once there is room."""
        self._paused[who] = resume

    def forget(self, who: object) -> None:
        """It is gone: do not call it."""
        self._paused.pop(who, None)
