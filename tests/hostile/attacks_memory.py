"""A node on the broker's host with large ops in shared memory: a few bytes name megabytes."""

from __future__ import annotations

import asyncio

from quafka_mesh_ops.client import MeshClient
from quafka_mesh_ops.frames import encode_placed
from quafka_mesh_ops.memory.shared import MOST_BYTES
from quafka_mesh_ops.ops.records import ProduceOp, ProduceOps
from quafka_proto.errors import ErrorCode
from quafka_telemetry.tracing import Tracer
from tests.hostile.arena import Arena, run
from tests.hostile.catalogue import attack

_AUTO = ("--mesh-records", "auto")
_SECONDS = 3.0
_CONNECTS = 10.0
_ROOM = 1_000  # for the envelope
_UNANSWERED = 6
_FRAMES = 20_000
LANE_1 = 4


@attack("a node has six ops of 2 MiB in its memory all the time; each is refused",
        of_clients=False, part_of_tests=True, broker=_AUTO, gateway=_AUTO)  # fmt: skip
def full(arena: Arena) -> None:
    """The broker reads each of them in one call."""
    run(_full(arena))


async def _full(arena: Arena) -> None:
    client = await _sharing(arena)
    loop = asyncio.get_running_loop()
    until = loop.time() + _SECONDS

    async def ops(lane: int) -> None:
        while loop.time() < until:
            answer = await _produce(client, MOST_BYTES - _ROOM, lane)
            assert answer == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    try:
        await asyncio.gather(*[ops(lane) for lane in range(_UNANSWERED)])
        assert client.counters().memory_bytes > _UNANSWERED * (MOST_BYTES - _ROOM)
    finally:
        await client.close()


@attack("a node names the same megabytes of its memory 20,000 times at once",
        of_clients=False, part_of_tests=True, broker=_AUTO, gateway=_AUTO)  # fmt: skip
def again(arena: Arena) -> None:
    """It loses its connection before the broker has read them a dozen times."""
    run(_again(arena))


async def _again(arena: Arena) -> None:
    client = await _sharing(arena)
    try:
        session = client._connector.session
        assert session is not None
        session.connection.write(LANE_1, [encode_placed(0, MOST_BYTES) * _FRAMES])
        async with asyncio.timeout(_CONNECTS):
            await asyncio.shield(session.over)
    finally:
        await client.close()


async def _sharing(arena: Arena) -> MeshClient:
    """A client whose large ops lie in memory."""
    client = MeshClient(
        *arena.mesh_address, arena.gateway_identity, {arena.broker_id}, Tracer(), memory=True
    )
    await client.start()
    assert await client.wait_connected(_CONNECTS)
    async with asyncio.timeout(_CONNECTS):
        while not client.counters().memory_shared:
            await _produce(client, MOST_BYTES // 2, 0)
    return client


async def _produce(client: MeshClient, size: int, lane: int) -> int:
    op = ProduceOps([ProduceOp("of-nobody", 0, bytes(size))])
    answer = await client.call(op, org_id=1, deadline=_CONNECTS, lane=lane)
    return answer.partitions[0].error_code
