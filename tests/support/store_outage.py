"""A port in front of an HTTP server that can be closed: the server is away, as in an outage."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Generator
from contextlib import contextmanager

from tests.support.tcp_proxy import TcpProxy


class Outage:
    """Made by `with_outages`. `begin` and `end` may be called from the test's thread."""

    def __init__(self, proxy: TcpProxy, loop: asyncio.AbstractEventLoop) -> None:
        self._proxy = proxy
        self._loop = loop
        self.port = proxy.port

    def begin(self) -> None:
        """From now on nothing is answered, and nothing is connected."""
        self._loop.call_soon_threadsafe(self._silence)

    def end(self) -> None:
        """Connections are served again."""
        self._loop.call_soon_threadsafe(self._proxy.flowing.set)

    def _silence(self) -> None:
        self._proxy.flowing.clear()
        self._proxy.cut()


@contextmanager
def with_outages(target: int) -> Generator[Outage]:
    """Forward a port of its own to `target`."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()

    async def serve() -> tuple[TcpProxy, asyncio.Server]:
        proxy = TcpProxy(target)
        server = await asyncio.start_server(proxy.serve, "127.0.0.1", 0)
        proxy.port = server.sockets[0].getsockname()[1]
        return proxy, server

    async def finish() -> None:
        server.close()
        await proxy.finish()

    proxy, server = asyncio.run_coroutine_threadsafe(serve(), loop).result(10)
    try:
        yield Outage(proxy, loop)
    finally:
        asyncio.run_coroutine_threadsafe(finish(), loop).result(10)
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()
