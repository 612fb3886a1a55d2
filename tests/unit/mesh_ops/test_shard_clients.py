"""Shards of several brokers over one connection to each, also to and from earlier versions."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

import pytest

from quafka_loop.eager_task import EagerTask
from quafka_mesh_ops import gateway_session
from quafka_mesh_ops.client import MeshClient
from quafka_mesh_ops.errors import OpFailedError, OutcomeUnknownError, PeerUnavailableError
from quafka_mesh_ops.frames import Tag, encode_number, frame_header
from quafka_mesh_ops.gateway_session import GatewaySession
from quafka_mesh_ops.handlers import Handler, OpContext
from quafka_mesh_ops.ops.base import OpCode
from quafka_mesh_ops.ops.cluster import ClusterMap, ClusterMapResp, OpenShard, OpenShardResp
from quafka_mesh_ops.ops.records import ProduceOp, ProduceOpResp, ProduceOps, ProduceOpsResp
from quafka_mesh_ops.ops.topics import DescribeTopics, DescribeTopicsResp
from quafka_mesh_ops.scheduler import BOUNDS
from quafka_mesh_ops.served_shards import NEWS_SECONDS
from quafka_mesh_ops.server import MeshServer
from quafka_mesh_ops.shard_client import ClientPool, ShardClient
from quafka_mesh_ops.transport.connection_limits import NodeConnectionLimits
from quafka_telemetry import semconv
from quafka_telemetry.tracing import TraceContext, Tracer
from tests.support.recorded_spans import RecordedSpans
from tests.unit.mesh_ops.mesh import new_identity

OURS = new_identity()
SHARDS = 4
_LONG = 300 << 10


class Shard:
    """A shard that answers with its name and keeps what is produced; the topic "park" waits."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.parked, self.release = asyncio.Event(), asyncio.Event()
        self.produced: list[str] = []

    async def describe(self, _context: OpContext, op: DescribeTopics) -> DescribeTopicsResp:
        if op.topics == ["park"]:
            self.parked.set()
            await self.release.wait()
        return DescribeTopicsResp(self.name, [])

    async def produce(self, _context: OpContext, op: ProduceOps) -> ProduceOpsResp:
        self.produced += [part.topic for part in op.partitions]
        return ProduceOpsResp([ProduceOpResp(len(part.records)) for part in op.partitions])

    def handlers(self) -> dict[OpCode, Handler]:
        return dict((DescribeTopics.handled_by(self.describe), ProduceOps.handled_by(self.produce)))


async def the_map(_context: OpContext, _op: ClusterMap) -> ClusterMapResp:
    return ClusterMapResp("the map", 1, [], [])


class Site:
    """Brokers, and a process with a pool of connections to them."""

    def __init__(self, stack: AsyncExitStack) -> None:
        self._stack = stack
        self._theirs = new_identity()
        self.made: list[tuple[int, int | None]] = []
        self.pool = ClientPool(self._make, Tracer())
        stack.push_async_callback(self.pool.close)

    def _make(self, host: str, port: int, shard: int | None) -> MeshClient:
        self.made.append((port, shard))
        return MeshClient(host, port, OURS, {self._theirs.node_id}, Tracer(), shard=shard)

    async def broker(self, *shards: int, most: int = 64) -> tuple[MeshServer, int, list[Shard]]:
        allowed = {OURS.node_id}
        server = MeshServer(
            self._theirs, allowed, {}, Tracer(),
            everywhere=dict((ClusterMap.handled_by(the_map),)),
            limits=NodeConnectionLimits(allowed, most),
        )  # fmt: skip
        _, port = await server.start("127.0.0.1", 0)
        self._stack.push_async_callback(server.close, 0)
        made = [Shard(f"{number} at {port}") for number in shards]
        for number, shard in zip(shards, made, strict=True):
            server.shards.add(number, shard.handlers())
        return server, port, made

    async def client(self, port: int, shard: int | None) -> ShardClient:
        client = ShardClient(self.pool, "127.0.0.1" if port else "", port, shard)
        await client.start()
        self._stack.push_async_callback(client.close)
        return client


@pytest.fixture
async def site() -> AsyncIterator[Site]:
    async with AsyncExitStack() as stack:
        yield Site(stack)


