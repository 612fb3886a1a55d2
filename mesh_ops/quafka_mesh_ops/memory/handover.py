"""The descriptor of a gateway's memory travels over a unix socket, once.

The broker listens at a random name in the abstract namespace, which ends at the host (or at the
container: there all ops travel in packets). Each end closes a connection whose other end is another
user's (SO_PEERCRED). The gateway sends one message with one descriptor, open for reading:

| bytes | |
| --- | --- |
| 5 | `QFKM` and the version, 1 |
| 32 | the token that OPEN_MEMORY has answered |

The broker answers one byte, 1, and closes the socket. All functions are non-blocking.
"""

from __future__ import annotations

import fcntl
import hmac
import secrets
import socket

from quafka_loop import sockets
from quafka_mesh_ops import descriptors
from quafka_mesh_ops.errors import ProtocolError

TOKEN_SIZE = 32
_MAGIC = b"QFKM\x01"
_TAKEN = b"\x01"
_NAME_BYTES = 16


def new_token() -> bytes:
    """A token for one connection."""
    return secrets.token_bytes(TOKEN_SIZE)


def listen() -> tuple[socket.socket, bytes]:
    """Listen at a new name; returns the socket and the name. Raises OSError."""
    name = b"\0quafka-" + secrets.token_hex(_NAME_BYTES).encode()
    listening = sockets.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    try:
        listening.setblocking(False)
        listening.bind(name)
        listening.listen(1)
    except OSError:
        listening.close()
        raise
    return listening, name


def connect(name: bytes) -> socket.socket | None:
    """Connect to a name; None: its owner is another user. Raises OSError."""
    if not name.startswith(b"\0quafka-"):
        raise OSError("not a name for memory")
    connection = sockets.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    try:
        connection.setblocking(False)
        connection.connect(name)
        same = descriptors.same_user(connection)
    except OSError:
        connection.close()
        raise
    if same:
        return connection
    connection.close()
    return None


def hand_over(connection: socket.socket, token: bytes, fd: int) -> None:
    """Send the gateway's message; the caller keeps its descriptor. Raises OSError."""
    descriptors.send(connection, _MAGIC + token, fd)


def receive(connection: socket.socket, token: bytes) -> int | None:
    """Receive a gateway's message; returns the descriptor, which the caller owns.

    None: nothing has arrived.

    Raises:
        ProtocolError: it is another message, or the descriptor is not of memory.
        OSError: the connection is lost.
    """
    received = descriptors.receive(connection)
    if received is None:
        return None
    data, fds = received
    try:
        return _memory_in(data, fds, token)
    except (ProtocolError, OSError):
        descriptors.close_all(fds)
        raise


def acknowledge(connection: socket.socket) -> None:
    """Confirm to the gateway that its memory is in use. Raises OSError."""
    descriptors.send(connection, _TAKEN)


def is_taken(connection: socket.socket) -> bool | None:
    """Whether the broker has taken the memory; None: it has not answered. Raises OSError."""
    received = descriptors.receive(connection)
    if received is None:
        return None
    data, fds = received
    descriptors.close_all(fds)
    return data == _TAKEN


def _memory_in(data: bytes, fds: list[int], token: bytes) -> int:
    if len(fds) != 1 or not hmac.compare_digest(data, _MAGIC + token):
        raise ProtocolError("not a message with the memory of a gateway")
    (fd,) = fds
    descriptors.check_readable_file(fd)
    try:  # only memory has seals, and reading another file may take long
        fcntl.fcntl(fd, fcntl.F_GET_SEALS)
    except OSError as e:
        raise ProtocolError("a descriptor that is not of memory") from e
    return fd
