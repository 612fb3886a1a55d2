"""Limits of the connections at a broker: counted by node, and reported to those refused."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

import pytest

from quafka_mesh_ops.client import MeshClient
from quafka_mesh_ops.counters import limit_families, mesh_families
from quafka_mesh_ops.errors import PeerUnavailableError
from quafka_mesh_ops.identity import Identity
from quafka_mesh_ops.ops.topics import DescribeTopics
from quafka_mesh_ops.peer_table import peer_table
from quafka_mesh_ops.server import MeshServer
from quafka_mesh_ops.transport.connection_limits import TOO_MANY, NodeConnectionLimits
from quafka_telemetry.tracing import Tracer
from tests.unit.mesh_ops.mesh import Broker, new_identity


def test_each_node_has_a_limit_of_its_own() -> None:
    limits = NodeConnectionLimits({"a", "b"}, most=8, most_of_node=2)
    assert [limits.admit("a"), limits.admit("a")] == [None, None]
    refusal = limits.admit("a")
    assert refusal == f"{TOO_MANY}: this node has 2, mesh.max.connections.per.node"
    assert limits.admit("b") is None
    limits.release("a")
    assert limits.admit("a") is None
    assert limits.used == 3
    assert limits.refused == {"node": 1, "total": 0}


def test_the_last_places_are_for_nodes_that_have_none() -> None:
    limits = NodeConnectionLimits({"hog", "b", "c"}, most=5, most_of_node=5)
    assert [limits.admit("hog") for _ in range(3)] == [None] * 3
    refusal = limits.admit("hog")
    assert refusal == f"{TOO_MANY}: the broker accepts 5, mesh.max.connections"
    assert [limits.admit("b"), limits.admit("c")] == [None, None]
    assert limits.admit("b") == refusal
    limits.release("hog")
    assert limits.admit("b") is None
    limits.release("c")
    assert limits.admit("b") == refusal  # the place of c
    assert limits.admit("c") is None
    assert limits.used == 5


def test_more_nodes_than_places_share_what_there_is() -> None:
    allowed = {str(number) for number in range(6)}
    limits = NodeConnectionLimits(allowed, most=4, most_of_node=4)
    assert [limits.admit(str(number)) for number in range(4)] == [None] * 4
    assert limits.admit("4") is not None
    limits.release("0")
    assert limits.admit("1") is not None
    assert limits.admit("4") is None


class Site:
    """A broker with limits, and the clients of several nodes."""

    def __init__(self, stack: AsyncExitStack) -> None:
        self._stack = stack
        self._ours = new_identity()
        self.nodes = [new_identity() for _ in range(3)]
        self.port = 0
        self.server: MeshServer

    async def begin(self, most: int, most_of_node: int) -> None:
        allowed = {node.node_id for node in self.nodes}
        self.server = MeshServer(
            self._ours, allowed, Broker().handlers(), Tracer(),
            limits=NodeConnectionLimits(allowed, most, most_of_node),
        )  # fmt: skip
        _, self.port = await self.server.start("127.0.0.1", 0)
        self._stack.push_async_callback(self.server.close, 0)

    async def client(self, node: Identity) -> MeshClient:
        client = MeshClient("127.0.0.1", self.port, node, {self._ours.node_id}, Tracer())
        await client.start()
        self._stack.push_async_callback(client.close)
        return client

    async def connected(self, node: Identity) -> MeshClient:
        client = await self.client(node)
        assert await client.wait_connected(5)
        return client


@pytest.fixture
async def site() -> AsyncIterator[Site]:
    async with AsyncExitStack() as stack:
        yield Site(stack)


async def ask(client: MeshClient, seconds: float = 10) -> None:
    await client.call(DescribeTopics(["t"]), org_id=1, deadline=seconds)


def now() -> float:
    return asyncio.get_running_loop().time()


async def test_a_refused_client_fails_its_ops_at_once_and_connects_once_there_is_room(
    site: Site, caplog: pytest.LogCaptureFixture
) -> None:
    await site.begin(8, 2)
    node = site.nodes[0]
    first, _ = await site.connected(node), await site.connected(node)
    refused = await site.client(node)
    began = now()
    with pytest.raises(PeerUnavailableError, match=r"mesh\.max\.connections\.per\.node"):
        await ask(refused)
    with pytest.raises(PeerUnavailableError, match="this node has 2"):
        await ask(refused)
    assert now() - began < 1
    assert not refused.connected
    assert len(site.server.sessions) == 2
    with caplog.at_level(logging.WARNING):
        await asyncio.sleep(120)
    refusals = [each for each in caplog.messages if "refused node" in each]
    assert 1 <= len(refusals) <= 3  # one a minute
    assert node.node_id[:16] in refusals[0]
    # An attempt costs a handshake: after the first ones they are many seconds apart.
    assert 8 <= site.server.limits.refused["node"] < 40
    await first.close()
    assert await refused.wait_connected(20)
    await ask(refused)
    assert refused.refusal == ""


async def test_a_node_that_takes_all_it_can_keeps_no_other_out(site: Site) -> None:
    await site.begin(5, 5)
    hog, second, third = site.nodes
    for _ in range(3):
        await site.connected(hog)
    for _ in range(3):
        refused = await site.client(hog)
        assert not await refused.wait_connected(1)
    for newcomer in (second, third):
        await ask(await site.connected(newcomer))
    assert site.server.limits.used == 5


async def test_a_refused_client_goes_to_where_the_broker_is_now(site: Site) -> None:
    await site.begin(1, 1)
    await site.connected(site.nodes[0])
    refused = await site.client(site.nodes[1])
    with pytest.raises(PeerUnavailableError):
        await ask(refused)
    full, full_port = site.server, site.port
    await site.begin(1, 1)
    assert site.port != full_port
    refused.move("127.0.0.1", site.port)
    await ask(refused)
    assert full.limits.used == 1


async def test_operators_see_the_limits_and_who_is_refused(site: Site) -> None:
    await site.begin(8, 1)
    await site.connected(site.nodes[0])
    refused = await site.client(site.nodes[0])
    with pytest.raises(PeerUnavailableError):
        await ask(refused)
    shown = {
        (family.name, *labels): value
        for family in limit_families(site.server.limits)
        for labels, value in family.samples
    }
    assert shown == {
        ("quafka_mesh_connections",): 1,
        ("quafka_mesh_connections_limit",): 8,
        ("quafka_mesh_refused_connections", "node"): 1,
        ("quafka_mesh_refused_connections", "total"): 0,
    }
    counters = refused.counters()
    assert counters.refusal.startswith(TOO_MANY)
    (row,) = peer_table([counters]).rows
    assert any(cell.text == f"refused: {counters.refusal}" for cell in row)
    assert list(mesh_families(lambda: [counters]))  # a reason is no figure
