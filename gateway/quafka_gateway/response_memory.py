"""A bound on the response bytes that all connections of a gateway hold together. Pure.

No fetch waits for room: as it becomes scarce, answers become smaller, down to a floor that keeps
everybody served. A client that reads slowly holds one answer, and is not read from; above the
limit, clients that read nothing for some seconds lose their connections.
"""

from __future__ import annotations

from collections.abc import Callable

FLOOR = 64 << 10
"""Bytes that may always be asked for."""
_SHARE = 8


class ResponseMemory:
    """Counts the bytes of answers that are asked for or not yet sent."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self.held = 0
        """Bytes asked for and not yet here, or here and not yet handed to the system."""
        self._when_room: list[Callable[[], None]] = []

    @property
    def excess(self) -> int:
        """Bytes held above the limit; negative below it."""
        return self.held - self._limit

    def allowance(self, wanted: int) -> int:
        """How large an answer may be: a share of what is left, a power of two or `wanted`."""
        share = max(FLOOR, (self._limit - self.held) // _SHARE)
        return min(wanted, 1 << (share.bit_length() - 1))

    def when_room(self, call: Callable[[], None]) -> None:
        """Call this whenever bytes are given back and the limit is kept."""
        self._when_room.append(call)

    def take(self, size: int) -> None:
        """So much is held from now on."""
        self.held += size
        if size < 0 and self.held <= self._limit:
            for call in self._when_room:
                call()

    def give(self, size: int) -> None:
        """And no longer."""
        self.take(-size)
