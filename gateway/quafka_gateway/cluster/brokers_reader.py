"""Fetch over several brokers: each has a reader, and with it a lease and a cache, of its own.

What one broker says of its log has no bearing on another's: leases, and what is known under them,
never mix. A fetch for topics of one broker is that reader's alone; one that spans brokers is
gathered (`fetch_gather.py`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from itertools import chain

from quafka_gateway.cluster.brokers import Brokers, part_of
from quafka_gateway.cluster.catalog import AWAY
from quafka_gateway.cluster.spread import joined
from quafka_gateway.fetch.gather import FetchGather
from quafka_gateway.fetch.reader import FetchReader
from quafka_mesh_ops.ops.records import FetchOp, FetchOpResp, FetchOps
from quafka_proto.errors import ErrorCode
from quafka_telemetry.tracing import TraceContext

_AWAY = FetchOpResp([], high_watermark=-1, error_code=ErrorCode.NOT_LEADER_OR_FOLLOWER)


class BrokersReader:
    """Reads from several brokers for all connections of a gateway."""

    def __init__(self, brokers: Brokers, readers: Sequence[FetchReader]) -> None:
        """One reader for each of the brokers, in their order."""
        self._brokers = brokers
        self.readers = readers
        self._gather = FetchGather()

    async def close(self) -> None:
        """Stop reading ahead and let the leases go."""
        await asyncio.gather(*(reader.close() for reader in self.readers))

    def produced_by(self, op: FetchOp, answer: FetchOpResp) -> Iterator[TraceContext]:
        """See FetchReader: topics have different ids at different brokers."""
        return chain.from_iterable(reader.produced_by(op, answer) for reader in self.readers)

    async def fetch(self, op: FetchOps, trace: TraceContext | None) -> list[FetchOpResp]:
        """One answer per partition, in their order. Never raises: errors are in the answers."""
        places = await self._brokers.places(op, trace)
        if len(places) == 1 and AWAY not in places:
            (broker,) = places  # nobody else's partitions wait for it
            return await self.readers[broker].fetch(op, trace)

        async def ask(broker: int, part: FetchOps) -> list[FetchOpResp] | None:
            if not self._brokers.is_there(broker):
                return None
            answers = await self.readers[broker].fetch(part, trace)
            # It went away meanwhile, or closes.
            gone = all(a.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER for a in answers)
            return None if gone else answers

        parts = {broker: part_of(op, its) for broker, its in places.items()}
        answers = await self._gather.fetch(ask, parts)
        return joined(
            places, {b: answers.get(b) or [_AWAY] * len(its) for b, its in places.items()}
        )
