"""Writes responses to one client's socket; bytes that it does not take yet are kept by reference.

A transport copies the bytes that it buffers, so it receives little more than the socket takes. The
record batches of a large response stay where they are: in the cache, or in what the mesh received.
"""

from __future__ import annotations

import asyncio
import math
from collections import deque

from quafka_gateway.edge.progress import Progress
from quafka_gateway.memory import ResponseMemory
from quafka_gateway.stats import GatewayStats
from quafka_proto.message import Buffer

_GROUP = 256 << 10


class ResponseWriter:
    """Writes responses in their order; counts the bytes that are not written yet."""

    def __init__(
        self,
        transport: asyncio.Transport,
        memory: ResponseMemory,
        stats: GatewayStats,
        progress: Progress,
    ) -> None:
        transport.set_write_buffer_limits(high=0)  # calls pause_writing at the first byte buffered
        self._transport = transport
        self._memory = memory
        self._stats = stats
        self._unsent: deque[Buffer] = deque()
        self._size = 0
        self._counted = 0
        self._shared = 0
        self._writable = True
        self._progress = progress
        self._total = 0  # bytes of all responses
        self._taken = 0  # of these, bytes that the system has taken
        self._taken_at = 0.0
        self._is_new = True  # the unread bytes were written since the last call of `seconds_stuck`

    @property
    def unread(self) -> int:
        """Bytes that the system has not taken yet."""
        return self._size + self._transport.get_write_buffer_size()

    def seconds_stuck(self, now: float) -> float:
        """Return for how many seconds the client has read nothing; infinite if it is too slow.

        Call it every few seconds: it compares with the last call.
        """
        unread = self.unread
        taken = self._total - unread
        if not unread or self._is_new:
            self._progress.begin(now)
            self._taken_at = now
            self._is_new = False
        elif taken > self._taken:
            self._progress.add(taken - self._taken, now)
            self._taken_at = now
        self._taken = taken
        return math.inf if self._progress.is_late(now) else now - self._taken_at

    @property
    def ready(self) -> bool:
        """Whether the system has taken every byte written."""
        return self._writable and not self._unsent

    @property
    def empty(self) -> bool:
        """Whether the transport has received every byte written."""
        return not self._unsent

    def write(self, response: list[Buffer], shared: int = 0) -> None:
        """Send a response, now or as the client reads.

        Another owner has counted `shared` bytes of it.
        """
        if not self.unread:
            self._is_new = True
        self._shared += shared
        self._unsent.extend(response)
        size = sum(map(len, response))
        self._size += size
        self._total += size
        self._stats.sent += size
        self._push()

    def pause(self) -> None:
        """Write no more until `resume`: the client does not read."""
        self._writable = False

    def resume(self) -> None:
        """Go on writing: the client reads again."""
        self._writable = True
        self._push()

    def close(self) -> None:
        """Drop what is not written: the client is gone."""
        self._unsent.clear()
        self._count(0)

    def _push(self) -> None:
        # A transport whose client has gone calls connection_lost only in the loop's next turn.
        while self._unsent and self._writable and not self._transport.is_closing():
            group, size = self._next_group()
            self._size -= size
            if len(group) == 1:
                self._transport.write(group[0])
            else:
                self._transport.writelines(group)
        if not self._size:
            self._shared = 0
        held = max(0, self._size - self._shared)
        self._count(held + self._transport.get_write_buffer_size())

    def _count(self, held: int) -> None:
        self._memory.hold(held - self._counted)
        self._counted = held

    def _next_group(self) -> tuple[list[Buffer], int]:
        """Return pieces for one system call: a part of a large piece, or several small pieces."""
        group: list[Buffer] = []
        size = 0
        while self._unsent and size < _GROUP:
            piece = self._unsent.popleft()
            room = _GROUP - size
            if len(piece) > room:
                if group:
                    self._unsent.appendleft(piece)
                    break
                view = memoryview(piece)
                self._unsent.appendleft(view[room:])
                piece = view[:room]
            group.append(piece)
            size += len(piece)
        return group, size
