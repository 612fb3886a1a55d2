"""The gateway's memory: large OP frames lie in it until the broker has read them."""

from __future__ import annotations

import mmap
import os
from collections import deque

from quafka_mesh_ops.frames import LANES, encode_placed
from quafka_mesh_ops.memory.areas import Areas
from quafka_mesh_ops.ops.base import Buffer

MEMORY_BYTES = 64 << 20
"""The size of the memory. Its pages are allocated when they are first written."""
LEAST_BYTES = 16 << 10
"""A shorter frame costs less in packets."""
MOST_BYTES = 2 << 20
"""A longer frame takes the event loop too long to copy in one call."""


class SharedMemory:
    """An anonymous file in memory, and the frames that lie in it.

    The broker reads the frames of a stream in their order, each when it arrives. An answer to an op
    therefore shows that all earlier frames of its stream have been read, including those of
    cancelled ops, which may never be answered. So does the PONG to a later PING.

    Attributes:
        placed: bytes of frames placed so far.
    """

    def __init__(self, size: int = MEMORY_BYTES) -> None:
        """Raises OSError: the system cannot create such a file."""
        self.placed = 0
        self._areas = Areas(size)
        self._streams: dict[int, int] = {}
        """The stream of each op whose frame may still be unread."""
        self._unread: list[deque[tuple[int, int]]] = [deque() for _ in range(1 + LANES)]
        """By stream: request id and area of these ops, in the order of their frames."""
        self._touched = False
        self._fd = os.memfd_create("quafka-ops", os.MFD_CLOEXEC)
        try:
            os.ftruncate(self._fd, size)
            self._map = mmap.mmap(self._fd, size)  # only this process changes the size
        except OSError:
            os.close(self._fd)
            raise

    def read_only(self) -> int:
        """Open the memory for reading. The caller closes the descriptor. Raises OSError."""
        return os.open(f"/proc/self/fd/{self._fd}", os.O_RDONLY | os.O_CLOEXEC)

    def place(
        self, stream: int, request_id: int, frame: list[Buffer], length: int
    ) -> list[Buffer] | None:
        """Write an OP frame of `length` bytes; return the PLACED frame that names it.

        None: there is no room, so the frame itself must be sent.
        """
        start = self._areas.take(length)
        if start is None:
            return None
        at = start
        for piece in frame:
            end = at + len(piece)
            self._map[at:end] = piece
            at = end
        self._touched = True
        self._streams[request_id] = stream
        self._unread[stream].append((request_id, start))
        self.placed += length
        return [encode_placed(start, length)]

    def answered(self, request_id: int) -> None:
        """The broker has answered an op: it has read its frame and those before it."""
        stream = self._streams.get(request_id)
        if stream is None:
            return
        unread = self._unread[stream]
        while True:
            read_id, start = unread.popleft()
            del self._streams[read_id]
            self._areas.give_back(start)
            if read_id == request_id:
                return

    def last_placed(self, stream: int) -> int | None:
        """The op whose frame is the last one of a stream that may be unread, by request id."""
        unread = self._unread[stream]
        return unread[-1][0] if unread else None

    def trim(self) -> None:
        """Return the memory to the system if nothing lies in it."""
        if self._touched and not self._areas.taken:
            self._touched = False
            self._map.madvise(mmap.MADV_REMOVE)

    def close(self) -> None:
        """Close the file. The broker has a descriptor of its own."""
        self._map.close()
        os.close(self._fd)
