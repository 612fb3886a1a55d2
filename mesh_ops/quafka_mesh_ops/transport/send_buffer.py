"""The unsent and unacknowledged data of a stream, by reference. Pure.

It replaces the bytearray of aioquic's stream senders, which copies all data that is written. Record
batches are sent from the buffer that the log was read into, and are first copied when a packet is
assembled for encryption.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import Self


class SendBuffer:
    """The operations of a bytearray that a sender uses: append, slice, delete from the front.

    Positions count from the front. Appended data must not change until it is deleted.
    """

    __slots__ = ("_base", "_ends", "_pieces")

    def __init__(self) -> None:
        self._pieces: list[memoryview] = []
        self._ends: list[int] = []  # offsets in the stream
        self._base = 0  # bytes deleted so far

    def __len__(self) -> int:
        return self._ends[-1] - self._base if self._ends else 0

    def __iadd__(self, data: bytes | bytearray | memoryview) -> Self:
        if data:
            self._ends.append((self._ends[-1] if self._ends else self._base) + len(data))
            self._pieces.append(memoryview(data))
        return self

    def __getitem__(self, part: slice) -> bytes:
        start, stop, _ = part.indices(len(self))
        return b"".join(self.pieces(start, stop))

    def __delitem__(self, part: slice) -> None:
        start, stop, _ = part.indices(len(self))
        if start:
            raise ValueError("only the front can be deleted")
        self._base += stop
        gone = bisect_right(self._ends, self._base)
        del self._pieces[:gone], self._ends[:gone]

    def view(self, start: int, stop: int) -> memoryview:
        """Return the bytes from `start` to `stop`; copied if they were not appended together."""
        pieces = self.pieces(start, stop)
        return pieces[0] if len(pieces) == 1 else memoryview(b"".join(pieces))

    def pieces(self, start: int, stop: int) -> list[memoryview]:
        """Return views of the bytes from `start` to `stop`."""
        start, stop = start + self._base, stop + self._base
        found: list[memoryview] = []
        at = bisect_right(self._ends, start)
        while start < stop and at < len(self._ends):
            end, piece = self._ends[at], self._pieces[at]
            first = start - (end - len(piece))
            taken = min(stop, end) - start
            found.append(piece[first : first + taken])
            start += taken
            at += 1
        return found
