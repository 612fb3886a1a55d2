"""Connections for one of several shards of a broker, and shards that move to another."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

import pytest

from quafka_mesh_ops.client import MeshClient
from quafka_mesh_ops.errors import OpFailedError, OutcomeUnknownError
from quafka_mesh_ops.handlers import OpContext
from quafka_mesh_ops.identity import Identity
from quafka_mesh_ops.ops.cluster import OpenShard
from quafka_mesh_ops.ops.topics import DescribeTopics, DescribeTopicsResp
from quafka_mesh_ops.server import MeshServer
from quafka_telemetry.tracing import Tracer
from tests.unit.mesh_ops.mesh import new_identity

OURS = new_identity()


class Shard:
    """A shard that answers with its name; the topic "park" waits until it is released."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.parked, self.release = asyncio.Event(), asyncio.Event()

    async def describe(self, _context: OpContext, op: DescribeTopics) -> DescribeTopicsResp:
        if op.topics == ["park"]:
            self.parked.set()
            await self.release.wait()
        return DescribeTopicsResp(self.name, [])

    def begin(self, server: MeshServer, number: int) -> None:
        server.shards.add(number, dict((DescribeTopics.handled_by(self.describe),)))


class Servers:
    """Brokers, and clients of their shards; all trust one another."""

    def __init__(self, stack: AsyncExitStack) -> None:
        self._stack = stack
        self._theirs = new_identity()

    async def server(self) -> tuple[MeshServer, int]:
        server = MeshServer(self._theirs, {OURS.node_id}, {}, Tracer())
        _, port = await server.start("127.0.0.1", 0)
        self._stack.push_async_callback(server.close, 0)
        return server, port

    async def client(self, port: int, shard: int | None, identity: Identity = OURS) -> MeshClient:
        allowed = {self._theirs.node_id}
        client = MeshClient("127.0.0.1", port, identity, allowed, Tracer(), shard=shard)
        await client.start()
        self._stack.push_async_callback(client.close)
        return client


@pytest.fixture
async def servers() -> AsyncIterator[Servers]:
    async with AsyncExitStack() as stack:
        yield Servers(stack)


async def ask(client: MeshClient, topic: str = "t", seconds: float = 5) -> str:
    answer = await client.call(DescribeTopics([topic]), org_id=1, deadline=seconds)
    return answer.cluster_id


@asynccontextmanager
async def parked(client: MeshClient, shard: Shard) -> AsyncIterator[asyncio.Task[str]]:
    task = asyncio.create_task(ask(client, "park"))
    await asyncio.wait_for(shard.parked.wait(), 30)
    yield task


async def test_each_connection_has_the_shard_that_it_names(servers: Servers) -> None:
    server, port = await servers.server()
    for number in (0, 3):
        Shard(f"shard {number}").begin(server, number)
    assert await ask(await servers.client(port, 3)) == "shard 3"
    assert await ask(await servers.client(port, 0)) == "shard 0"
    unnamed = await servers.client(port, None)
    assert await ask(unnamed) == "shard 0"
    with pytest.raises(OpFailedError) as refused:
        await unnamed.call(OpenShard(3), org_id=1, deadline=5)
    assert refused.value.error_code == 42  # it has a shard already


async def test_a_shard_that_is_not_there_is_refused_and_comes_later(servers: Servers) -> None:
    server, port = await servers.server()
    unnamed = await servers.client(port, None)
    with pytest.raises(OpFailedError) as refused:
        await ask(unnamed)
    assert refused.value.error_code == 6
    client = await servers.client(port, 2)
    answer = asyncio.create_task(ask(client))
    assert not await client.wait_connected(0.2)
    Shard("late").begin(server, 2)
    assert await answer == "late"


async def test_a_shard_that_is_drained_answers_what_it_has_and_ops_follow_it(
    servers: Servers,
) -> None:
    (old, old_port), (new, new_port) = await servers.server(), await servers.server()
    here, there = Shard("here"), Shard("there")
    here.begin(old, 1)
    Shard("stays").begin(old, 0)
    client, other = await servers.client(old_port, 1), await servers.client(old_port, 0)
    assert await ask(other) == "stays"
    async with parked(client, here) as first:
        drained = asyncio.create_task(old.drain_shard(1, 5))
        while client.connected:
            await asyncio.sleep(0.005)
        assert client.said_goodbye
        second = asyncio.create_task(ask(client))  # is held
        here.release.set()
        assert await first == "here"
        await drained
    there.begin(new, 1)
    client.move("127.0.0.1", new_port)
    assert await second == "there"
    assert await ask(other) == "stays"


async def test_a_move_without_a_goodbye_fails_what_is_under_way(servers: Servers) -> None:
    (old, old_port), (new, new_port) = await servers.server(), await servers.server()
    stuck, there = Shard("stuck"), Shard("there")
    stuck.begin(old, 1)
    there.begin(new, 1)
    client = await servers.client(old_port, 1)
    async with parked(client, stuck) as first:
        client.move("127.0.0.1", new_port)
        with pytest.raises(OutcomeUnknownError):
            await first
    assert await ask(client) == "there"


async def test_a_client_without_an_address_holds_its_ops(servers: Servers) -> None:
    server, port = await servers.server()
    Shard("known").begin(server, 1)
    client = await servers.client(0, 1)
    held = asyncio.create_task(ask(client))
    await asyncio.sleep(0.02)
    assert not held.done()
    client.move("127.0.0.1", port)
    assert await held == "known"


async def test_a_connection_waits_for_a_shard_that_is_expected(servers: Servers) -> None:
    server, port = await servers.server()
    server.shards.expect(3)
    client = await servers.client(port, 3)
    asking = asyncio.create_task(ask(client))
    while not any(session.running for session in server.sessions):
        await asyncio.sleep(0.005)
    (connection,) = server.sessions
    Shard("shard 3").begin(server, 3)
    assert await asking == "shard 3"
    assert server.sessions.keys() == {connection}  # the first one


async def test_a_shard_that_does_not_come_is_refused(servers: Servers) -> None:
    server, port = await servers.server()
    server.shards.expect(3)
    unnamed = await servers.client(port, None)
    opening = asyncio.create_task(unnamed.call(OpenShard(3), org_id=1, deadline=5))
    while not any(session.running for session in server.sessions):
        await asyncio.sleep(0.005)
    server.shards.expect_no_more(3)
    with pytest.raises(OpFailedError) as refused:
        await opening
    assert refused.value.error_code == 6
