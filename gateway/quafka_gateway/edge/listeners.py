"""Accepts TCP connections of Kafka clients, and closes those that stall, idle or hold too much.

One object has the sockets of all listeners, because the limits count all connections together.
"""

from __future__ import annotations

import asyncio
import logging
import math
import os
from collections.abc import Mapping, Sequence
from functools import partial
from itertools import count

from quafka_gateway.context import Services
from quafka_gateway.edge.connection import KafkaConnection
from quafka_gateway.edge.connection_limits import ClientConnectionLimits
from quafka_gateway.edge.tls.contexts import TlsContext
from quafka_gateway.edge.tls.handshake import Handshakes, TlsHandshake
from quafka_gateway.handlers.kafka_api import AnyApi
from quafka_gateway.listeners import KafkaListener
from quafka_gateway.memory import ResponseMemory, StuckClient
from quafka_gateway.security.session import SSL
from quafka_loop import sockets
from quafka_loop.heap import Heap
from quafka_mesh_ops.settings import join_address
from quafka_telemetry.startup import StartupError

log = logging.getLogger("quafka.gateway.listener")

_SWEEP_SECONDS = 5.0
_PATIENCE_SECONDS = 5.0
_BACKLOG = 1024


class Listeners:
    """Accepts Kafka clients on all addresses: call `bind`, then `serve`, at last `close`."""

    def __init__(
        self, limits: ClientConnectionLimits, idle_seconds: float, handshakes: Handshakes
    ) -> None:
        """Connections without a request for `idle_seconds` are closed."""
        self._limits = limits
        self.handshakes = handshakes
        self.tls: dict[str, TlsContext] = {}
        """The TLS of each listener that has one, by its name."""
        self._watches: list[asyncio.Task[None]] = []
        self._idle_seconds = idle_seconds
        self._heap = Heap()
        self._services: Services | None = None
        self._apis: Mapping[int, AnyApi] = {}
        self._connections: dict[KafkaConnection, None] = {}
        self._serials = count()
        self._servers: list[asyncio.Server] = []
        self._sweeper: asyncio.Task[None] | None = None

    @property
    def connections(self) -> int:
        """The number of open connections."""
        return len(self._connections)

    @property
    def max_connections(self) -> int:
        """The limit of open connections."""
        return self._limits.most

    async def bind(
        self, listeners: Sequence[KafkaListener], *, shared: bool = False
    ) -> tuple[KafkaListener, ...]:
        """Bind all addresses; return the listeners with the bound ones. Accepts no client yet.

        With `shared`, other processes of this user may bind the addresses, too, and the system
        spreads new connections over the processes (SO_REUSEPORT).

        Raises:
            StartupError: an address cannot be bound.
        """
        return tuple([await self._bind(each, shared=shared) for each in listeners])

    async def _bind(self, listener: KafkaListener, *, shared: bool) -> KafkaListener:
        if listener.tls is not None:
            self.tls[listener.name] = TlsContext(listener, listener.tls)
        loop = asyncio.get_running_loop()
        # The factory is called after `serve`; only then is the bound address known, too.
        bound = [listener]
        try:
            server = await loop.create_server(
                partial(self._accept, bound),
                listener.host,
                listener.port,
                backlog=_BACKLOG,
                start_serving=False,
                reuse_port=shared or None,
            )
        except OSError as e:
            reason = os.strerror(e.errno) if e.errno else str(e)
            raise StartupError(
                f"cannot listen on {join_address(listener.host, listener.port)}: {reason}"
            ) from e
        self._servers.append(server)
        host, port = server.sockets[0].getsockname()[:2]
        bound[0] = listener.bound(host if listener.host else "", port, sockets.gethostname())
        return bound[0]

    async def serve(self, services: Services, apis: Mapping[int, AnyApi]) -> None:
        """Accept clients on the bound addresses."""
        assert self._servers, "bind() comes first"
        self._services = services
        self.handshakes.refused = self._certificate_refused
        self._apis = apis
        loop = asyncio.get_running_loop()
        self._sweeper = loop.create_task(self._sweep())
        self._watches = [loop.create_task(each.watch()) for each in self.tls.values()]
        for server in self._servers:
            await server.start_serving()

    async def close(self, drain: float) -> None:
        """Accept no client; answer the requests in flight within `drain` seconds; close."""
        for server in self._servers:
            server.close()
        self.handshakes.close()
        for task in (self._sweeper, *self._watches):
            if task is not None:
                task.cancel()
        open_now = list(self._connections)
        for connection in open_now:
            connection.drain()
        ended = [asyncio.ensure_future(c.wait_ended()) for c in open_now]
        if ended:
            await asyncio.wait(ended, timeout=drain)
        for task in ended:
            task.cancel()
        for connection in list(self._connections):
            connection.close("the gateway stops")

    def _accept(self, bound: Sequence[KafkaListener]) -> asyncio.BaseProtocol:
        listener = bound[0]
        tls = self.tls.get(listener.name)
        if tls is None:
            return self._make_connection(listener)
        return TlsHandshake(self.handshakes, tls, partial(self._make_connection, listener))

    def _make_connection(
        self, listener: KafkaListener, certificate_name: str = ""
    ) -> KafkaConnection:
        assert self._services is not None, "serve() comes first"
        return KafkaConnection(
            self._services,
            self._apis,
            listener,
            next(self._serials),
            self._closed,
            self._may_open,
            "" if listener.protocol.sasl else certificate_name,
        )

    def _certificate_refused(self, listener: str, host: str, reason: str) -> None:
        assert self._services is not None, "serve() comes first"
        self._services.audit.login_refused(listener, SSL, "", f"/{host}", reason)

    def _may_open(self, connection: KafkaConnection) -> bool:
        assert self._services is not None, "serve() comes first"
        stats = self._services.stats
        refusal = self._limits.open(connection.host)
        if refusal:
            log.warning("refusing a client: %s", refusal)
            stats.refused += 1
            return False
        stats.accepted += 1
        self._connections[connection] = None
        return True

    def _closed(self, connection: KafkaConnection) -> None:
        self._connections.pop(connection, None)
        self._limits.close(connection.host)

    async def _sweep(self) -> None:
        """Close connections that stall or idle: one timer for all of them."""
        loop = asyncio.get_running_loop()
        assert self._services is not None, "serve() comes first"
        while True:
            await asyncio.sleep(_SWEEP_SECONDS)
            now = loop.time()
            for connection in list(self._connections):
                if connection.stalled(now):
                    connection.close("a request stopped arriving midway or arrives too slowly")
                elif connection.expired(now):
                    connection.expire()
                elif connection.unread(now)[1] == math.inf:
                    connection.close("the client does not read a response or reads it too slowly")
                elif connection.left_muted:
                    connection.close("the client disconnected while it was throttled")
                elif connection.idle_since(now) > self._idle_seconds:
                    connection.close("idle")
            self._services.tenants.sweep(now)
            self._services.request_memory.relieve(now)
            self._relieve(self._services.response_memory, now)
            await self._give_back()

    async def _give_back(self) -> None:
        """Return freed memory to the system after large requests or responses."""
        assert self._services is not None, "serve() comes first"
        requests, responses = self._services.request_memory, self._services.response_memory
        self._heap.record(requests.peak + responses.held)
        requests.peak = requests.held
        await self._heap.trim(requests.held + responses.held)

    def _relieve(self, memory: ResponseMemory, now: float) -> None:
        """Close connections of clients that do not read, until the limit is kept."""
        if memory.excess <= 0:
            return
        unread = [(connection, *connection.unread(now)) for connection in self._connections]
        stuck = [
            StuckClient(connection, connection.responses, size, seconds)
            for connection, size, seconds in unread
            if seconds >= _PATIENCE_SECONDS
        ]
        for connection in list(memory.to_close(stuck)):
            connection.close("unread responses hold too much memory")
