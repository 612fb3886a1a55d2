"""A client and a server on 127.0.0.1, with handlers and ops for tests."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from quafka_mesh_ops.bulk.carrier import BulkCarrier
from quafka_mesh_ops.client import MeshClient
from quafka_mesh_ops.handlers import Handler, OpContext
from quafka_mesh_ops.identity import Identity
from quafka_mesh_ops.memory.shared import LEAST_BYTES
from quafka_mesh_ops.ops.base import OpCode
from quafka_mesh_ops.ops.records import (
    FetchOp,
    FetchOpResp,
    FetchOps,
    FetchOpsResp,
    ProduceOp,
    ProduceOpResp,
    ProduceOps,
    ProduceOpsResp,
)
from quafka_mesh_ops.ops.topics import DescribeTopics, DescribeTopicsResp
from quafka_mesh_ops.rights import FOR_EVERY_NODE
from quafka_mesh_ops.server import MeshServer
from quafka_telemetry.tracing import Tracer


def new_identity() -> Identity:
    return Identity(Ed25519PrivateKey.generate())


def fetch_of(size: int) -> FetchOps:
    return FetchOps([FetchOp("orders", 0, 0, size)])


def produce_of(records: bytes, topic: str = "orders") -> ProduceOps:
    return ProduceOps([ProduceOp(topic, 0, records)])


@dataclass
class Broker:
    """Handlers that record the ops that they receive."""

    started: list[str] = field(default_factory=list)
    cancelled: list[str] = field(default_factory=list)
    release: asyncio.Event = field(default_factory=asyncio.Event)
    parked: asyncio.Event = field(default_factory=asyncio.Event)

    async def describe(self, context: OpContext, op: DescribeTopics) -> DescribeTopicsResp:
        """Answers at once; the topic "park" waits until it is released or cancelled."""
        if op.topics == ["park"]:
            self.parked.set()
            try:
                await self.release.wait()
            except asyncio.CancelledError:
                self.cancelled.append("park")
                raise
        return DescribeTopicsResp("cluster", [])

    async def fetch(self, context: OpContext, op: FetchOps) -> FetchOpsResp:
        """Answers with `max_bytes` bytes per partition."""
        return FetchOpsResp(
            [FetchOpResp([bytes(p.max_bytes)], high_watermark=1) for p in op.partitions]
        )

    async def produce(self, context: OpContext, op: ProduceOps) -> ProduceOpsResp:
        """Answers with the length of the records."""
        self.started += [p.topic for p in op.partitions]
        await asyncio.sleep(0)
        return ProduceOpsResp([ProduceOpResp(len(p.records)) for p in op.partitions])

    def handlers(self) -> dict[OpCode, Handler]:
        return dict(
            (
                DescribeTopics.handled_by(self.describe),
                FetchOps.handled_by(self.fetch),
                ProduceOps.handled_by(self.produce),
            )
        )


@dataclass
class Mesh:
    client: MeshClient
    server: MeshServer
    broker: Broker
    port: int
    client_identity: Identity
    server_identity: Identity


@asynccontextmanager
async def mesh(
    handlers: Mapping[OpCode, Handler] | None = None,
    *,
    tracer: Tracer | None = None,
    datagram_size: int | None = None,
    batched: bool = True,
    bulk: BulkCarrier = BulkCarrier.QUIC,
    memory: bool = False,
    by: Callable[[int], tuple[str, int]] = lambda port: ("127.0.0.1", port),
) -> AsyncIterator[Mesh]:
    """A connected pair. `by` returns the address to dial for a server's port.

    `bulk`: what both sides want for bulk answers; `over_tls` waits until it is TLS. `memory`: large
    ops may lie in shared memory; `in_memory` waits for that.
    """
    broker = Broker()
    ours, theirs = new_identity(), new_identity()
    tracer = tracer or Tracer()
    given = dict(handlers or {})
    everywhere = {code: given.pop(code) for code in FOR_EVERY_NODE & given.keys()}
    server = MeshServer(
        theirs,
        {ours.node_id},
        {**broker.handlers(), **given},
        tracer,
        everywhere=everywhere,
        datagram_size=datagram_size,
        batched=batched,
        bulk=bulk,
        memory=memory,
    )
    _, port = await server.start("127.0.0.1", 0)
    client = MeshClient(
        *by(port),
        ours,
        {theirs.node_id},
        tracer,
        datagram_size=datagram_size,
        batched=batched,
        bulk=bulk,
        memory=memory,
    )
    await client.start()
    try:
        assert await client.wait_connected(30)
        yield Mesh(client, server, broker, port, ours, theirs)
    finally:
        await client.close()
        await server.close(0)


async def over_tls(m: Mesh) -> None:
    """Wait until bulk answers travel over TLS."""
    async with asyncio.timeout(10):
        while not all(c.bulk_over_tls for c in (m.client.counters(), *m.server.counters())):
            await asyncio.sleep(0.005)


async def in_memory(m: Mesh) -> None:
    """Send large ops until they lie in shared memory."""
    async with asyncio.timeout(10):
        while not all(c.memory_shared for c in (m.client.counters(), *m.server.counters())):
            await m.client.call(produce_of(bytes(LEAST_BYTES)), org_id=1, deadline=5, lane=0)
            await asyncio.sleep(0.005)
    m.broker.started.clear()
