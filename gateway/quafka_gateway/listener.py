"""TCP accept: who may connect, and how all connections end."""

from __future__ import annotations

import asyncio
import logging
import os
from itertools import count

from quafka_gateway.connection import KafkaConnection
from quafka_gateway.context import Services
from quafka_mesh_ops.errors import StartupError

log = logging.getLogger("quafka.gateway.listener")

_SWEEP_SECONDS = 5.0
_IDLE_SECONDS = 600.0  # Kafka's connections.max.idle.ms
_BACKLOG = 1024


class Listener:
    """Accepts Kafka clients on one address: first `bind`, then `serve`, at last `close`."""

    def __init__(self, max_connections: int) -> None:
        self.max_connections = max_connections
        self._services: Services | None = None
        self._connections: set[KafkaConnection] = set()
        self._serials = count()
        self._server: asyncio.Server | None = None
        self._sweeper: asyncio.Task[None] | None = None

    @property
    def connections(self) -> int:
        """How many clients are connected."""
        return len(self._connections)

    async def bind(self, host: str, port: int, *, shared: bool = False) -> tuple[str, int]:
        """Take the address (port 0: any free one) and return the one taken. No client is accepted.

        With `shared`, other processes of this user may take it as well, if they say so too: the
        system spreads new connections over them (SO_REUSEPORT).

        Raises:
            StartupError: the address cannot be bound.
        """
        loop = asyncio.get_running_loop()
        try:
            self._server = await loop.create_server(
                self._accept,
                host,
                port,
                backlog=_BACKLOG,
                start_serving=False,
                reuse_port=shared or None,
            )
        except OSError as e:
            reason = os.strerror(e.errno) if e.errno else str(e)
            raise StartupError(f"cannot listen on {host}:{port}: {reason}") from e
        bound = self._server.sockets[0].getsockname()
        return bound[0], bound[1]

    async def serve(self, services: Services) -> None:
        """Accept clients on the bound address."""
        assert self._server is not None, "bind() comes first"
        self._services = services
        self._sweeper = asyncio.get_running_loop().create_task(self._sweep())
        await self._server.start_serving()

    async def close(self, drain: float) -> None:
        """Accept no more; answer what is under way within `drain` seconds; close."""
        if self._server is None:
            return
        self._server.close()
        if self._sweeper is not None:
            self._sweeper.cancel()
        open_now = list(self._connections)
        for connection in open_now:
            connection.drain()
        ended = [asyncio.ensure_future(c.wait_tasks()) for c in open_now]
        if ended:
            await asyncio.wait(ended, timeout=drain)
        for task in ended:
            task.cancel()
        for connection in list(self._connections):
            connection.close("the gateway stops")

    def _accept(self) -> asyncio.Protocol:
        assert self._services is not None, "serve() comes first"
        stats = self._services.stats
        if len(self._connections) >= self.max_connections:
            log.warning("refusing a client: max.connections=%d are open", self.max_connections)
            stats.refused += 1
            return _Refusal()
        stats.accepted += 1
        connection = KafkaConnection(self._services, next(self._serials), self._connections.discard)
        self._connections.add(connection)
        return connection

    async def _sweep(self) -> None:
        """Close connections that stopped talking: one timer for all of them."""
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(_SWEEP_SECONDS)
            now = loop.time()
            for connection in list(self._connections):
                if connection.stalled(now):
                    connection.close("a request stopped arriving midway")
                elif now - connection.last_active > _IDLE_SECONDS:
                    connection.close("idle")


class _Refusal(asyncio.Protocol):
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport.close()