def bound_ops(monkeypatch: pytest.MonkeyPatch, ops: int) -> None:
    """Let a connection for one shard have so many unanswered ops of each kind."""
    bounds = {kind: each._replace(ops=ops) for kind, each in BOUNDS.items()}
    monkeypatch.setattr("quafka_mesh_ops.client.BOUNDS", bounds)


async def ask(client: ShardClient | MeshClient, topic: str = "t", seconds: float = 5) -> str:
    answer = await client.call(DescribeTopics([topic]), org_id=1, deadline=seconds)
    return answer.cluster_id


async def produce(client: ShardClient, topic: str, size: int = 10, lane: int = 0) -> int:
    op = ProduceOps([ProduceOp(topic, 0, bytes(size))])
    answer = await client.call(op, org_id=1, deadline=9, lane=lane)
    return answer.partitions[0].base_offset


async def test_all_shards_of_a_broker_share_a_connection(site: Site) -> None:
    server, port, _ = await site.broker(*range(SHARDS), most=1)
    clients = [await site.client(port, number) for number in range(SHARDS)]
    names = await asyncio.gather(*(ask(client) for client in clients for _ in range(3)))
    assert names == [f"{number} at {port}" for number in range(SHARDS) for _ in range(3)]
    whole = await site.client(port, None)
    answer = await whole.call(ClusterMap(), org_id=1, deadline=5)
    assert answer.cluster_id == "the map"
    assert len(server.sessions) == 1
    assert site.made == [(port, None)]
    assert [each.connected for each in site.pool.counters()] == [True]
    assert all(client.peer == whole.peer != "" for client in clients)


async def test_long_and_short_ops_of_a_lane_reach_their_own_shards_in_order(site: Site) -> None:
    _, port, shards = await site.broker(*range(SHARDS))
    clients = [await site.client(port, number) for number in range(SHARDS)]
    sizes = [10, _LONG, 100, 20 << 10, 7]
    calls = [
        asyncio.create_task(produce(client, f"{number}:{place}", size))
        for place, size in enumerate(sizes)
        for number, client in enumerate(clients)
    ]
    assert await asyncio.gather(*calls) == [size for size in sizes for _ in clients]
    for number, shard in enumerate(shards):
        assert shard.produced == [f"{number}:{place}" for place in range(len(sizes))]


async def test_ops_that_are_held_leave_in_their_order(site: Site) -> None:
    _, port, (shard,) = await site.broker(2)
    client = await site.client(0, 2)
    loop = asyncio.get_running_loop()
    calls = [asyncio.create_task(produce(client, str(number))) for number in range(3)]
    await asyncio.sleep(0.1)
    client.move("127.0.0.1", port)
    while not client.connected:
        await asyncio.sleep(0)
    eager = [EagerTask(produce(client, str(number)), loop) for number in range(3, 6)]
    await asyncio.gather(*calls)
    for task in eager:
        await task
    assert shard.produced == [str(number) for number in range(6)]


async def test_a_shard_that_leaves_answers_what_it_has_and_disturbs_no_other(site: Site) -> None:
    old, old_port, (stays, leaves) = await site.broker(0, 1)
    new, new_port, _ = await site.broker()
    client, other = await site.client(old_port, 1), await site.client(old_port, 0)
    parked = asyncio.create_task(ask(client, "park"))
    neighbour = asyncio.create_task(ask(other, "park"))
    await leaves.parked.wait()
    await stays.parked.wait()
    drained = asyncio.create_task(old.drain_shard(1, 5))
    while client.connected:
        await asyncio.sleep(0.005)
    assert client.said_goodbye
    assert client.seconds_disconnected < 0.1
    later = asyncio.create_task(ask(client))  # is held
    leaves.release.set()
    assert await parked == leaves.name
    await drained
    new.shards.add(1, Shard("there").handlers())
    client.move("127.0.0.1", new_port)
    assert await later == "there"
    assert not neighbour.done()
    stays.release.set()
    assert await neighbour == stays.name
    assert other.connected
    assert len(old.sessions) == 1


