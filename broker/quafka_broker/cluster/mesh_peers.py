"""Mesh connections to the other brokers in `mesh.brokers`."""

from __future__ import annotations

from collections.abc import Sequence

from quafka_broker.transactions.peers import PeerError
from quafka_mesh_ops.client import MeshClient
from quafka_mesh_ops.counters import PeerCounters
from quafka_mesh_ops.errors import MeshError
from quafka_mesh_ops.identity import Identity
from quafka_mesh_ops.node_ids import NodeId
from quafka_mesh_ops.ops.base import Op, R
from quafka_mesh_ops.settings import split_address
from quafka_telemetry.tracing import Tracer

_SECONDS = 5.0
"""Deadline of an op: a produce waits for it, and the gateway of the produce for 30 s at most."""


def grants_of(brokers: Sequence[str]) -> tuple[str, ...]:
    """The entries of the allow-list that `mesh.brokers` implies."""
    return tuple(f"{each.partition('@')[0]} may=coordinate" for each in brokers)


class MeshPeers:
    """One mesh client for each other broker. For one event loop; see `Peers`."""

    def __init__(
        self,
        brokers: Sequence[str],
        identity: Identity,
        tracer: Tracer,
        *,
        datagram_size: int | None,
        batched: bool,
    ) -> None:
        self.node_id: NodeId = identity.node_id
        self._clients: dict[NodeId, MeshClient] = {}
        for each in brokers:
            node_id, _, where = each.partition("@")
            if node_id != self.node_id:  # all brokers may have the same list
                self._clients[node_id] = MeshClient(
                    *split_address(where), identity, (node_id,), tracer,
                    datagram_size=datagram_size, batched=batched,
                )  # fmt: skip
        self.others = tuple(self._clients)

    async def call(self, broker: str, op: Op[R], org: int) -> R:
        """Send an op to the broker with this node id.

        Raises:
            PeerError: no answer within five seconds, or an error.
        """
        client = self._clients.get(broker)
        if client is None:
            raise PeerError(f"broker {broker[:16]} is not in mesh.brokers")
        if not client.connected and client.seconds_disconnected > 1.0:
            raise PeerError("it is not connected")
        try:
            return await client.call(op, org_id=org, deadline=_SECONDS)
        except MeshError as e:
            raise PeerError(str(e)) from e

    async def start(self) -> None:
        """Begin to connect, in the background."""
        for client in self._clients.values():
            await client.start()

    async def close(self) -> None:
        """Close the connections. Calls in flight fail."""
        for client in self._clients.values():
            await client.close()

    def counters(self) -> list[PeerCounters]:
        """The current state of each broker and of the connection to it."""
        return [client.counters() for client in self._clients.values()]
