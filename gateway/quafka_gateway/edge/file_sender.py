"""Sends bytes of files to a client's socket by sendfile(2), bypassing the socket's transport.

With TLS the bytes are read and encrypted instead (`EncryptedFileSender`).

The transport and the sender alternate: the sender writes only while the transport has nothing
buffered, and the transport gets nothing while a file is being sent. When the socket is full, the
sender waits on a duplicate of its descriptor, because the event loop has the first one registered
for the transport.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Callable
from typing import Protocol, cast

from quafka_gateway.fetch.file_slice import FileSlice, ShortFileError

_CALL_BYTES = 1 << 20
"""Bytes of one system call, which holds up the event loop: most batches take one."""
_TURN_BYTES = 2 << 20
"""Bytes in one turn of the event loop; then other clients have theirs."""
TURN_BYTES = 512 << 10
"""As above while several orgs share the loop: a part of an org's time in a turn."""
_ENCRYPTED_BYTES = 256 << 10
"""Bytes that are encrypted by one call: about as long as a system call for `_CALL_BYTES`."""
_ENCRYPTED_TURNS = 4
"""Such calls in one turn."""
_WARM_BYTES = 4 << 20
"""Bytes that a thread reads into the page cache at a time."""
_WARM_SECONDS = 1.0
"""How long a slice seen in the page cache is assumed to stay there, so that successive consumers of
the same data check only once."""


class Turn(Protocol):
    """When an org may use the event loop."""

    @property
    def shared(self) -> bool:
        """Whether there are other orgs."""
        ...

    def run(self, work: Callable[[], None], /) -> None:
        """Run work now, or in a turn of the org."""
        ...

    def defer(self, work: Callable[[], None], /) -> None:
        """Run work in a later turn of the org."""
        ...


