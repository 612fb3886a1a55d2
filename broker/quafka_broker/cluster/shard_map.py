"""The shards and brokers of the cluster as known to this broker, and the nodes that follow them.

Gateways and other brokers park an op here until the map changes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

from quafka_mesh_ops.handlers import Handler, OpContext
from quafka_mesh_ops.ops.base import OpCode
from quafka_mesh_ops.ops.cluster import ClusterBroker, ClusterMap, ClusterMapResp, ShardOwner

_LONGEST_WAIT = 60.0
_PER_NODE = 32
"""Parked ops of one node; beyond them, the oldest is answered."""


class ShardMap:
    """The map, and the ops that are parked on it. For one event loop.

    A broker with a local folder is its own cluster: `cluster_id` is empty, and shard 0 is here.
    """

    def __init__(self, cluster_id: str = "") -> None:
        self.cluster_id = cluster_id
        self.by_name = False
        """See `ClusterMapResp`."""
        self.version = 0
        self.shards: Sequence[ShardOwner] = ()
        self.brokers: Sequence[ClusterBroker] = ()
        self._parked: dict[str, dict[asyncio.Future[None], None]] = {}
        self._draining = False

    @property
    def handlers(self) -> Mapping[OpCode, Handler]:
        """The handler of the op."""
        return dict((ClusterMap.handled_by(self.handle),))

    def update(self, shards: Sequence[ShardOwner], brokers: Sequence[ClusterBroker]) -> bool:
        """Take a newer map and answer the parked ops; False: nothing has changed."""
        if (tuple(shards), tuple(brokers)) == (self.shards, self.brokers):
            return False
        self.shards, self.brokers = tuple(shards), tuple(brokers)
        self.version += 1
        self._wake()
        return True

    def drain(self) -> None:
        """Answer the parked ops, and park no more."""
        self._draining = True
        self._wake()

    async def handle(self, context: OpContext, op: ClusterMap) -> ClusterMapResp:
        """Answer once the map differs from the one that the node knows."""
        if op.known == self.version and op.max_wait_ms > 0 and not self._draining:
            await self._park(context.peer, min(op.max_wait_ms / 1000, _LONGEST_WAIT))
        return ClusterMapResp(
            self.cluster_id, self.version, list(self.shards), list(self.brokers), self.by_name
        )

    async def _park(self, peer: str, seconds: float) -> None:
        its = self._parked.setdefault(peer, {})
        waiting: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        its[waiting] = None
        if len(its) > _PER_NODE:
            oldest = next(iter(its))
            del its[oldest]
            if not oldest.done():
                oldest.set_result(None)
        try:
            await asyncio.wait([waiting], timeout=seconds)
        finally:
            its.pop(waiting, None)
            if not its and self._parked.get(peer) is its:
                del self._parked[peer]

    def _wake(self) -> None:
        for its in self._parked.values():
            for waiting in its:
                if not waiting.done():
                    waiting.set_result(None)
