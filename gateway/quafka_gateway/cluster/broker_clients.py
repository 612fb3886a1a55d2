"""The mesh clients of a gateway: one per broker, shared by all tenants."""

from __future__ import annotations

import asyncio

from quafka_mesh_ops.allow_list import AllowList
from quafka_mesh_ops.client import MeshClient
from quafka_mesh_ops.counters import PeerCounters
from quafka_mesh_ops.identity import Identity
from quafka_mesh_ops.settings import split_address
from quafka_telemetry.eager_task import EagerTask
from quafka_telemetry.tracing import Tracer


class BrokerClients:
    """Makes a client for each broker that a tenant is routed to."""

    def __init__(
        self,
        identity: Identity,
        allowed: AllowList,
        tracer: Tracer,
        *,
        datagram_size: int | None,
        batched: bool,
        bulk: bool,
    ) -> None:
        self._identity = identity
        self._allowed = allowed
        self._tracer = tracer
        self._datagram_size = datagram_size
        self._batched = batched
        self._bulk = bulk
        self._clients: dict[str, MeshClient] = {}
        self._started = False

    @property
    def connected(self) -> bool:
        """Whether any broker is connected."""
        return any(client.connected for client in self._clients.values())

    def client_of(self, address: str) -> MeshClient:
        """The client for the broker at `address`."""
        client = self._clients.get(address)
        if client is None:
            client = self._clients[address] = MeshClient(
                *split_address(address),
                self._identity,
                self._allowed,
                self._tracer,
                datagram_size=self._datagram_size,
                batched=self._batched,
                bulk=self._bulk,
            )
            if self._started:  # an org's first client has come; its ops follow in this turn
                EagerTask(client.start(), asyncio.get_running_loop())
        return client

    async def start(self) -> None:
        """Begin to connect, in the background; from now on, new clients do so, too."""
        self._started = True
        for client in self._clients.values():
            await client.start()

    async def close(self) -> None:
        """Close the connections. Calls in flight fail."""
        for client in self._clients.values():
            await client.close()

    def counters(self) -> list[PeerCounters]:
        """The current state of each broker and of the connection to it."""
        return [client.counters() for client in self._clients.values()]

    def enforce(self) -> None:
        """Close the connections to brokers that are not allowed any more."""
        for client in self._clients.values():
            client.enforce()