class FileSender:
    """Sends one slice after the other; the owner calls again when this calls `ready`."""

    def __init__(self, transport: asyncio.Transport, ready: Callable[[], None], turn: Turn) -> None:
        """`ready` is called in a turn when `send` can go on, never from within `send`."""
        self._loop = asyncio.get_running_loop()
        self._socket = cast("socket.socket", transport.get_extra_info("socket"))
        self._ready = ready
        self._org_turn = turn
        self._waits_on = -1  # a duplicate of the socket's descriptor
        self._warming: asyncio.Future[None] | None = None
        self._turn: asyncio.Handle | None = None
        self._deferred = False  # waits for a turn of the org
        self._left = self._turn_bytes
        self._warm: tuple[int, int] = (0, 0)  # of the current slice: known to be in memory
        self._corked = False

    @property
    def _turn_bytes(self) -> int:
        return TURN_BYTES if self._org_turn.shared else _TURN_BYTES

    @property
    def _call_bytes(self) -> int:
        return TURN_BYTES if self._org_turn.shared else _CALL_BYTES

    @property
    def waiting(self) -> bool:
        """Whether `ready` will be called."""
        return (
            self._waits_on >= 0
            or self._warming is not None
            or self._turn is not None
            or self._deferred
        )

    def send(self, part: FileSlice, sent: int) -> int:
        """Send bytes of a slice after the first `sent`; returns how many, 0 once it must wait.

        Raises:
            ShortFileError: the file is not as long as the broker said, or was revoked.
            OSError: the client is gone, or the file cannot be read.
        """
        if self.waiting:
            return 0
        if self._left <= 0:
            self._wait_for_turn()
            return 0
        position, size = part.position + sent, min(part.size - sent, self._call_bytes)
        if not self._is_warm(part, position, size):
            return 0
        fd = part.file.acquire()
        try:
            count = self._transfer(fd, position, size)
        except BlockingIOError:
            self._wait()
            return 0
        finally:
            part.file.release()
        if not count:
            raise ShortFileError(f"{part.file.key} ends before position {position + size}")
        self._left -= count
        return count

    def _transfer(self, fd: int, position: int, size: int) -> int:
        """Send bytes of a file; return how many. Raises OSError."""
        return os.sendfile(self._socket.fileno(), fd, position, size)

    def begin(self) -> None:
        """A response with slices follows: its pieces leave in full packets."""
        if not self._corked:
            self._corked = True
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_CORK, 1)

    def finish(self) -> None:
        """No slice follows for now: let the last bytes leave."""
        self._warm = 0, 0
        self._left = self._turn_bytes
        if self._corked:
            self._corked = False
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_CORK, 0)

    def close(self) -> None:
        """Stop waiting. The transport closes the socket."""
        self._stop_waiting()
        if self._turn is not None:
            self._turn.cancel()
            self._turn = None
        self._warming = None

    # --- waiting ----------------------------------------------------------------------------

    def _wait_for_turn(self) -> None:
        if self._org_turn.shared:
            self._deferred = True
            self._org_turn.defer(self._next)
        else:
            self._turn = self._loop.call_soon(self._next)

    def _wait(self) -> None:
        self._waits_on = os.dup(self._socket.fileno())
        self._loop.add_writer(self._waits_on, self._writable)

    def _writable(self) -> None:
        self._stop_waiting()
        self._next_turn()

    def _stop_waiting(self) -> None:
        if self._waits_on >= 0:
            self._loop.remove_writer(self._waits_on)
            os.close(self._waits_on)
            self._waits_on = -1

    def _next_turn(self) -> None:
        self._deferred = True
        self._org_turn.run(self._next)

    def _next(self) -> None:
        self._turn = None
        self._deferred = False
        self._left = self._turn_bytes
        self._ready()

    # --- cold files -------------------------------------------------------------------------

    def _is_warm(self, part: FileSlice, position: int, size: int) -> bool:
        """Whether sending will not wait for the disk; otherwise a thread reads first."""
        first, end = self._warm
        if first <= position and position + size <= end:
            return True
        now = self._loop.time()
        if now < part.warm_until:
            return True
        if part.file.is_cached(position, size):
            if size == part.size:
                part.warm_until = now + _WARM_SECONDS
            return True
        size = min(part.position + part.size - position, _WARM_BYTES)
        self._warm = position, position + size
        reading = self._loop.run_in_executor(None, _read_through, part, position, size)
        self._warming = reading
        reading.add_done_callback(self._warmed)
        return False

    def _warmed(self, reading: asyncio.Future[None]) -> None:
        if reading.cancelled() or self._warming is not reading:
            return
        self._warming = None
        reading.exception()  # sending meets the same error
        self._next_turn()


class EncryptedFileSender(FileSender):
    """Sends slices through a transport that encrypts: their bytes pass through this process."""

    def __init__(self, transport: asyncio.Transport, ready: Callable[[], None], turn: Turn) -> None:
        super().__init__(transport, ready, turn)
        self._transport = transport

    def _transfer(self, fd: int, position: int, size: int) -> int:
        data = os.pread(fd, min(size, _ENCRYPTED_BYTES), position)
        self._left -= _TURN_BYTES // _ENCRYPTED_TURNS
        self._transport.write(data)
        return len(data)


def file_sender(transport: asyncio.Transport, ready: Callable[[], None], turn: Turn) -> FileSender:
    """Make the sender for a transport, encrypted or not."""
    encrypted = transport.get_extra_info("ssl_object") is not None
    return (EncryptedFileSender if encrypted else FileSender)(transport, ready, turn)


def _read_through(part: FileSlice, position: int, size: int) -> None:
    """Read bytes into the page cache. Blocks. Raises OSError."""
    with part.file.used() as fd:
        os.posix_fadvise(fd, position, size, os.POSIX_FADV_WILLNEED)
        buffer = bytearray(min(size, _CALL_BYTES))
        end = position + size
        while position < end:
            count = os.preadv(fd, [memoryview(buffer)[: end - position]], position)
            if not count:
                break
            position += count
