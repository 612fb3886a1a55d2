"""A TCP connection in memory: two asyncio transports."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import socket
from collections import deque
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, cast

from tests.support.virtual.hub import Node, Timer

if TYPE_CHECKING:
    from tests.support.virtual.network import Network

WINDOW = 256 << 10
"""Bytes under way and unread at the receiver before a sender must wait."""
_READ = 256 << 10
_HIGH_WATER = 64 << 10
_RETRY_SECONDS = 0.4
"""How often a segment is sent again while the network is cut."""
_GIVE_UP_SECONDS = 120.0
"""After that, the sender's kernel ends the connection (ETIMEDOUT)."""


class _Socket:
    """What `get_extra_info("socket")` returns: facts only."""

    type = socket.SOCK_STREAM
    proto = socket.IPPROTO_TCP

    def __init__(self, fd: int, mine: tuple[str, int], peer: tuple[str, int] | None) -> None:
        self._fd = fd
        self._mine = mine
        self._peer = peer
        self.family = socket.AF_INET6 if ":" in mine[0] else socket.AF_INET

    def fileno(self) -> int:
        return self._fd

    def getsockname(self) -> Any:
        return self._mine if self.family == socket.AF_INET else (*self._mine, 0, 0)

    def getpeername(self) -> Any:
        return self._peer

    def setsockopt(self, *_: Any) -> None:
        pass

    def getsockopt(self, *_: Any) -> int:
        return 0


class ListeningSocket(_Socket):
    """A server's socket. The server of the last copy accepts the connections."""

    def __init__(self, net: Network, address: tuple[str, int]) -> None:
        super().__init__(net.new_fd(), address, None)
        self._net = net
        self.address = address

    def dup(self) -> ListeningSocket:
        return ListeningSocket(self._net, self.address)

    def close(self) -> None:
        pass


class Server:
    """As `asyncio.Server`."""

    def __init__(
        self,
        net: Network,
        loop: asyncio.AbstractEventLoop,
        factory: Callable[[], asyncio.BaseProtocol],
        address: tuple[str, int],
        node: Node | None,
    ) -> None:
        self.loop = loop
        self._net = net
        self._factory = factory
        self._node = node
        self._address = address
        self._serves = False
        self._transports: dict[Transport, None] = {}
        self._closed = loop.create_future()
        self.sockets: tuple[ListeningSocket, ...] = (ListeningSocket(net, address),)

    def get_loop(self) -> asyncio.AbstractEventLoop:
        return self.loop

    def is_serving(self) -> bool:
        return self._serves

    async def start_serving(self) -> None:
        self._serves = True

    async def serve_forever(self) -> None:
        self._serves = True
        try:
            await asyncio.shield(self._closed)
        finally:
            self.close()

    def close(self) -> None:
        self._serves = False
        listening = self._net.host(self._node).listening
        if listening.get(self._address[1]) is self:
            del listening[self._address[1]]
        self.sockets = ()
        if not self._closed.done():
            self._closed.set_result(None)

    def close_clients(self) -> None:
        for transport in list(self._transports):
            transport.close()

    def abort_clients(self) -> None:
        for transport in list(self._transports):
            transport.abort()

    async def wait_closed(self) -> None:
        await asyncio.shield(self._closed)

    async def __aenter__(self) -> Server:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.close()
        await self.wait_closed()

    def accept(self, transport: Transport) -> None:
        """A client has connected."""
        if not self._serves:
            transport.abort()
            return
        self._transports[transport] = None
        transport.add_on_lost(lambda: self._transports.pop(transport, None))
        self.loop.call_soon(lambda: transport.start(self._factory()))
        cast("Any", self.loop).awake()