async def test_a_shard_that_cannot_answer_in_time_leaves_its_callers_in_doubt(site: Site) -> None:
    server, port, (stuck, other) = await site.broker(1, 2)
    client, neighbour = await site.client(port, 1), await site.client(port, 2)
    parked = asyncio.create_task(ask(client, "park", 60))
    await stuck.parked.wait()
    await server.drain_shard(1, 0.5)
    with pytest.raises(OpFailedError) as failed:
        await parked
    assert failed.value.error_code == 7  # REQUEST_TIMED_OUT: it may have run
    assert await ask(neighbour) == other.name
    server.shards.add(1, Shard("again").handlers())
    assert await ask(client) == "again"


async def test_an_op_for_a_shard_that_has_left_is_refused(site: Site) -> None:
    server, port, _ = await site.broker(1, 2)
    client = await site.client(port, 1)
    await ask(client)
    shared = site.pool.acquire("127.0.0.1", port)
    await server.drain_shard(1, 0)
    with pytest.raises(OpFailedError) as failed:
        await shared.call(DescribeTopics([]), org_id=1, deadline=5, shard=1)
    assert failed.value.error_code == 6
    with pytest.raises(OpFailedError) as failed:  # it was never opened
        await shared.call(DescribeTopics([]), org_id=1, deadline=5, shard=2)
    assert failed.value.error_code == 6
    site.pool.release(shared)


async def test_a_move_without_a_goodbye_fails_what_is_under_way(site: Site) -> None:
    _, old_port, (stuck, stays) = await site.broker(1, 2)
    _, new_port, (there,) = await site.broker(1)
    client, other = await site.client(old_port, 1), await site.client(old_port, 2)
    parked = asyncio.create_task(ask(client, "park"))
    await stuck.parked.wait()
    client.move("127.0.0.1", new_port)
    with pytest.raises(OutcomeUnknownError):
        await parked
    assert await ask(client) == there.name
    assert await ask(other) == stays.name


