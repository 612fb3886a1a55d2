"""An asyncio event loop on a hub's clock."""

from __future__ import annotations

import asyncio
import selectors
import socket
import ssl
from asyncio import sslproto
from collections.abc import Callable
from concurrent.futures import Executor
from contextvars import Context
from typing import Any, cast

from tests.support.virtual import network, threads
from tests.support.virtual.hub import Fiber, Hub, Node

_DEFAULT_WORKERS = 8


class VirtualLoop(asyncio.SelectorEventLoop):
    """asyncio's own loop: only its clock, its idling, its threads and its sockets are simulated.

    Real file descriptors work, too; before the clock moves, all of them are polled.
    """

    def __init__(self, hub: Hub, net: network.Network) -> None:
        self.hub = hub
        self.net = net
        self._fiber: Fiber | None = None
        self._real_jobs = 0
        self._pool: threads.ThreadPoolExecutor | None = None
        super().__init__(selectors.DefaultSelector())
        selector: Any = self._selector  # type: ignore[attr-defined]
        self._own_fds = len(selector.get_map())
        self._real_select = selector.select
        self._map = selector.get_map()
        selector.select = self._select

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
        hub = self.hub
        if timeout is not None and timeout <= 0:
            hub.give_way()
            return self._real_select(0) if self._has_real_work() else []
        if not self._has_real_work():
            hub.block(None if timeout is None else hub.now + timeout)
            return []
        ready: list[tuple[selectors.SelectorKey, int]] = self._real_select(0)
        if not ready:
            hub.real[self] = None
            hub.block(None if timeout is None else hub.now + timeout)
            hub.real.pop(self, None)
            ready = self._real_select(0)
        return ready

    def _has_real_work(self) -> bool:
        return len(self._map) > self._own_fds or self._real_jobs > 0

    def poll(self, seconds: float) -> bool:
        """Look for real sockets that are ready, and wait a little for real threads."""
        if not self._real_select(max(seconds, 0.001)):
            return self._real_jobs > 0
        assert self._fiber is not None
        self.hub.wake(self._fiber)
        return True

    def awake(self) -> None:
        """Have the loop run its callbacks: one was added from outside."""
        if self._fiber is not None:
            self.hub.wake(self._fiber)

    def call_soon_threadsafe(
        self, callback: Callable[..., Any], *args: Any, context: Context | None = None
    ) -> asyncio.Handle:
        if self._real_jobs:  # the caller may be a real thread
            return super().call_soon_threadsafe(callback, *args, context=context)
        handle = self.call_soon(callback, *args, context=context)
        self.awake()
        return handle

    # --- threads ----------------------------------------------------------------------------

    def run_in_executor(  # type: ignore[override]
        self, executor: Executor | None, func: Callable[..., Any], *args: Any
    ) -> asyncio.Future[Any]:
        if executor is None:
            if self._pool is None:
                self._pool = threads.ThreadPoolExecutor(_DEFAULT_WORKERS, "asyncio")
            executor = self._pool
        future: asyncio.Future[Any] = super().run_in_executor(executor, func, *args)
        if not isinstance(executor, threads.ThreadPoolExecutor):
            self._real_jobs += 1
            future.add_done_callback(self._real_job_ended)
        return future

    def _real_job_ended(self, _: object) -> None:
        self._real_jobs -= 1

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

    async def create_server(  # type: ignore[override]
        self,
        protocol_factory: Callable[[], asyncio.BaseProtocol],
        host: Any = None,
        port: Any = None,
        *,
        sock: socket.socket | None = None,
        ssl: ssl.SSLContext | None = None,
        start_serving: bool = True,
        **options: Any,
    ) -> Any:
        if sock is not None:
            return await super().create_server(
                protocol_factory, sock=sock, ssl=ssl, start_serving=start_serving, **options
            )
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

        server = self.net.listen(self, protocol_factory, host, port or 0)
        if start_serving:
            await server.start_serving()
        return server

    async def create_connection(  # type: ignore[override]
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
            return await super().create_connection(
                protocol_factory, sock=sock, ssl=ssl, server_hostname=server_hostname, **options
            )
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