class Transport(asyncio.Transport):
    """One end of a connection."""

    _start_tls_compatible = True

    def __init__(
        self,
        net: Network,
        loop: asyncio.AbstractEventLoop,
        node: Node | None,
        mine: tuple[str, int],
        peer: tuple[str, int],
    ) -> None:
        self.node = node
        self._net = net
        self._hub = net.hub
        self._loop = loop
        self._socket = _Socket(net.new_fd(), mine, peer)
        super().__init__({"peername": peer, "sockname": mine, "socket": self._socket})
        self._peer: Transport = self
        self._protocol: asyncio.BaseProtocol | None = None
        # the sender's side
        self._buffer: deque[bytes] = deque()
        self._buffered = 0
        self._unread = 0  # bytes under way or unread at the peer
        self._sent: deque[tuple[float, float, list[bytes]]] = deque()  # when sent, when due, what
        self._delivery: Timer | None = None
        self._stuck_since: float | None = None
        self._high, self._low = _HIGH_WATER, _HIGH_WATER // 4
        self._writing_paused = False
        self._eof_wanted = self._eof_sent = False
        # the receiver's side
        self._incoming: deque[bytes] = deque()
        self._eof_arrived = False
        self._error: OSError | None = None
        self._read_planned = False
        self._reading = True
        self._closing = self._lost = self._dead = False
        self._on_lost: list[Callable[[], object]] = []
        net.host(node).transports[self] = None

    # --- making -----------------------------------------------------------------------------

    def join(self, peer: Transport) -> None:
        """Make two transports the ends of one connection."""
        self._peer, peer._peer = peer, self

    def add_on_lost(self, callback: Callable[[], object]) -> None:
        """Call this when the connection is over here."""
        self._on_lost.append(callback)

    async def begin(self, protocol: asyncio.BaseProtocol) -> None:
        """Begin at the client's end."""
        begun = self._loop.create_future()

        def start() -> None:
            self.start(protocol)
            if not begun.done():
                begun.set_result(None)

        self._loop.call_soon(start)
        await begun

    def start(self, protocol: asyncio.BaseProtocol) -> None:
        """Tell the protocol, in the loop."""
        if self._dead or self._lost:
            return
        self._protocol = protocol
        protocol.connection_made(self)
        self._plan_read()

    # --- asyncio.Transport ------------------------------------------------------------------

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self._protocol = protocol

    def get_protocol(self) -> asyncio.BaseProtocol:
        assert self._protocol is not None
        return self._protocol

    def is_closing(self) -> bool:
        return self._closing

    def is_reading(self) -> bool:
        return self._reading and not self._closing

    def pause_reading(self) -> None:
        self._reading = False

    def resume_reading(self) -> None:
        if not self._reading:
            self._reading = True
            self._plan_read()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        if high is None:
            high = _HIGH_WATER if low is None else 4 * low
        self._high, self._low = high, high // 4 if low is None else low
        self._maybe_pause()

    def get_write_buffer_limits(self) -> tuple[int, int]:
        return self._low, self._high

    def get_write_buffer_size(self) -> int:
        return self._buffered

    def can_write_eof(self) -> bool:
        return True

    def write(self, data: bytes | bytearray | memoryview[Any]) -> None:
        assert not self._eof_wanted, "write after EOF"
        if self._lost or self._closing or not data:
            return
        self._buffer.append(bytes(data))
        self._buffered += len(self._buffer[-1])
        self._send()
        self._maybe_pause()

    def writelines(self, list_of_data: Iterable[Any]) -> None:
        self.write(b"".join(list_of_data))

    def write_eof(self) -> None:
        self._eof_wanted = True
        self._send()

    def close(self) -> None:
        if self._closing:
            return
        self._closing = True
        self._eof_wanted = True
        self._send()
        if not self._buffer:
            self._loop.call_soon(self._end, None)

    def abort(self) -> None:
        self._force_close(None)

    def _force_close(self, error: OSError | None) -> None:
        """As asyncio's transports: what was sent still arrives, what is buffered does not."""
        if not self._lost:
            self._closing = True
            self._buffer.clear()
            self._buffered = 0
            if self._incoming:
                self._reset_peer()
            elif not self._eof_sent:
                self._eof_sent = True
                self._queue(b"")
            self._loop.call_soon(self._end, error)

    # --- sending ----------------------------------------------------------------------------

    def _send(self) -> None:
        """Send what the window allows."""
        while self._buffer and self._unread < WINDOW:
            data = self._buffer.popleft()
            room = WINDOW - self._unread
            if len(data) > room:
                self._buffer.appendleft(data[room:])
                data = data[:room]
            self._buffered -= len(data)
            self._unread += len(data)
            self._queue(data)
        if self._eof_wanted and not self._buffer and not self._eof_sent:
            self._eof_sent = True
            self._queue(b"")

    def _queue(self, data: bytes) -> None:
        now, sent = self._hub.now, self._sent
        if sent and sent[-1][0] == now and data:
            sent[-1][2].append(data)
            return
        due = now + self._net.air.stream_seconds(self.node, self._peer.node, len(data))
        if sent:
            due = max(due, sent[-1][1])
        sent.append((now, due, [data]))
        if self._delivery is None:
            self._delivery = self._hub.call_at(due, self._deliver)

    def _deliver(self) -> None:
        """The first segment arrives, if the network lets it."""
        self._delivery = None
        if self._dead and self._net.air.is_cut(self.node, self._peer.node):
            return
        now = self._hub.now
        if self._net.air.is_cut(self.node, self._peer.node):
            self._stuck_since = self._stuck_since or now
            if now - self._stuck_since > _GIVE_UP_SECONDS:
                self._break(OSError(errno.ETIMEDOUT, os.strerror(errno.ETIMEDOUT)))
            else:
                self._delivery = self._hub.call_at(now + _RETRY_SECONDS, self._deliver)
            return
        self._stuck_since = None
        peer = self._peer
        while self._sent and self._sent[0][1] <= now:
            for data in self._sent.popleft()[2]:
                peer.arrived(data)
        if self._sent:
            self._delivery = self._hub.call_at(self._sent[0][1], self._deliver)

    def _window_opens(self, size: int) -> None:
        self._unread -= size
        if self._buffer and not self._dead:
            self._send()
            if self._closing and not self._buffer:
                self._loop.call_soon(self._end, None)
            self._maybe_resume()
            cast("Any", self._loop).awake()

    def _maybe_pause(self) -> None:
        if self._buffered > self._high and not self._writing_paused:
            self._writing_paused = True
            self.get_protocol().pause_writing()

    def _maybe_resume(self) -> None:
        if self._writing_paused and self._buffered <= self._low and not self._lost:
            self._writing_paused = False
            self._loop.call_soon(self.get_protocol().resume_writing)

    # --- receiving --------------------------------------------------------------------------

    def arrived(self, data: bytes) -> None:
        """A segment, or the end of the stream."""
        if self._lost or self._dead:
            if data and not self._net.air.is_cut(self.node, self._peer.node):
                self._reset_peer()  # there is no such connection here any more
            return
        if data:
            self._incoming.append(data)
        else:
            self._eof_arrived = True
        self._plan_read()

    def _plan_read(self) -> None:
        if self._read_planned or self._protocol is None or self._lost or self._dead:
            return
        if self._error is None and not (self._reading and (self._incoming or self._eof_arrived)):
            return
        self._read_planned = True
        self._loop.call_soon(self._read)
        cast("Any", self._loop).awake()

    def _read(self) -> None:
        self._read_planned = False
        if self._lost:
            return
        can_read = self._reading and not self._closing
        if self._error is not None and not (self._incoming and can_read):
            self._end(self._error)
            return
        if not can_read:
            return
        if self._incoming:
            size = self._feed()
            self._hub.call_later(
                self._net.air.stream_seconds(self.node, self._peer.node, 0),
                self._peer._window_opens, size,
            )  # fmt: skip
            self._plan_read()
        elif self._eof_arrived:
            self._eof_arrived = False
            keep = cast("asyncio.Protocol", self.get_protocol()).eof_received()
            if not keep:
                self.close()

    def _feed(self) -> int:
        data = self._incoming.popleft()
        if self._incoming and len(data) < _READ:
            parts, size = [data], len(data)
            while self._incoming and size < _READ:
                parts.append(self._incoming.popleft())
                size += len(parts[-1])
            data = b"".join(parts)
        protocol = self.get_protocol()
        if isinstance(protocol, asyncio.BufferedProtocol):
            rest = memoryview(data)
            while rest and not self._lost and not self._closing:
                protocol = self.get_protocol()
                if not isinstance(protocol, asyncio.BufferedProtocol):
                    cast("asyncio.Protocol", protocol).data_received(bytes(rest))
                    break
                buffer = memoryview(cast("Any", protocol.get_buffer(-1)))
                size = min(len(buffer), len(rest))
                buffer[:size] = rest[:size]
                protocol.buffer_updated(size)
                rest = rest[size:]
                if rest and not self._reading:
                    self._incoming.appendleft(bytes(rest))
                    return len(data) - len(rest)
        else:
            cast("asyncio.Protocol", protocol).data_received(data)
        return len(data)

    # --- the end ----------------------------------------------------------------------------

    def die(self, *, silently: bool) -> None:
        """The process, or with it the host, is gone."""
        if not self._lost and not self._dead:
            if not silently:
                if self._incoming or self._buffer:
                    self._reset_peer()
                elif not self._eof_sent:
                    self._eof_sent = True
                    self._queue(b"")
            elif self._delivery is not None:
                self._delivery.cancel()
            self._dead = True
            self._net.host(self.node).transports.pop(self, None)

    def _reset_peer(self) -> None:
        error = ConnectionResetError(errno.ECONNRESET, os.strerror(errno.ECONNRESET))
        seconds = self._net.air.stream_seconds(self.node, self._peer.node, 0)
        self._hub.call_later(seconds, self._peer._break, error)

    def _break(self, error: OSError) -> None:
        if not self._lost and not self._dead:
            self._error = error
            self._plan_read()

    def _end(self, error: OSError | None) -> None:
        if self._lost:
            return
        self._lost = self._closing = True
        self._incoming.clear()
        self._net.host(self.node).transports.pop(self, None)
        if self._protocol is not None:
            protocol, self._protocol = self._protocol, _NOTHING
            protocol.connection_lost(error)
        for callback in self._on_lost:
            with contextlib.suppress(Exception):
                callback()


class _Nothing(asyncio.Protocol):
    pass


_NOTHING = _Nothing()
