"""Fetch over the brokers of a cluster: each broker has a reader, with its own lease and cache.

What one broker answers about its log is not true of another's log: leases, and the data under
them, never mix. A fetch for topics of one broker goes to that broker's reader; a fetch that spans
brokers is gathered (`gather.py`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterator, Sequence
from itertools import chain

from quafka_gateway.cluster.catalog import UNKNOWN_BROKER
from quafka_gateway.cluster.cluster import Cluster, part_of
from quafka_gateway.cluster.spread import joined
from quafka_gateway.fetch.gather import FetchGather
from quafka_gateway.fetch.reader import FetchReader
from quafka_mesh_ops.ops.records import FetchOp, FetchOpResp, FetchOps, ProduceOpResp, ProduceOps
from quafka_proto.errors import ErrorCode
from quafka_telemetry.tracing import TraceContext

_UNAVAILABLE = FetchOpResp([], high_watermark=-1, error_code=ErrorCode.NOT_LEADER_OR_FOLLOWER)


class ClusterReader:
    """Reads from a cluster for all connections of one org.

    Attributes:
        readers: one reader for each link of the cluster, in the same order.
    """

    def __init__(self, cluster: Cluster, readers: Sequence[FetchReader]) -> None:
        self._cluster = cluster
        self.readers = readers
        self._only = readers[0] if len(readers) == 1 else None
        self._gather = FetchGather()

    async def close(self) -> None:
        """Cancel the reads in the background and stop holding the leases."""
        await asyncio.gather(*(reader.close() for reader in self.readers))

    def produce_acknowledged(self, op: ProduceOps, answers: Sequence[ProduceOpResp]) -> None:
        """Record a produce of this gateway that the brokers have answered, before the client has
        the answer.

        Every reader records it. Readers of other brokers do not know the topic ids: at worst they
        ask their broker once more than needed.
        """
        for reader in self.readers:
            reader.produce_acknowledged(op, answers)

    def produced_by(self, op: FetchOp, answer: FetchOpResp) -> Iterator[TraceContext]:
        """As of `FetchReader`: topics have different ids at different brokers."""
        return chain.from_iterable(reader.produced_by(op, answer) for reader in self.readers)

    @property
    def only(self) -> FetchReader | None:
        """The reader of the only broker; None if there are several."""
        return self._only

    def fetch(self, op: FetchOps, trace: TraceContext | None) -> Awaitable[list[FetchOpResp]]:
        """One answer per partition, in their order. Never raises: errors are in the answers."""
        if self._only is not None:
            return self._only.fetch(op, trace)
        return self._fetch(op, trace)

    async def _fetch(self, op: FetchOps, trace: TraceContext | None) -> list[FetchOpResp]:
        places = await self._cluster.places(op, trace)
        if len(places) == 1 and UNKNOWN_BROKER not in places:
            (broker,) = places
            return await self.readers[broker].fetch(op, trace)

        async def call(broker: int, part: FetchOps) -> list[FetchOpResp] | None:
            if not self._cluster.is_connected(broker):
                return None
            answers = await self.readers[broker].fetch(part, trace)
            # The broker disconnected meanwhile, or closes.
            gone = all(a.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER for a in answers)
            return None if gone else answers

        parts = {broker: part_of(op, its) for broker, its in places.items()}
        answers = await self._gather.fetch(call, parts)
        return joined(
            places, {b: answers.get(b) or [_UNAVAILABLE] * len(its) for b, its in places.items()}
        )
