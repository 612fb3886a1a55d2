"""An asyncio event loop on a hub's clock."""

from __future__ import annotations

import asyncio
import selectors
import socket
import ssl
from asyncio import sslproto
from collections.abc import Callable
from concurrent.futures import Executor
from typing import Any, cast

from tests.support.virtual import network, tcp, threads, udp
from tests.support.virtual.hub import Fiber, Hub, Node

_DEFAULT_WORKERS = 8


class RealResourceError(RuntimeError):
    """A simulation cannot hold it still: a file descriptor, a signal, a real thread."""


class _NoSelector(selectors.SelectSelector):
    """Stands where a loop expects its selector; nothing of the system can be waited for."""

    def register(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        raise RealResourceError(f"a simulated loop cannot wait for {fileobj!r}")


class VirtualLoop(asyncio.SelectorEventLoop):
    """asyncio's own loop: only its clock, its idling, its threads and its sockets are simulated.

    It refuses file descriptors of the system, signals and executors of real threads: when these are
    ready depends on the machine.
    """

    def __init__(self, hub: Hub, net: network.Network) -> None:
        self.hub = hub
        self.net = net
        self._fiber: Fiber | None = None
        self._is_idle = False  # in contrast to a callback that blocks
        self._pool: threads.ThreadPoolExecutor | None = None
        selector = _NoSelector()
        super().__init__(selector)
        selector.select = self._select  # type: ignore[method-assign]

    def _make_self_pipe(self) -> None:
        """The hub wakes the loop."""

    def _close_self_pipe(self) -> None:
        """See `_make_self_pipe`."""

    def _write_to_self(self) -> None:
        self.awake()

    @property
    def node(self) -> Node | None:
        """The node that the loop runs on."""
        return self._fiber.node if self._fiber is not None else self.hub.node

    def time(self) -> float:
        return self.hub.now

    def run_forever(self) -> None:
        self._fiber = self.hub.current
        super().run_forever()

    # --- idling -----------------------------------------------------------------------------

    def _select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is not None and timeout <= 0:
            self.hub.give_way()
        else:
            self._is_idle = True
            try:
                self.hub.block(None if timeout is None else self.hub.now + timeout)
            finally:
                self._is_idle = False
        return []

    def awake(self) -> None:
        """Have the loop run its callbacks: one was added from outside."""
        if self._is_idle and self._fiber is not None:
            self.hub.wake(self._fiber)

    # --- threads ----------------------------------------------------------------------------

    def run_in_executor(  # type: ignore[override]
        self, executor: Executor | None, func: Callable[..., Any], *args: Any
    ) -> asyncio.Future[Any]:
        if executor is None:
            if self._pool is None:
                self._pool = threads.ThreadPoolExecutor(_DEFAULT_WORKERS, "asyncio")
            executor = self._pool
        if not isinstance(executor, threads.ThreadPoolExecutor):
            raise RealResourceError(f"a simulated loop cannot wait for {executor!r}")
        future: asyncio.Future[Any] = super().run_in_executor(executor, func, *args)
        return future

    def add_signal_handler(self, sig: int, callback: Callable[..., Any], *args: Any) -> None:  # type: ignore[override]
        raise RealResourceError("a simulated loop gets no signals")

    async def shutdown_default_executor(self, timeout: float | None = None) -> None:
        if self._pool is not None:
            await super().run_in_executor(threads.ThreadPoolExecutor(1), self._pool.shutdown)

    # --- sockets ----------------------------------------------------------------------------

    async def getaddrinfo(
        self,
        host: Any,
        port: Any,
        *,
        family: int = 0,
        type: int = 0,  # noqa: A002 - asyncio's name
        proto: int = 0,
        flags: int = 0,
    ) -> Any:
        return self.net.getaddrinfo(host, port, family, type, proto, flags)

    def add_reader(  # type: ignore[override]
        self, fd: Any, callback: Callable[..., Any], *args: Any
    ) -> None:
        found = self.net.socket_of(fd)
        if found is None:
            super().add_reader(fd, callback, *args)
        else:
            found.set_reader(self, callback, args)

    def _add_reader(self, fd: Any, callback: Callable[..., Any], *args: Any) -> asyncio.Handle:
        """What `sock_recv` and the like call."""
        found = self.net.socket_of(fd)
        if found is None:
            raise RealResourceError(f"a simulated loop cannot wait for {fd!r}")
        found.set_reader(self, callback, args)
        return asyncio.Handle(callback, args, self)

    def remove_reader(self, fd: Any) -> bool:
        found = self.net.socket_of(fd)
        return bool(super().remove_reader(fd)) if found is None else found.remove_reader()

    def add_writer(  # type: ignore[override]
        self, fd: Any, callback: Callable[..., Any], *args: Any
    ) -> None:
        found = self.net.socket_of(fd)
        if found is None:
            super().add_writer(fd, callback, *args)
        else:
            found.set_writer(self, callback, args)

    def remove_writer(self, fd: Any) -> bool:
        found = self.net.socket_of(fd)
        return bool(super().remove_writer(fd)) if found is None else found.remove_writer()

    async def create_datagram_endpoint(  # type: ignore[override]
        self,
        protocol_factory: Callable[[], asyncio.DatagramProtocol],
        local_addr: tuple[str, int] | None = None,
        remote_addr: tuple[str, int] | None = None,
        *,
        sock: Any = None,
        **options: Any,
    ) -> tuple[asyncio.DatagramTransport, asyncio.DatagramProtocol]:
        """`sock` may be one of the system, as libraries make it: a virtual one takes its place."""
        if isinstance(sock, socket.socket):
            with sock:
                local_addr = sock.getsockname()[:2]
            sock = None
        if sock is None:
            is_ipv6 = ":" in (local_addr or remote_addr or ("", 0))[0]
            sock = udp.UdpSocket(self.net, socket.AF_INET6 if is_ipv6 else socket.AF_INET)
            if local_addr is not None:
                sock.bind((local_addr[0], 0 if local_addr[0] == "::" else local_addr[1]))
            if remote_addr is not None:
                sock.connect(remote_addr)
        protocol = protocol_factory()
        transport = udp.DatagramTransport(self, sock, protocol)
        await asyncio.sleep(0)  # until the protocol has its transport
        return transport, protocol

    async def create_server(  # type: ignore[override]
        self,
        protocol_factory: Callable[[], asyncio.BaseProtocol],
        host: Any = None,
        port: Any = None,
        *,
        sock: socket.socket | tcp.ListeningSocket | None = None,
        ssl: ssl.SSLContext | None = None,
        start_serving: bool = True,
        **options: Any,
    ) -> Any:
        if sock is not None:
            if not isinstance(sock, tcp.ListeningSocket):
                raise RealResourceError(f"a simulated loop cannot wait for {sock!r}")
            host, port = sock.address
        if ssl is not None:
            context, plain = ssl, protocol_factory

            def protocol_factory() -> asyncio.BaseProtocol:
                return sslproto.SSLProtocol(
                    self,
                    plain(),
                    context,
                    cast("Any", None),
                    server_side=True,
                )

        shares = sock is not None
        server = self.net.listen(self, protocol_factory, host, port or 0, shares=shares)
        if start_serving:
            await server.start_serving()
        return server

    async def create_unix_server(self, *_: Any, sock: Any = None, **__: Any) -> Any:
        """Make a server that gets no connection: nothing else runs on a simulated host."""
        if sock is not None:
            sock.close()
        return await self.create_server(asyncio.Protocol, "127.0.0.1", 0, start_serving=False)

    async def create_connection(
        self,
        protocol_factory: Callable[[], asyncio.BaseProtocol],
        host: Any = None,
        port: Any = None,
        *,
        sock: socket.socket | None = None,
        ssl: ssl.SSLContext | bool | None = None,
        server_hostname: str | None = None,
        local_addr: tuple[str, int] | None = None,
        **options: Any,
    ) -> Any:
        if sock is not None:
            raise RealResourceError(f"a simulated loop cannot wait for {sock!r}")
        protocol = protocol_factory()
        if not ssl:
            transport = await self.net.connect(self, lambda: protocol, host, port, local_addr)
            return transport, protocol
        secured: asyncio.Future[None] = self.create_future()
        context = ssl if ssl is not True else _default_context()
        shell = sslproto.SSLProtocol(
            self,
            protocol,
            context,
            secured,
            False,
            server_hostname or str(host),
        )
        transport = await self.net.connect(self, lambda: shell, host, port, local_addr)
        try:
            await secured
        except BaseException:
            transport.close()
            raise
        return shell._app_transport, protocol


def _default_context() -> ssl.SSLContext:
    return ssl.create_default_context()
