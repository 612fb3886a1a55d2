"""The mesh clients of a gateway: one per broker or shard, shared by all tenants."""

from __future__ import annotations

import asyncio

from quafka_loop.eager_task import EagerTask
from quafka_loop.fair_turns import FairTurns
from quafka_mesh_ops.allow_list import AllowList
from quafka_mesh_ops.bulk.carrier import BulkCarrier
from quafka_mesh_ops.client import MeshClient
from quafka_mesh_ops.counters import PeerCounters
from quafka_mesh_ops.identity import Identity
from quafka_mesh_ops.settings import split_address
from quafka_mesh_ops.shard_client import ClientPool, OpClient, ShardClient
from quafka_mesh_ops.shards import shard_name, shard_number
from quafka_telemetry.tracing import Tracer

_NOWHERE = "", 0


class BrokerClients:
    """Makes a client for each broker or shard that a tenant is routed to.

    The clients of shards share a connection to each broker.
    """

    def __init__(
        self,
        identity: Identity,
        allowed: AllowList,
        tracer: Tracer,
        turns: FairTurns,
        *,
        datagram_size: int | None,
        batched: bool,
        bulk: BulkCarrier,
        memory: bool,
    ) -> None:
        self._identity = identity
        self._allowed = allowed
        self._tracer = tracer
        self._turns = turns
        self._datagram_size = datagram_size
        self._batched = batched
        self._bulk = bulk
        self._memory = memory
        self._clients: dict[str, OpClient] = {}
        self._brokers: list[MeshClient] = []
        """Those of brokers without shards."""
        self._pool = ClientPool(self._client, self._tracer)
        self._addresses: dict[int, tuple[str, int]] = {}
        self._started = False

    @property
    def connected(self) -> bool:
        """Whether any broker is connected."""
        return any(client.connected for client in self._clients.values())

    def client_of(self, broker: str) -> OpClient:
        """The client for the broker at an address, or for a named shard, wherever it is."""
        client = self._clients.get(broker)
        if client is None:
            shard = shard_number(broker)
            if shard is None:
                client = self._client(*split_address(broker), None)
                self._brokers.append(client)
            else:
                place = self._addresses.get(shard, _NOWHERE)
                client = ShardClient(self._pool, *place, shard)
            self._clients[broker] = client
            if self._started:  # the org's first client has connected; its ops follow in this turn
                EagerTask(client.start(), asyncio.get_running_loop())
        return client

    def dial(self, address: str) -> OpClient:
        """A client for the broker at an address, which the caller starts and closes. It shares
        the connection of the broker's shards."""
        return ShardClient(self._pool, *split_address(address), None)

    def _client(self, host: str, port: int, shard: int | None) -> MeshClient:
        return MeshClient(
            host,
            port,
            self._identity,
            self._allowed,
            self._tracer,
            datagram_size=self._datagram_size,
            batched=self._batched,
            bulk=self._bulk,
            memory=self._memory,
            shard=shard,
            turns=self._turns,
        )

    def move(self, shard: int, address: str) -> None:
        """A shard has moved to another address; empty: it has none at the moment."""
        try:
            place = split_address(address) if address else _NOWHERE
        except ValueError:  # of a broken registration
            place = _NOWHERE
        self._addresses[shard] = place
        client = self._clients.get(shard_name(shard))
        if client is not None:
            client.move(*place)

    async def start(self) -> None:
        """Begin to connect, in the background; from now on, new clients do so, too."""
        self._started = True
        for client in self._clients.values():
            await client.start()

    async def close(self) -> None:
        """Close the connections. Calls in flight fail."""
        for client in self._clients.values():
            await client.close()
        await self._pool.close()

    def counters(self) -> list[PeerCounters]:
        """The current state of each broker and of the connection to it."""
        return [*(client.counters() for client in self._brokers), *self._pool.counters()]

    def enforce(self) -> None:
        """Close the connections to brokers that are not allowed any more."""
        for client in self._brokers:
            client.enforce()
        self._pool.enforce()
