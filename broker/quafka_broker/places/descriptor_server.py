"""Sends descriptors of segments to gateways on this host: the broker's end of the unix socket.

A node that is authenticated on the mesh gets a token by an op (OPEN_PLACES), and presents it on the
socket. A process without a token can only occupy one of a few pending connections for a few
seconds. The broker never waits for a gateway: one that does not read its messages loses the
connection, and gets its records by value.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import secrets
import socket
import stat
from collections import OrderedDict
from contextlib import suppress
from pathlib import Path

from quafka_broker.wal.disk import read_only_descriptor
from quafka_broker.wal.segment import Segment
from quafka_loop import sockets
from quafka_mesh_ops import descriptors
from quafka_mesh_ops.descriptors import (
    TOKEN_SIZE,
    DescriptorMessageKind,
    encode_message,
    socket_path,
)
from quafka_mesh_ops.errors import ProtocolError
from quafka_mesh_ops.node_ids import NodeId
from quafka_mesh_ops.ops.places import file_key
from quafka_mesh_ops.transport.log_limit import LimitedLog

logger = logging.getLogger("quafka.broker.places")

FOLDER = "places"
_TOKEN_SECONDS = 10.0
_TOKENS_PER_NODE = 64
_HELLO_SECONDS = 5.0
_PENDING = 32
_CONNECTIONS_PER_NODE = 64  # one for each process of a gateway


class DescriptorConnection:
    """One gateway process, and the segments whose descriptors it has."""

    def __init__(self, peer: NodeId, number: int, connection: socket.socket, most: int) -> None:
        self.peer = peer
        self.number = number
        self.handed: OrderedDict[str, Segment] = OrderedDict()  # least recently used first
        self._socket = connection
        self._most = most
        self._over = False

    @property
    def over(self) -> bool:
        """Whether the connection has ended."""
        return self._over

    def hand_over(self, segment: Segment) -> bool:
        """Ensure that the gateway has or will get a segment's descriptor, once.

        False: it cannot have it, and records are sent by value.
        """
        key = file_key(segment.number, segment.salt)
        if key in self.handed:
            self.handed.move_to_end(key)
            return True
        if self._over:
            return False
        try:
            fd = read_only_descriptor(segment.log)
        except OSError as e:
            logger.warning("segment %d cannot be handed over: %s", segment.number, e)
            return False
        if fd is None:
            return False
        try:
            if len(self.handed) >= self._most:
                self.withdraw(next(iter(self.handed)))
            sent = self._send(encode_message(DescriptorMessageKind.HANDED, key), fd)
        finally:
            os.close(fd)
        if sent:
            self.handed[key] = segment
        return sent

    def withdraw(self, key: str) -> None:
        """Make the gateway close a descriptor, if it has it."""
        if self.handed.pop(key, None) is not None:
            self._send(encode_message(DescriptorMessageKind.WITHDRAWN, key))

    def revoke(self) -> None:
        """Make the gateway close all descriptors at once, and end the connection."""
        with suppress(OSError):
            descriptors.send(self._socket, encode_message(DescriptorMessageKind.REVOKED))
        self.end()

    def end(self) -> None:
        """End the connection."""
        if not self._over:
            self._over = True
            self.handed.clear()
            asyncio.get_running_loop().remove_reader(self._socket)
            self._socket.close()

    def welcome(self) -> None:
        """Answer the hello."""
        self._send(encode_message(DescriptorMessageKind.WELCOME, number=self.number))

    def _send(self, message: bytes, fd: int = -1) -> bool:
        """Send a message; False if the connection has ended, perhaps because of this message."""
        if self._over:
            return False
        try:
            descriptors.send(self._socket, message, fd)
        except OSError as e:
            stuck = e.errno in (errno.EAGAIN, errno.ETOOMANYREFS)
            reason = "it does not read its messages" if stuck else e.strerror
            logger.warning("no more descriptors for node %s: %s", self.peer[:16], reason)
            self.end()
            return False
        return True


class DescriptorServer:
    """Listens in a private folder of the data folder."""

    def __init__(self, data: Path) -> None:
        self.folder = data.resolve() / FOLDER
        self.refused = 0
        """Connections closed before or at their hello."""
        self._tokens: dict[bytes, tuple[NodeId, float]] = {}
        self._pending: dict[socket.socket, asyncio.TimerHandle] = {}
        self._connections: dict[int, DescriptorConnection] = {}
        self._numbers = 0
        self._listening: socket.socket | None = None
        self._limited = LimitedLog(logger)

    def start(self) -> None:
        """Listen.

        Raises:
            OSError: the socket cannot be made, or its folder is not private.
        """
        self.folder.mkdir(mode=0o700, exist_ok=True)
        found = self.folder.lstat()
        if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid():
            raise OSError(errno.EPERM, "the folder does not belong to this user", str(self.folder))
        self.folder.chmod(0o700)
        with suppress(FileNotFoundError):
            (self.folder / descriptors.SOCKET).unlink()
        listening = sockets.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        listening.setblocking(False)
        with socket_path(self.folder) as path:
            listening.bind(path)
        listening.listen(_PENDING)
        self._listening = listening
        asyncio.get_running_loop().add_reader(listening, self._accept)

    def close(self) -> None:
        """Stop listening and end all connections."""
        if self._listening is not None:
            asyncio.get_running_loop().remove_reader(self._listening)
            self._listening.close()
            self._listening = None
            with suppress(FileNotFoundError):
                (self.folder / descriptors.SOCKET).unlink()
        for pending in list(self._pending):
            self._drop(pending)
        for connection in list(self._connections.values()):
            connection.end()
        self._connections.clear()

    def token(self, peer: NodeId) -> bytes:
        """Issue a token for one connection of an authenticated node within the next seconds."""
        now = asyncio.get_running_loop().time()
        mine = [old for old, (whose, until) in self._tokens.items() if whose == peer or until < now]
        for old in mine[: -_TOKENS_PER_NODE + 1]:
            del self._tokens[old]
        token = secrets.token_bytes(TOKEN_SIZE)
        self._tokens[token] = peer, now + _TOKEN_SECONDS
        return token

    def connection(self, peer: NodeId, number: int) -> DescriptorConnection | None:
        """The connection with this number, if it belongs to this node."""
        found = self._connections.get(number)
        return found if found is not None and found.peer == peer and not found.over else None

    def connections(self) -> list[DescriptorConnection]:
        """All open connections."""
        return [each for each in self._connections.values() if not each.over]

    def withdraw(self, segment: Segment) -> None:
        """Make all gateways close a segment's descriptor, since its file is freed or replaced."""
        key = file_key(segment.number, segment.salt)
        for connection in self.connections():
            connection.withdraw(key)

    # --- connections ------------------------------------------------------------------------

    def _accept(self) -> None:
        assert self._listening is not None, "it listens"
        try:
            connection, _ = self._listening.accept()
        except OSError as e:
            self._limited.warning("accept", "cannot accept a gateway: %s", e)
            return
        connection.setblocking(False)
        if not descriptors.same_user(connection):
            self._refuse(connection, "a process of another user")
            return
        if len(self._pending) >= _PENDING:
            self._refuse(next(iter(self._pending)), "too many connections without a hello")
        loop = asyncio.get_running_loop()
        self._pending[connection] = loop.call_later(
            _HELLO_SECONDS, self._refuse, connection, "no hello in time"
        )
        loop.add_reader(connection, self._greet, connection)

    def _greet(self, connection: socket.socket) -> None:
        try:
            hello = descriptors.receive_hello(connection)
        except (ProtocolError, OSError) as e:
            self._refuse(connection, str(e))
            return
        if hello is None:
            return
        token, most = hello
        peer, until = self._tokens.pop(token, ("", 0.0))
        if asyncio.get_running_loop().time() >= until:
            self._refuse(connection, "an unknown token")
            return
        self._forget_ended()
        if sum(each.peer == peer for each in self._connections.values()) >= _CONNECTIONS_PER_NODE:
            self._refuse(connection, "too many connections of one node")
            return
        self._unlist(connection)
        self._numbers += 1
        opened = DescriptorConnection(peer, self._numbers, connection, most)
        self._connections[opened.number] = opened
        asyncio.get_running_loop().add_reader(connection, self._gone, opened)
        opened.welcome()

    def _gone(self, connection: DescriptorConnection) -> None:
        """End a connection that the gateway has closed, or on which it sends forbidden messages."""
        connection.end()
        self._connections.pop(connection.number, None)

    def _forget_ended(self) -> None:
        for number in [n for n, each in self._connections.items() if each.over]:
            del self._connections[number]

    def _refuse(self, connection: socket.socket, reason: str) -> None:
        self.refused += 1
        self._limited.warning(reason, "closed a connection for descriptors: %s", reason)
        self._drop(connection)

    def _drop(self, connection: socket.socket) -> None:
        self._unlist(connection)
        connection.close()

    def _unlist(self, connection: socket.socket) -> None:
        timer = self._pending.pop(connection, None)
        if timer is not None:
            timer.cancel()
            asyncio.get_running_loop().remove_reader(connection)