async def test_a_lost_connection_fails_what_is_sent_and_keeps_what_is_not(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    bound_ops(monkeypatch, 1)
    server, port, (first, second) = await site.broker(1, 2)
    client, other = await site.client(port, 1), await site.client(port, 2)
    await ask(client)
    await ask(other)
    parked = [asyncio.create_task(ask(each, "park")) for each in (client, other)]
    await first.parked.wait()
    await second.parked.wait()
    waiting = asyncio.create_task(ask(client))  # for the bound on the number of ops
    await asyncio.sleep(0.05)
    (session,) = server.sessions
    session.connection.abort("lost")
    for task in parked:
        with pytest.raises(OutcomeUnknownError):
            await task
    assert await waiting == first.name
    assert await ask(other) == second.name


async def test_each_open_shard_may_have_as_many_ops_as_a_connection_of_its_own(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gateway_session, "MAX_IN_FLIGHT", 3)
    bound_ops(monkeypatch, 2)
    _, port, shards = await site.broker(*range(SHARDS))
    clients = [await site.client(port, number) for number in range(SHARDS)]
    for client in clients:
        assert await client.wait_connected(5)
    parked = [asyncio.create_task(ask(client, "park")) for client in clients for _ in range(2)]
    await asyncio.sleep(0.1)
    (counters,) = site.pool.counters()
    assert counters.ops == 2 * SHARDS
    for shard in shards:
        shard.release.set()
    assert await asyncio.gather(*parked) == [shard.name for shard in shards for _ in range(2)]


async def test_a_shard_that_comes_in_time_is_no_warning(
    site: Site, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "quafka.mesh.client")
    server, port, _ = await site.broker(0)
    late, never = await site.client(port, 1), await site.client(port, 2)
    assert not await late.wait_connected(1)
    server.shards.add(1, Shard("late").handlers())
    assert await late.wait_connected(1)
    assert not await never.wait_connected(6)
    lines = [(each.levelname, each.message.split(" at ")[0]) for each in caplog.records]
    assert [each for each in lines if each[1].startswith("shard")] == [
        ("INFO", "shard 1"),
        ("INFO", "shard 2"),
        ("WARNING", "shard 2"),
    ]


async def test_a_shard_that_comes_later_is_opened_then(site: Site) -> None:
    server, port, (here,) = await site.broker(0)
    client, other = await site.client(port, 1), await site.client(port, 0)
    asking = asyncio.create_task(ask(client))
    assert not await client.wait_connected(0.5)
    assert await ask(other) == here.name
    server.shards.add(1, Shard("late").handlers())
    assert await asking == "late"
    assert len(server.sessions) == 1


async def test_a_client_without_an_address_fails_its_ops_at_their_deadlines(site: Site) -> None:
    client = await site.client(0, 1)
    with pytest.raises(PeerUnavailableError):
        await ask(client, seconds=0.5)
    held = asyncio.create_task(ask(client))
    await asyncio.sleep(0.01)
    await client.close()
    with pytest.raises(PeerUnavailableError):
        await held
    with pytest.raises(PeerUnavailableError):
        await ask(client)


async def test_a_shard_without_a_place_is_used_until_it_leaves(site: Site) -> None:
    old, old_port, (here,) = await site.broker(1)
    _, new_port, (there,) = await site.broker(1)
    client = await site.client(old_port, 1)
    await ask(client)
    client.move("", 0)
    assert await ask(client) == here.name
    await old.drain_shard(1, 1)
    held = asyncio.create_task(ask(client))
    await asyncio.sleep(1)
    assert not held.done()
    assert not old.sessions  # nobody uses the connection
    assert client.counters().connected is False
    client.move("127.0.0.1", new_port)
    assert await held == there.name


async def test_a_connection_that_nobody_uses_is_closed(site: Site) -> None:
    old, old_port, _ = await site.broker(1, 2)
    _, new_port, _ = await site.broker(1, 2)
    clients = [await site.client(old_port, number) for number in (1, 2)]
    for client in clients:
        await ask(client)
        client.move("127.0.0.1", new_port)
        await ask(client)
    await asyncio.sleep(1)
    assert not old.sessions
    assert len(site.pool.counters()) == 1


async def test_a_full_broker_fails_the_ops_of_all_its_shards_at_once(site: Site) -> None:
    server, port, _ = await site.broker(1, 2, most=1)
    alone = site.pool.acquire_alone("127.0.0.1", port, 1)
    assert await alone.wait_connected(5)
    clients = [await site.client(port, number) for number in (1, 2)]
    asked = [asyncio.create_task(ask(client)) for client in clients]
    for task in asked:
        with pytest.raises(PeerUnavailableError, match="too many connections"):
            await task
    assert "too many connections" in clients[0].counters().refusal
    site.pool.release(alone)
    assert await clients[0].wait_connected(20)
    assert await ask(clients[1]) == f"2 at {port}"
    assert len(server.sessions) == 1


# --- earlier versions -----------------------------------------------------------------------


@pytest.fixture
def earlier_brokers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Brokers know of no second shard on a connection."""
    opened = GatewaySession._open_shard

    async def one(session: GatewaySession, context: OpContext, op: OpenShard) -> OpenShardResp:
        return await opened(session, context, OpenShard(op.shard))

    monkeypatch.setattr(GatewaySession, "_open_shard", one)


@pytest.mark.usefixtures("earlier_brokers")
async def test_an_earlier_broker_gets_a_connection_for_each_shard(site: Site) -> None:
    server, port, shards = await site.broker(1, 2, 3)
    _, new_port, _ = await site.broker(1)
    clients = [await site.client(port, number) for number in (1, 2, 3)]
    for client, shard in zip(clients, shards, strict=True):
        assert await ask(client) == shard.name
        assert await produce(client, "t", _LONG) == _LONG
    await asyncio.sleep(1)
    assert sorted(session.shard or 0 for session in server.sessions) == [1, 2, 3]
    moves, stays, _ = clients
    drained = asyncio.create_task(server.drain_shard(1, 5))
    while moves.connected:
        await asyncio.sleep(0.005)
    assert moves.said_goodbye
    await drained
    held = asyncio.create_task(ask(moves))
    moves.move("127.0.0.1", new_port)
    assert await held == f"1 at {new_port}"
    assert await ask(stays) == shards[1].name


async def test_an_earlier_gateway_has_a_connection_for_each_shard(site: Site) -> None:
    server, port, shards = await site.broker(1, 2)
    alone = [site.pool.acquire_alone("127.0.0.1", port, number) for number in (1, 2)]
    assert [await ask(client) for client in alone] == [shard.name for shard in shards]
    shared = await site.client(port, 2)
    assert await ask(shared) == shards[1].name
    await server.drain_shard(1, 1)
    assert not alone[0].connected
    assert [await ask(client) for client in (alone[1], shared)] == [shards[1].name] * 2
    for client in alone:
        site.pool.release(client)


# --- peers that violate the protocol --------------------------------------------------------


async def write(client: MeshClient, frame: bytes) -> str:
    """Write a frame on the control stream; returns why the connection ended."""
    session = await client.next_session()
    session.connection.write(0, [frame])
    return await asyncio.wait_for(session.over, 5)


async def test_a_connection_for_one_shard_selects_no_other(site: Site) -> None:
    _, port, _ = await site.broker(1, 2)
    alone = site.pool.acquire_alone("127.0.0.1", port, 1)
    assert "SHARD frame" in await write(alone, encode_number(Tag.SHARD, 2))
    shared = site.pool.acquire("127.0.0.1", port)  # has opened none
    assert "SHARD frame" in await write(shared, encode_number(Tag.SHARD, 2))


async def test_a_frame_without_a_number_ends_the_connection(site: Site) -> None:
    _, port, _ = await site.broker(1)
    await ask(await site.client(port, 1))
    shared = site.pool.acquire("127.0.0.1", port)
    assert "not an integer" in await write(shared, frame_header(Tag.SHARD, 1) + b"\xc0")


async def test_a_number_that_is_no_shard_only_fails_the_ops_for_it(site: Site) -> None:
    _, port, (here,) = await site.broker(1)
    client = await site.client(port, 1)
    await ask(client)
    shared = site.pool.acquire("127.0.0.1", port)
    for number in (7, -1, (1 << 63) - 1):
        with pytest.raises(OpFailedError) as failed:
            await shared.call(DescribeTopics([]), org_id=1, deadline=5, shard=number)
        assert failed.value.error_code == 6
    assert await ask(client) == here.name


async def test_the_wait_for_a_takeover_is_a_span_with_a_link_to_it(site: Site) -> None:
    """A connection that comes much later has not waited for the takeover."""
    recorded = RecordedSpans()
    site.pool.tracer = recorded.tracer
    op, trace, takeover = DescribeTopics(["t"]), TraceContext(1, 2), TraceContext(3, 4)
    server, port, _ = await site.broker()
    server.shards.expect(1)
    client = await site.client(port, 1)
    asking = asyncio.create_task(client.call(op, org_id=1, deadline=5, trace=trace))
    await asyncio.sleep(1)
    server.shards.add(1, Shard("here").handlers(), takeover)
    assert (await asking).cluster_id == "here"
    await asyncio.sleep(NEWS_SECONDS + 1)
    late = await site.client(0, 1)
    asking = asyncio.create_task(late.call(op, org_id=1, deadline=5, trace=trace))
    await asyncio.sleep(1)
    late.move("127.0.0.1", port)
    await asking
    first, second = recorded.close()
    about = {
        semconv.SHARD: 1,
        semconv.PEER_ADDRESS: "127.0.0.1",
        semconv.PEER_PORT: port,
    }
    for span, links in ((first, [takeover]), (second, [])):
        assert (span.name, span.parent, span.attributes) == (semconv.QUEUED, trace, about)
        assert span.links == links
        assert span.ended - span.start >= 1_000_000_000


async def test_a_wait_that_is_in_vain_is_a_failed_span(site: Site) -> None:
    recorded = RecordedSpans()
    site.pool.tracer = recorded.tracer
    client = await site.client(0, 1)
    with pytest.raises(PeerUnavailableError):
        await client.call(DescribeTopics(), org_id=1, deadline=2, trace=TraceContext(1, 2))
    (span,) = recorded.close()
    assert (span.name, span.error) == (semconv.QUEUED, "PeerUnavailableError")
    assert span.attributes == {semconv.SHARD: 1, semconv.ERROR_TYPE: "PeerUnavailableError"}
