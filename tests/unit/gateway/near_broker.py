"""A real broker's ops without a mesh, for tests of the gateway's reader."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from quafka_broker.leases import LEASE_SECONDS
from quafka_broker.ops import fetch, produce
from quafka_broker.state import BrokerState
from quafka_gateway.fetch.reader import FetchReader
from quafka_gateway.memory import ResponseMemory
from quafka_mesh_ops.ops.leases import HoldLease, HoldLeaseResp
from quafka_mesh_ops.ops.records import (
    FetchOp,
    FetchOpResp,
    FetchOps,
    FetchOpsResp,
    ProduceOp,
    ProduceOps,
)
from quafka_proto.record_codec import iter_records
from quafka_telemetry.tracing import TraceContext
from tests.unit.broker.memory_disk import MemoryDisk
from tests.unit.broker.tools import ORG, batch_of, checked, context, running_state


class NearBroker:
    """Runs the broker's handlers; counts and may delay ops."""

    def __init__(self, state: BrokerState) -> None:
        self.state = state
        self.fetched: list[FetchOps] = []
        self.parked = 0
        self.delay_answer = self.delay_ack = 0.0
        self.lose_leases = False

    async def fetch(self, op: FetchOps, trace: TraceContext | None) -> FetchOpsResp:
        self.fetched.append(op)
        self.parked += 1
        try:
            answer = await fetch.handle(self.state, context(), op)
        finally:
            self.parked -= 1
        await asyncio.sleep(self.delay_answer)
        return answer

    async def hold_lease(self, op: HoldLease) -> HoldLeaseResp:
        answer = await self.state.leases.hold(ORG, "gateway", op)
        if self.lose_leases:
            await asyncio.Event().wait()
        return answer


class Edge:
    """A reader in front of a broker, and the shortest way to produce and to fetch."""

    def __init__(self, state: BrokerState, cache_bytes: int = 64 << 20) -> None:
        self.state = state
        self.broker = NearBroker(state)
        self.memory = ResponseMemory(256 << 20).of(1)
        self.reader = FetchReader(self.broker, self.memory, cache_bytes, backfill_bytes=4 << 20)

    async def produce_here(self, *values: bytes, topic: str = "t") -> int:
        """Produce through this gateway; returns the offset after the records, -1: an error."""
        op = ProduceOps([ProduceOp(topic, 0, batch_of(*values))])
        answers = (await produce.handle(self.state, context(), op)).partitions
        await asyncio.sleep(self.broker.delay_ack)
        self.reader.produce_acknowledged(op, answers)
        return -1 if answers[0].error_code else answers[0].base_offset + len(values)

    async def produce(self, *values: bytes, topic: str = "t", partition: int = 0) -> int:
        """Produce without a gateway; returns the first record's offset."""
        found = self.state.registry.find(ORG, topic, b"")
        assert found is not None
        grown = self.state.log.partitions.get(found.partition_id(partition))
        return (await self.state.log.queue.append(grown, checked(*values)))[0]

    async def fetch(
        self,
        offset: int,
        topic: str = "t",
        *,
        topic_id: bytes = b"",
        max_bytes: int = 1 << 20,
        max_wait_ms: int = 0,
        min_bytes: int = 1,
        isolation_level: int = 0,
    ) -> FetchOpResp:
        part = FetchOp("" if topic_id else topic, 0, offset, max_bytes, topic_id)
        return (
            await self.reader.fetch(
                FetchOps(
                    [part], max_wait_ms, min_bytes, max_bytes, isolation_level=isolation_level
                ),
                None,
            )
        )[0]

    async def with_lease(self) -> None:
        """Hold the lease: the first fetch begins to."""
        await self.fetch(0)
        await asyncio.sleep(0.01)
        await self.fetch(0)
        self.broker.fetched.clear()


def values(answer: FetchOpResp) -> list[bytes]:
    return [record.value or b"" for batch in answer.records for record in iter_records(batch)]


@asynccontextmanager
async def running_edge(
    cache_bytes: int = 64 << 20, lease_seconds: float = LEASE_SECONDS
) -> AsyncGenerator[Edge]:
    """A broker with topic "t", and a reader."""
    async with running_state(MemoryDisk(), lease_seconds=lease_seconds) as state:
        await state.topics.create(ORG, "t", 1)
        edge = Edge(state, cache_bytes)
        try:
            yield edge
        finally:
            await edge.reader.close()
