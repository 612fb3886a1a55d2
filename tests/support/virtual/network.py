"""TCP and UDP in memory, between the nodes of a hub.

A node has an address of its own and a loopback; all code outside nodes shares one more host. `Air`
decides what happens to each packet.
"""

from __future__ import annotations

import asyncio
import errno
import itertools
import os
import socket
from collections.abc import Callable
from typing import Any, Protocol

from tests.support.virtual.hub import Hub, Node
from tests.support.virtual.tcp import Server, Transport
from tests.support.virtual.udp import UdpSocket

_FIRST_PORT, _LAST_PORT = 32_768, 60_999
FIRST_FD = 1 << 20
"""The numbers of virtual sockets are above all that the system gives."""
CONNECT_SECONDS = 20.0
"""When a connection attempt that nobody answers is given up."""


class Air:
    """What happens between two hosts. This one is perfect; a simulation overrides it."""

    def is_cut(self, source: Node | None, target: Node | None) -> bool:
        """Whether nothing gets from one host to the other now."""
        return False

    def stream_seconds(self, source: Node | None, target: Node | None, size: int) -> float:
        """How long a part of a TCP stream takes, with what is sent again."""
        return 0.0

    def datagram_seconds(self, source: Node | None, target: Node | None, size: int) -> list[float]:
        """How long each copy of a datagram takes; none: it is lost."""
        return [0.0]


class SlowAir(Air):
    """Everything takes as long to arrive."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds

    def stream_seconds(self, source: Node | None, target: Node | None, size: int) -> float:
        return self._seconds

    def datagram_seconds(self, source: Node | None, target: Node | None, size: int) -> list[float]:
        return [self._seconds]


class VirtualSocket(Protocol):
    """A socket that a loop can wait for."""

    def set_reader(
        self, loop: asyncio.AbstractEventLoop, callback: Callable[..., Any], args: tuple[Any, ...]
    ) -> None: ...

    def remove_reader(self) -> bool: ...

    def set_writer(
        self, loop: asyncio.AbstractEventLoop, callback: Callable[..., Any], args: tuple[Any, ...]
    ) -> None: ...

    def remove_writer(self) -> bool: ...


class Host:
    """One host's ports."""

    def __init__(self) -> None:
        self.listening: dict[int, Server] = {}
        self.bound: dict[int, UdpSocket] = {}
        self.transports: dict[Transport, None] = {}
        self._ports = itertools.cycle(range(_FIRST_PORT, _LAST_PORT))

    def free_port(self) -> int:
        return next(p for p in self._ports if p not in self.listening and p not in self.bound)


