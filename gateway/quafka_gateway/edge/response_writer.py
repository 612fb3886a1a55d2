"""Writes responses to one client's socket; bytes that it does not take yet are kept by reference.

A transport copies the bytes that it buffers, so it receives little more than the socket takes. The
record batches of a large response stay where they are: in the cache, in what the mesh received, or
in files (`file_sender`). A response whose file has become shorter cannot be completed: its
connection is closed.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections import deque
from collections.abc import Callable

from quafka_gateway.edge.file_sender import TURN_BYTES, FileSender, Turn, file_sender
from quafka_gateway.edge.progress import RequiredProgress
from quafka_gateway.fetch.file_slice import FileSlice, file_bytes, is_in_file
from quafka_gateway.memory import OrgResponses
from quafka_gateway.stats import GatewayStats
from quafka_loop.garbage import ignore
from quafka_proto.message import Buffer

log = logging.getLogger("quafka.gateway.connection")

_GROUP = 256 << 10


class ResponseWriter:
    """Writes responses in their order; counts the bytes that are not written yet.

    Attributes:
        memory: where it counts them: its org's.
    """

    def __init__(
        self,
        transport: asyncio.Transport,
        memory: OrgResponses,
        stats: GatewayStats,
        progress: RequiredProgress,
        went_on: Callable[[], None],
        turn: Turn,
    ) -> None:
        """`went_on` is called after bytes were sent other than by `write`. `turn`: when much may
        be sent."""
        transport.set_write_buffer_limits(high=0)  # calls pause_writing at the first byte buffered
        self._transport = transport
        self.memory = memory
        self._stats = stats
        self._unsent: deque[Buffer] = deque()
        self._size = 0
        self._in_files = 0  # of the size, bytes that are not in memory
        self._counted = 0
        self._shared = 0
        self._writable = True
        self._files: FileSender | None = None
        self._sent = 0  # bytes of the first unsent piece, if that is in a file
        self._went_on = went_on
        self._turn = turn
        self._deferred = False  # `_go_on` waits for a turn
        self._progress = progress
        self._total = 0  # bytes of all responses
        self._taken = 0  # of these, bytes that the system has taken
        self._taken_at = 0.0
        self._is_new = True  # the unread bytes were written since the last call of `seconds_stuck`

    def enter(self, memory: OrgResponses) -> None:
        """Count what is not written, and will not be, for an org."""
        counted = self._counted
        self._count(0)
        self.memory = memory
        self._count(counted)

    @property
    def unread(self) -> int:
        """Bytes that the system has not taken yet."""
        return self._size + self._transport.get_write_buffer_size()

    @property
    def unread_in_memory(self) -> int:
        """Of the unread bytes, those that take memory."""
        return self.unread - self._in_files

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

    def write(self, response: list[Buffer], shared: int = 0) -> int:
        """Send a response, now or as the client reads. Return its size.

        Another owner has counted `shared` bytes of it.
        """
        if len(response) == 1 and not shared and self._may_write(response[0]):
            self._write_at_once(response[0])
            return len(response[0])
        if not self._size and not self._transport.get_write_buffer_size():
            self._is_new = True
        self._shared += shared
        self._unsent.extend(response)
        size = sum(map(len, response))
        in_files = file_bytes(response)
        if in_files and not self._transport.is_closing():
            self._in_files += in_files
            self._files = self._files or file_sender(self._transport, self._go_on, self._turn)
            self._files.begin()
        self._size += size
        self._total += size
        self._stats.sent += size
        self._push()
        return size

    def pause(self) -> None:
        """Write no more until `resume`: the client does not read."""
        self._writable = False

    def resume(self) -> None:
        """Continue writing: the client reads again."""
        self._writable = True
        self._push()

    def close(self) -> None:
        """Drop what is not written: the client is gone."""
        self._unsent.clear()
        self._count(0)
        if self._files is not None:
            self._files.close()
            self._files = None
        self._went_on = ignore

    def _may_write(self, piece: Buffer) -> bool:
        """Whether a piece may be given to the transport at once and whole."""
        return self.ready and len(piece) <= _GROUP and not self._transport.is_closing()

    def _write_at_once(self, piece: Buffer) -> None:
        """Write a short response while the system has taken all earlier ones."""
        size = len(piece)
        self._is_new = True
        self._total += size
        self._stats.sent += size
        self._transport.write(piece)
        if not self._writable:  # the system has not taken all of it
            self._count(self._transport.get_write_buffer_size())

    def _push(self) -> None:
        # A transport whose client has gone calls connection_lost only in the loop's next turn.
        room = TURN_BYTES
        while self._unsent and self._writable and not self._transport.is_closing():
            first = self._unsent[0]
            if is_in_file(first):
                if not self._send_from_file(first):
                    break
                continue
            if room <= 0 and self._turn.shared:
                self._go_on_later()
                break
            group, size = self._next_group()
            room -= size
            self._size -= size
            if len(group) == 1:
                self._transport.write(group[0])
            else:
                self._transport.writelines(group)
        if not self._unsent and self._files is not None and not self._transport.is_closing():
            self._files.finish()
        if not self._size:
            self._shared = 0
        held = max(0, self._size - self._in_files - self._shared)
        self._count(held + self._transport.get_write_buffer_size())

    def _send_from_file(self, part: FileSlice) -> bool:
        """Send what the socket takes of the first piece; False if the rest must wait."""
        assert self._files is not None, "`write` made it"
        try:
            count = self._files.send(part, self._sent)
        except ConnectionError:
            self._transport.abort()
            return False
        except OSError as e:
            log.warning("closing a connection in the middle of a response: %s", e)
            self._transport.abort()
            return False
        self._sent += count
        self._size -= count
        self._in_files -= count
        if self._sent == part.size:
            self._unsent.popleft()
            self._sent = 0
        return count > 0

    def _go_on_later(self) -> None:
        if not self._deferred:
            self._deferred = True
            self._turn.defer(self._go_on)

    def _go_on(self) -> None:
        self._deferred = False
        if self._transport.is_closing():
            return  # the client disconnected while its org waited for its turn
        self._push()
        self._went_on()

    def _count(self, held: int) -> None:
        self.memory.hold(held - self._counted)
        self._counted = held

    def _next_group(self) -> tuple[list[Buffer], int]:
        """Return pieces for one system call: a part of a large piece, or several small pieces."""
        group: list[Buffer] = []
        size = 0
        while self._unsent and size < _GROUP:
            if is_in_file(self._unsent[0]):
                break
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
