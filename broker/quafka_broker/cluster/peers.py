"""Sends the ops of one shard's transactions to the other shards, wherever they are.

A shard is called by its name (`shard:3`), which outlives moves. A shard at this broker is called
without the mesh.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol, cast

from quafka_broker.transactions.peers import PeerError
from quafka_mesh_ops.allow_list import AllowList
from quafka_mesh_ops.client import MeshClient
from quafka_mesh_ops.counters import PeerCounters
from quafka_mesh_ops.errors import MeshError
from quafka_mesh_ops.handlers import Handler, OpContext
from quafka_mesh_ops.identity import Identity
from quafka_mesh_ops.ops.base import Op, OpCode, R
from quafka_mesh_ops.ops.cluster import ShardOwner
from quafka_mesh_ops.settings import split_address
from quafka_mesh_ops.shard_client import ClientPool, OpClient, ShardClient
from quafka_mesh_ops.shards import shard_name, shard_number
from quafka_telemetry.tracing import Tracer

_SECONDS = 5.0
"""Deadline of an op: a produce waits for it, and the gateway of the produce for 30 s at most."""
_MOVE_SECONDS = 3.0
_NOWHERE = "", 0


class HostedShards(Protocol):
    """The shards at this broker."""

    def handlers_of(self, shard: int) -> Mapping[OpCode, Handler] | None:
        """The handlers of a shard's ops, or None if it is not here."""
        ...


class OtherBrokers:
    """Mesh clients for the shards at other brokers. For one event loop."""

    def __init__(
        self,
        identity: Identity,
        allowed: AllowList,
        tracer: Tracer,
        *,
        datagram_size: int | None,
        batched: bool,
    ) -> None:
        self._identity = identity
        self._allowed = allowed
        self._tracer = tracer
        self._datagram_size = datagram_size
        self._batched = batched
        self._owners: Sequence[ShardOwner] = ()
        self._clients: dict[int, ShardClient] = {}
        self._pool = ClientPool(self._client, self._tracer)

    @property
    def node_id(self) -> str:
        """The node id of this broker."""
        return self._identity.node_id

    @property
    def tracer(self) -> Tracer:
        """The tracer of this process."""
        return self._tracer

    def dial(self, address: str) -> OpClient:
        """A client for the broker at an address, which the caller starts and closes. It shares
        the connection of the broker's shards. Raises ValueError: not an address."""
        return ShardClient(self._pool, *split_address(address), None)

    def _client(self, host: str, port: int, shard: int | None) -> MeshClient:
        return MeshClient(
            host, port, self._identity, self._allowed, self._tracer,
            datagram_size=self._datagram_size, batched=self._batched, shard=shard,
        )  # fmt: skip

    def follow(self, owners: Sequence[ShardOwner]) -> None:
        """Take over the present owners of the shards."""
        self._owners = owners
        for shard, client in self._clients.items():
            client.move(*self._place(shard))

    def _place(self, shard: int) -> tuple[str, int]:
        owner = self._owners[shard] if shard < len(self._owners) else None
        if owner is None or owner.node in ("", self.node_id):
            return _NOWHERE
        try:
            return split_address(owner.address)
        except ValueError:
            return _NOWHERE

    async def client_of(self, shard: int) -> OpClient:
        """The client for a shard, made by the first call."""
        client = self._clients.get(shard)
        if client is None:
            client = self._clients[shard] = ShardClient(self._pool, *self._place(shard), shard)
            await client.start()
        return client

    def counters(self) -> list[PeerCounters]:
        """The current state of the connections."""
        return self._pool.counters()

    async def close(self) -> None:
        """Close the connections. Calls in flight fail."""
        await asyncio.gather(*(client.close() for client in self._clients.values()))
        await self._pool.close()


class ShardPeers:
    """The other shards of the cluster, as one shard sees them; see `Peers`."""

    def __init__(
        self, shard: int, shards: int, hosting: HostedShards, brokers: OtherBrokers
    ) -> None:
        self.node_id = shard_name(shard)
        self.others = tuple(shard_name(each) for each in range(shards) if each != shard)
        self._hosting = hosting
        self._brokers = brokers

    async def call(self, broker: str, op: Op[R], org: int) -> R:
        """Send an op to another shard. Raises PeerError."""
        number = shard_number(broker)
        if number is None or broker not in self.others:
            raise PeerError(f"{broker[:16]} is not a shard of this cluster")
        op = replace(cast("Any", op), by=self.node_id)
        handlers = self._hosting.handlers_of(number)
        if handlers is not None:
            return await self._call_here(handlers, op, org)
        client = await self._brokers.client_of(number)
        if not client.connected and client.seconds_disconnected > _MOVE_SECONDS:
            raise PeerError("it is not connected")
        try:
            return await client.call(op, org_id=org, deadline=_SECONDS)
        except MeshError as e:
            raise PeerError(str(e)) from e

    async def _call_here(self, handlers: Mapping[OpCode, Handler], op: Op[R], org: int) -> R:
        deadline = asyncio.get_running_loop().time() + _SECONDS
        context = OpContext(org, None, deadline, self._brokers.node_id, self._brokers.tracer)
        try:
            async with asyncio.timeout(_SECONDS):
                return cast("R", await handlers[op.code](context, op))
        except (MeshError, TimeoutError) as e:
            raise PeerError(str(e) or "no answer") from e
