"""A UDP socket in memory, with the methods that the mesh uses."""

from __future__ import annotations

import asyncio
import errno
import os
import socket
import struct
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from tests.support.virtual.network import Network

_UDP_SEGMENT, _UDP_GRO = 103, 104
_IP_MTU, _IPV6_MTU = 14, 24
_RECVERR = ((socket.IPPROTO_IP, 11), (socket.IPPROTO_IPV6, 25))
_EXTENDED_ERROR, _FROM_ICMP = struct.Struct("=IBxxxxxxxxxxx"), 2
MTU = 1500
_ROOM = 4 << 20
"""Bytes of datagrams that a socket keeps for its reader; more are lost."""
_MAPPED = "::ffff:"
_LOOPBACK_MTU = 65_536


class UdpSocket:
    """As a non-blocking `socket.socket` of datagrams."""

    type = socket.SOCK_DGRAM

    def __init__(self, net: Network, family: int) -> None:
        self.family = socket.AddressFamily(family)
        self._net = net
        self._node = net.hub.node
        self._fd = net.new_fd(self)
        self._host, self._port = "0.0.0.0" if family == socket.AF_INET else "::", 0
        self.peer: Any = None
        self._arrived: deque[tuple[bytes, Any]] = deque()
        self._size = 0
        self._error: OSError | None = None
        self._error_queue: deque[tuple[int, Any]] | None = None  # IP_RECVERR
        self._loop: asyncio.AbstractEventLoop | None = None
        self._reader: tuple[Callable[..., Any], tuple[Any, ...]] | None = None
        self._read_planned = False

    def __enter__(self) -> UdpSocket:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def fileno(self) -> int:
        return self._fd

    def setblocking(self, flag: bool) -> None:
        pass

    def settimeout(self, value: float | None) -> None:
        pass

    def setsockopt(self, level: int, option: int, value: Any) -> None:
        if (level, option) == (socket.SOL_UDP, _UDP_GRO):
            raise OSError(errno.ENOPROTOOPT, os.strerror(errno.ENOPROTOOPT))
        if (level, option) in _RECVERR:
            self._error_queue = deque()

    def getsockopt(self, level: int, option: int, *_: Any) -> int:
        if (level, option) in (
            (socket.IPPROTO_IP, _IP_MTU), (socket.IPPROTO_IPV6, _IPV6_MTU),
        ):  # fmt: skip
            near = self._net.node_at(self.peer[0], self._node) is self._node
            return _LOOPBACK_MTU if near else MTU
        return 2 * _ROOM

    def bind(self, address: Any) -> None:
        host = self._net.host(self._node)
        port = address[1] or host.free_port()
        if port in host.bound:
            raise OSError(errno.EADDRINUSE, os.strerror(errno.EADDRINUSE))
        self._host, self._port = address[0], port
        host.bound[port] = self

    def connect(self, address: Any) -> None:
        self._net.node_at(address[0], self._node)
        self.peer = address
        self._bind_if_needed()

    def getsockname(self) -> Any:
        return self._address(self._host)

    def close(self) -> None:
        if self._fd >= 0:
            host = self._net.host(self._node)
            if host.bound.get(self._port) is self:
                del host.bound[self._port]
            self._net.forget(self._fd)
            self._fd = -1
            self._arrived.clear()
            self._reader = None

    # --- sending ----------------------------------------------------------------------------

    def sendto(self, data: bytes, address: Any) -> int:
        self._raise_error()
        self._send(bytes(data), address)
        return len(data)

    def send(self, data: bytes) -> int:
        return self.sendto(data, self.peer)

    def sendmsg(
        self,
        buffers: Iterable[Any],
        ancillary: Sequence[tuple[int, int, Any]] = (),
        flags: int = 0,
        address: Any = None,
    ) -> int:
        self._raise_error()
        data = b"".join(buffers)
        segment = len(data)
        for level, kind, value in ancillary:
            if (level, kind) == (socket.SOL_UDP, _UDP_SEGMENT):
                segment = struct.unpack("=H", value)[0]
        for start in range(0, len(data), segment or 1):
            self._send(data[start : start + segment], address or self.peer)
        return len(data)

    def _bind_if_needed(self) -> None:
        if not self._port:
            node = self._node
            self.bind((node.address if node is not None else "127.0.0.1", 0))

    def _send(self, data: bytes, address: Any) -> None:
        net = self._net
        target = net.node_at(address[0], self._node)
        if target is not self._node and len(data) + 28 > MTU:
            raise OSError(errno.EMSGSIZE, os.strerror(errno.EMSGSIZE))
        self._bind_if_needed()
        if net.air.is_cut(self._node, target):
            return
        if self._host in ("0.0.0.0", "::"):
            near = address[0] if self._node is None or target is self._node else self._node.address
        else:
            near = self._host
        for seconds in net.air.datagram_seconds(self._node, target, len(data)):
            net.hub.call_later(seconds, self._arrive, data, address, self._address(near))

    def _arrive(self, data: bytes, address: Any, source: Any) -> None:
        target = self._net.node_at(address[0], self._node)
        host = self._net.host(target)
        found = host.bound.get(address[1])
        if found is not None and (found.peer is None or found.peer[:2] == source[:2]):
            found.receive(data, _as_seen_by(found.family, source))
        elif not (
            (target is not None and target.is_dead) or self._net.air.is_cut(target, self._node)
        ):
            self._refused(address)

    def _address(self, host: str) -> Any:
        return (host, self._port) if self.family == socket.AF_INET else (host, self._port, 0, 0)

    # --- receiving --------------------------------------------------------------------------

    def receive(self, data: bytes, source: Any) -> None:
        """A datagram has arrived."""
        if self._size + len(data) <= _ROOM:
            self._arrived.append((data, source))
            self._size += len(data)
            self._plan_read()

    def _refused(self, address: Any) -> None:
        """The host has answered that nobody receives there."""
        if self._fd < 0:
            return
        if self._error_queue is not None:
            self._error_queue.append((errno.ECONNREFUSED, address))
        elif self.peer is not None:
            self._error = ConnectionRefusedError(errno.ECONNREFUSED, "Connection refused")
        self._plan_read()

    def recvmsg(self, size: int, ancillary: int = 0, flags: int = 0) -> Any:
        if flags & socket.MSG_ERRQUEUE:
            if not self._error_queue:
                raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))
            code, address = self._error_queue.popleft()
            level, option = _RECVERR[self.family == socket.AF_INET6]
            return b"", [(level, option, _EXTENDED_ERROR.pack(code, _FROM_ICMP))], 0, address
        self._raise_error()
        if not self._arrived:
            raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))
        data, source = self._arrived.popleft()
        self._size -= len(data)
        return data[:size], [], 0, source

    def recvfrom(self, size: int) -> tuple[bytes, Any]:
        data, _, _, source = self.recvmsg(size)
        return data, source

    def recv(self, size: int) -> bytes:
        return self.recvfrom(size)[0]

    def _raise_error(self) -> None:
        if self._fd < 0:
            raise OSError(errno.EBADF, os.strerror(errno.EBADF))
        if self._error is not None:
            error, self._error = self._error, None
            raise error

    # --- VirtualSocket ----------------------------------------------------------------------

    def set_reader(
        self, loop: asyncio.AbstractEventLoop, callback: Callable[..., Any], args: tuple[Any, ...]
    ) -> None:
        self._loop = loop
        self._reader = (callback, args)
        self._plan_read()

    def remove_reader(self) -> bool:
        had, self._reader = self._reader is not None, None
        return had

    def set_writer(
        self, loop: asyncio.AbstractEventLoop, callback: Callable[..., Any], args: tuple[Any, ...]
    ) -> None:
        loop.call_soon(callback, *args)

    def remove_writer(self) -> bool:
        return False

    def _plan_read(self) -> None:
        if self._read_planned or self._reader is None or self._loop is None:
            return
        if self._arrived or self._error is not None or self._error_queue:
            self._read_planned = True
            self._loop.call_soon(self._read)
            cast("Any", self._loop).awake()

    def _read(self) -> None:
        self._read_planned = False
        if self._reader is not None:
            callback, args = self._reader
            callback(*args)
            self._plan_read()


