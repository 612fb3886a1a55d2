"""Descriptors over a unix socket: the messages between a broker and a gateway on its host.

The socket is of type SOCK_SEQPACKET, so that a message arrives whole, with its descriptor. Its
folder has mode 0700, and each end closes a connection whose other end is another user's
(SO_PEERCRED). The gateway sends one message, the hello:

| bytes | |
| --- | --- |
| 5 | `QFKD` and the version, 1 |
| 32 | the token that OPEN_PLACES has answered; it is good for one connection |
| 4 | the most descriptors that the gateway holds |

The broker sends messages of one type byte and a body:

| type | body | meaning |
| --- | --- | --- |
| 1 welcome | 8 bytes | the connection's number, for fetch ops |
| 2 handed | key | with one descriptor, read only, of the object with this key |
| 3 withdrawn | key | the object is freed, or others are used more: close its descriptor |
| 4 revoked | | close all descriptors at once |

No other message follows in either direction. All functions are non-blocking.
"""

from __future__ import annotations

import array
import fcntl
import os
import socket
import stat
import struct
from collections.abc import Generator
from contextlib import contextmanager
from enum import IntEnum
from pathlib import Path
from typing import NamedTuple

from quafka_mesh_ops.errors import ProtocolError

SOCKET = "descriptors.sock"
TOKEN_SIZE = 32
MOST_DESCRIPTORS = 4_096
_HELLO = struct.Struct(f">5s{TOKEN_SIZE}sI")
_MAGIC = b"QFKD\x01"
_NUMBER = struct.Struct(">Q")
_LONGEST = 512  # a key is a few dozen bytes
_FDS = 4  # room for more than the one that a message may have, so that none is lost unseen
_CREDENTIALS = struct.Struct("3i")  # struct ucred: pid, uid, gid


class DescriptorMessageKind(IntEnum):
    """The type of a message from the broker."""

    WELCOME = 1
    HANDED = 2
    WITHDRAWN = 3
    REVOKED = 4


class DescriptorMessage(NamedTuple):
    """A message from the broker. `fd`: the descriptor of HANDED, which the receiver owns; -1."""

    kind: DescriptorMessageKind
    number: int = 0
    key: str = ""
    fd: int = -1


def encode_hello(token: bytes, most: int) -> bytes:
    """The gateway's message."""
    return _HELLO.pack(_MAGIC, token, most)


def decode_hello(data: bytes) -> tuple[bytes, int]:
    """The token and the most descriptors of a hello.

    Raises:
        ProtocolError: it is no hello of this version.
    """
    if len(data) != _HELLO.size or not data.startswith(_MAGIC):
        raise ProtocolError("not a hello")
    _, token, most = _HELLO.unpack(data)
    if not 1 <= most <= MOST_DESCRIPTORS:
        raise ProtocolError(f"a gateway for {most} descriptors")
    return token, most


def encode_message(kind: DescriptorMessageKind, key: str = "", number: int = 0) -> bytes:
    """A message of the broker."""
    body = _NUMBER.pack(number) if kind is DescriptorMessageKind.WELCOME else key.encode()
    return bytes((kind,)) + body


def receive_hello(connection: socket.socket) -> tuple[bytes, int] | None:
    """Receive the gateway's message; None if it has not arrived.

    Raises:
        ProtocolError: it is not a hello, or the other end has gone.
        OSError: the connection is lost.
    """
    received = receive(connection)
    if received is None:
        return None
    data, fds = received
    close_all(fds)
    if fds:
        raise ProtocolError("a hello with a descriptor")
    return decode_hello(data)


def receive_message(connection: socket.socket) -> DescriptorMessage | None:
    """Receive a message of the broker; None if none has arrived.

    Raises:
        ProtocolError: it is not one, or its descriptor is not a file that is open for reading.
        EOFError: the broker has closed the connection.
        OSError: the connection is lost.
    """
    received = receive(connection)
    if received is None:
        return None
    data, fds = received
    if not data:
        close_all(fds)
        raise EOFError
    try:
        return _message(data, fds)
    except (ProtocolError, OSError):
        close_all(fds)
        raise


def send(connection: socket.socket, data: bytes, fd: int = -1) -> None:
    """Send a message, with a descriptor if `fd` is one; the caller keeps its own.

    Raises:
        OSError: the connection is lost, or the other end does not read (BlockingIOError).
    """
    rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [fd]))] if fd >= 0 else []
    connection.sendmsg([data], rights, socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL)


def same_user(connection: socket.socket) -> bool:
    """Whether the other end of a unix socket is a process of this process's user."""
    size = _CREDENTIALS.size
    found = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, size)
    _, uid, _ = _CREDENTIALS.unpack(found)
    return bool(uid == os.geteuid())


@contextmanager
def socket_path(folder: Path) -> Generator[str]:
    """A path of the socket in a folder that is shorter than the system's limit of 108 bytes.

    Raises:
        OSError: the folder does not exist, or is not readable.
    """
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{fd}/{SOCKET}"
    finally:
        os.close(fd)


def receive(connection: socket.socket) -> tuple[bytes, list[int]] | None:
    """Receive any message, with its descriptors, which the caller owns; None if none has arrived.

    Raises:
        ProtocolError: it is too long.
        OSError: the connection is lost.
    """
    fds = array.array("i")
    try:
        data, ancillary, flags, _ = connection.recvmsg(
            _LONGEST,
            socket.CMSG_LEN(_FDS * fds.itemsize),
            socket.MSG_DONTWAIT | socket.MSG_CMSG_CLOEXEC,
        )
    except BlockingIOError:
        return None
    for level, kind, content in ancillary:
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            fds.frombytes(content[: len(content) - len(content) % fds.itemsize])
    if flags & (socket.MSG_TRUNC | socket.MSG_CTRUNC):
        close_all(fds.tolist())
        raise ProtocolError("a message that is too long")
    return data, fds.tolist()


def _message(data: bytes, fds: list[int]) -> DescriptorMessage:
    kind, body = data[0], data[1:]
    if len(fds) != (kind == DescriptorMessageKind.HANDED):
        raise ProtocolError("a message with another number of descriptors than its type has")
    if kind == DescriptorMessageKind.WELCOME and len(body) == _NUMBER.size:
        return DescriptorMessage(DescriptorMessageKind.WELCOME, number=_NUMBER.unpack(body)[0])
    if kind == DescriptorMessageKind.REVOKED and not body:
        return DescriptorMessage(DescriptorMessageKind.REVOKED)
    if (
        kind not in (DescriptorMessageKind.HANDED, DescriptorMessageKind.WITHDRAWN)
        or not body.isascii()
        or not body
    ):
        raise ProtocolError(f"a message of type {kind}")
    if not fds:
        return DescriptorMessage(DescriptorMessageKind.WITHDRAWN, key=body.decode())
    (fd,) = fds
    check_readable_file(fd)
    return DescriptorMessage(DescriptorMessageKind.HANDED, key=body.decode(), fd=fd)


def check_readable_file(fd: int) -> None:
    """Raise ProtocolError unless a descriptor is of a file that is open for reading only."""
    mode = fcntl.fcntl(fd, fcntl.F_GETFL) & os.O_ACCMODE
    if mode != os.O_RDONLY or not stat.S_ISREG(os.fstat(fd).st_mode):
        raise ProtocolError("a descriptor that is not a file open for reading")


def close_all(fds: list[int]) -> None:
    """Close descriptors that nobody uses."""
    for fd in fds:
        os.close(fd)
