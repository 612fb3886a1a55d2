"""Bounds the connections of authenticated nodes: of each node, and of all together. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection

from quafka_mesh_ops.node_ids import NodeId

MOST, MOST_OF_NODE = 1_024, 512
"""The defaults."""

TOO_MANY = "too many connections"
"""The reason that is sent to a refused node begins with this."""


class NodeConnectionLimits:
    """Counts the connections of each node, and refuses those that exceed a bound.

    One place is kept for each allowed node that has no connection: however many connections the
    others open, its first one is admitted, unless the allow-list is longer than the bound.

    Attributes:
        most: the bound on the connections of all nodes.
        refused: the number of refused connections, by the limit that was reached: "node", "total".
    """

    def __init__(
        self, allowed: Collection[NodeId], most: int = MOST, most_of_node: int = MOST_OF_NODE
    ) -> None:
        self.most = most
        self.refused = Counter(node=0, total=0)
        self._allowed = allowed
        self._most_of_node = most_of_node
        self._by_node: Counter[NodeId] = Counter()

    @property
    def used(self) -> int:
        """The number of admitted connections."""
        return self._by_node.total()

    def admit(self, node: NodeId) -> str | None:
        """Count a new connection of a node; returns the reason if it is refused instead."""
        own = self._by_node[node]
        if own >= self._most_of_node:
            self.refused["node"] += 1
            return f"{TOO_MANY}: this node has {own}, mesh.max.connections.per.node"
        kept = sum(each not in self._by_node for each in self._allowed) if own else 0
        if self.used + kept >= self.most:
            self.refused["total"] += 1
            return f"{TOO_MANY}: the broker accepts {self.most}, mesh.max.connections"
        self._by_node[node] = own + 1
        return None

    def release(self, node: NodeId) -> None:
        """Stop counting a connection that was admitted."""
        self._by_node[node] -= 1
        if not self._by_node[node]:
            del self._by_node[node]