def _as_seen_by(family: int, address: Any) -> Any:
    """An address as a socket of this family names it: IPv6 has IPv4's addresses, too."""
    host, port = address[0].removeprefix(_MAPPED), address[1]
    if family == socket.AF_INET:
        return (host, port)
    return (host if ":" in host else f"{_MAPPED}{host}", port, 0, 0)


class DatagramTransport(asyncio.DatagramTransport):
    """As asyncio's, on a virtual socket."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, sock: UdpSocket, protocol: asyncio.DatagramProtocol
    ) -> None:
        super().__init__({"sockname": sock.getsockname(), "socket": sock, "peername": sock.peer})
        self._loop = loop
        self._sock = sock
        self._protocol = protocol
        self._closing = False
        loop.call_soon(protocol.connection_made, self)
        loop.call_soon(sock.set_reader, loop, self._read, ())

    def sendto(self, data: Any, addr: Any = None) -> None:
        if not self._closing:
            try:
                self._sock.sendto(data, addr or self._sock.peer)
            except OSError as e:
                self._protocol.error_received(e)

    def is_closing(self) -> bool:
        return self._closing

    def close(self) -> None:
        if not self._closing:
            self._closing = True
            self._sock.close()
            self._loop.call_soon(self._protocol.connection_lost, None)

    def abort(self) -> None:
        self.close()

    def _read(self) -> None:
        try:
            data, source = self._sock.recvfrom(1 << 16)
        except OSError as e:
            self._protocol.error_received(e)
        else:
            self._protocol.datagram_received(data, source)