class Network:
    """All hosts of a hub."""

    def __init__(self, hub: Hub, air: Air | None = None) -> None:
        self.hub = hub
        self.air = air or Air()
        self.nodes: dict[str, Node] = {}
        """By address and by name."""
        self._hosts: dict[Node | None, Host] = {None: Host()}
        self._fds = itertools.count(FIRST_FD)
        self._sockets: dict[int, VirtualSocket] = {}

    def add(self, node: Node) -> None:
        """Let a node have its address. One with the same address, which has ended, is replaced."""
        self.nodes[node.address] = self.nodes[node.name] = node
        self._hosts[node] = Host()

    def host(self, node: Node | None) -> Host:
        """A node's host."""
        return self._hosts[node]

    def kill(self, node: Node, *, silently: bool = False) -> None:
        """Close a node's sockets, as its kernel does; silently: as a power cut does."""
        host = self._hosts[node]
        for transport in list(host.transports):
            transport.die(silently=silently)
        host.listening.clear()
        for each in list(host.bound.values()):
            each.close()

    # --- names and numbers ------------------------------------------------------------------

    def node_at(self, address: str, near: Node | None) -> Node | None:
        """The node at an address, as seen from another node.

        Raises:
            OSError: there is no such host.
        """
        address = address.removeprefix("::ffff:")  # an IPv4 address at an IPv6 socket
        if address in ("", "localhost", "0.0.0.0", "::", "::1") or address.startswith("127."):
            return near
        if address in self.nodes:
            return self.nodes[address]
        if near is None:
            return None
        raise OSError(errno.EHOSTUNREACH, os.strerror(errno.EHOSTUNREACH))

    def getaddrinfo(
        self,
        host: Any,
        port: Any,
        family: int = 0,
        type: int = 0,  # noqa: A002 - the name in `socket`
        proto: int = 0,
        flags: int = 0,
    ) -> list[Any]:
        """As `socket.getaddrinfo`: names of nodes and `localhost` are known, and all addresses."""
        name = host.decode() if isinstance(host, bytes) else host or ""
        if name == "localhost":
            name = "127.0.0.1"
        elif name in self.nodes:
            name = self.nodes[name].address
        elif not name:
            name = "0.0.0.0" if flags & socket.AI_PASSIVE else "127.0.0.1"
        elif not (name.replace(".", "").isdigit() or ":" in name):
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        number = int(port or 0)
        kind = type or socket.SOCK_STREAM
        if ":" in name:
            return [(socket.AF_INET6, kind, proto, "", (name, number, 0, 0))]
        return [(socket.AF_INET, kind, proto, "", (name, number))]

    def new_fd(self, owner: VirtualSocket | None = None) -> int:
        """A number for a virtual socket."""
        fd = next(self._fds)
        if owner is not None:
            self._sockets[fd] = owner
        return fd

    def forget(self, fd: int) -> None:
        """A virtual socket is closed."""
        self._sockets.pop(fd, None)

    def socket_of(self, fd: Any) -> VirtualSocket | None:
        """The virtual socket with this number, or that this object is."""
        if isinstance(fd, int):
            return self._sockets.get(fd) if fd >= FIRST_FD else None
        return self._sockets.get(fd.fileno()) if isinstance(fd, UdpSocket) else None

    # --- sockets ----------------------------------------------------------------------------

    def socket(
        self, family: int = socket.AF_INET, kind: int = socket.SOCK_STREAM, *args: Any, **kw: Any
    ) -> Any:
        """As `socket.socket`: datagrams are virtual, the others are the system's."""
        if kind == socket.SOCK_DGRAM and family in (socket.AF_INET, socket.AF_INET6):
            return UdpSocket(self, family)
        return socket.socket(family, kind, *args, **kw)

    def listen(
        self,
        loop: asyncio.AbstractEventLoop,
        factory: Callable[[], asyncio.BaseProtocol],
        host: Any,
        port: int,
        *,
        shares: bool = False,
    ) -> Server:
        """Make a server on the node that runs now; `shares`: it may take over an address in use.

        Raises:
            OSError: the address is in use, or there is no such host.
        """
        here = self._hosts[self.hub.node]
        name = (host if isinstance(host, str) else (host or [""])[0]) or "0.0.0.0"
        self.getaddrinfo(name, port)
        port = port or here.free_port()
        if port in here.listening and not shares:
            raise OSError(errno.EADDRINUSE, os.strerror(errno.EADDRINUSE))
        name = "127.0.0.1" if name == "localhost" else name
        server = Server(self, loop, factory, (name, port), self.hub.node)
        here.listening[port] = server
        return server

    async def connect(
        self,
        loop: asyncio.AbstractEventLoop,
        factory: Callable[[], asyncio.BaseProtocol],
        host: Any,
        port: Any,
        local: tuple[str, int] | None,
    ) -> Transport:
        """Connect from the node that runs now.

        Raises:
            OSError: nobody listens there, or the host does not answer.
        """
        near = self.hub.node
        address = self.getaddrinfo(host, port)[0][4][0]
        target = self.node_at(address, near)
        began = self.hub.now
        await asyncio.sleep(self.air.stream_seconds(near, target, 0))
        while self.air.is_cut(near, target) or self.air.is_cut(target, near):
            if self.hub.now - began > CONNECT_SECONDS:
                raise TimeoutError(errno.ETIMEDOUT, os.strerror(errno.ETIMEDOUT))
            await asyncio.sleep(1.0)
        target = self.node_at(address, near)  # it may have been restarted
        server = self._hosts[target].listening.get(int(port))
        if (target is not None and target.is_dead) or server is None or not server.is_serving():
            await asyncio.sleep(self.air.stream_seconds(target, near, 0))
            reason = os.strerror(errno.ECONNREFUSED)
            raise ConnectionRefusedError(errno.ECONNREFUSED, f"{reason}: {address}:{port}")
        mine = local[0] if local else near.address if near is not None else address
        source = (mine, self._hosts[near].free_port())
        transport = Transport(self, loop, near, source, (address, int(port)))
        accepted = Transport(self, server.loop, target, (address, int(port)), source)
        transport.join(accepted)
        self.hub.call_later(self.air.stream_seconds(near, target, 0), server.accept, accepted)
        await transport.begin(factory())
        return transport
