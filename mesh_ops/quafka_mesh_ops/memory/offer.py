"""The broker's end of shared memory: the memory of one connection's peer, and how it arrives."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from contextlib import suppress

from quafka_mesh_ops import descriptors
from quafka_mesh_ops.errors import OpFailedError, ProtocolError
from quafka_mesh_ops.frames import Frame, FrameReader, Tag, decode_placed
from quafka_mesh_ops.handlers import OpContext
from quafka_mesh_ops.memory import handover
from quafka_mesh_ops.memory.shared import MEMORY_BYTES, MOST_BYTES
from quafka_mesh_ops.ops.base import Buffer
from quafka_mesh_ops.ops.memory import OpenMemory, OpenMemoryResp
from quafka_proto.errors import ErrorCode

logger = logging.getLogger("quafka.mesh.server")

OFFER_SECONDS = 5.0
"""How long a gateway has to connect and to send its descriptor."""


class MemoryOffer:
    """Takes the memory of one peer, at most once, and reads frames from it.

    A process that connects without the token ends the offer, not the connection: all ops of the
    peer then travel in packets.
    """

    def __init__(self, enabled: bool) -> None:
        self.read_bytes = 0
        self._enabled = enabled
        self._fd = -1
        self._sockets: list[socket.socket] = []
        """The listening socket, and the connection that it has accepted."""
        self._timer: asyncio.TimerHandle | None = None

    @property
    def taken(self) -> bool:
        """Whether the peer's ops may lie in its memory."""
        return self._fd >= 0

    async def open(self, _context: OpContext, _op: OpenMemory) -> OpenMemoryResp:
        """The handler of the op.

        Raises:
            OpFailedError: there is an offer, or its memory is in use.
        """
        if not self._enabled:
            return OpenMemoryResp(b"")
        if self.taken or self._sockets:
            raise OpFailedError(ErrorCode.INVALID_REQUEST)
        try:
            listening, name = handover.listen()
        except OSError as e:
            logger.warning("no memory of a gateway can be taken: %s", e)
            return OpenMemoryResp(b"")
        loop = asyncio.get_running_loop()
        token = handover.new_token()
        self._sockets.append(listening)
        self._timer = loop.call_later(OFFER_SECONDS, self._withdraw)
        loop.add_reader(listening, self._accept, listening, token)
        return OpenMemoryResp(name, token)

    def read(self, payload: Buffer) -> Frame:
        """Read the OP frame that a PLACED frame names.

        Raises:
            ProtocolError: there is no memory, or no such frame in it.
        """
        start, length = decode_placed(payload)
        if not self.taken or not 0 < length <= MOST_BYTES or not 0 <= start <= MEMORY_BYTES:
            raise ProtocolError("a frame in no memory")
        try:
            data = os.pread(self._fd, length, start)
        except OSError as e:
            raise ProtocolError(f"unreadable memory: {e.strerror}") from e
        self.read_bytes += length
        frames = FrameReader().feed(data) if len(data) == length else []
        if len(frames) != 1 or frames[0][0] is not Tag.OP:
            raise ProtocolError("memory that does not hold an op")
        return frames[0]

    def close(self) -> None:
        """The QUIC connection is over."""
        self._enabled = False
        self._withdraw()
        if self.taken:
            os.close(self._fd)
            self._fd = -1

    # --- the socket -------------------------------------------------------------------------

    def _accept(self, listening: socket.socket, token: bytes) -> None:
        try:
            connection, _ = listening.accept()
        except OSError:  # it has gone again
            return
        connection.setblocking(False)
        if not descriptors.same_user(connection):
            connection.close()
            return
        loop = asyncio.get_running_loop()
        loop.remove_reader(listening)
        self._sockets.append(connection)
        loop.add_reader(connection, self._receive, connection, token)

    def _receive(self, connection: socket.socket, token: bytes) -> None:
        try:
            fd = handover.receive(connection, token)
            if fd is None:
                return
            self._fd = fd
            handover.acknowledge(connection)
        except (ProtocolError, OSError) as e:
            logger.warning("closed a connection for memory: %s", e)
        self._withdraw()

    def _withdraw(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        with suppress(RuntimeError):  # the loop has ended
            loop = asyncio.get_running_loop()
            for each in self._sockets:
                loop.remove_reader(each)
        for each in self._sockets:
            each.close()
        self._sockets.clear()
