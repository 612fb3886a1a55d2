"""Bulk answers over TLS: which way they go, and what happens when the TLS connection fails."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress

import pytest

from quafka_mesh_ops.bulk import broker_channel, link
from quafka_mesh_ops.bulk.carrier import BulkCarrier
from quafka_mesh_ops.bulk.chunks import ChunkKind, empty_chunk
from quafka_mesh_ops.client import MeshClient
from quafka_mesh_ops.errors import OpFailedError, OutcomeUnknownError
from quafka_mesh_ops.handlers import OpContext
from quafka_mesh_ops.ops.base import OpCode
from quafka_mesh_ops.ops.bulk import OpenBulk, OpenBulkResp
from quafka_mesh_ops.ops.records import FetchOpResp, FetchOps, FetchOpsResp
from quafka_mesh_ops.ops.topics import DescribeTopics
from quafka_mesh_ops.server import MeshServer
from quafka_telemetry.tracing import Tracer
from tests.support.tcp_proxy import TcpProxy, tcp_proxy
from tests.unit.mesh_ops.mesh import Broker, Mesh, fetch_of, mesh, new_identity, over_tls

MIB = 1 << 20
LARGE = 40 * MIB


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(link, "_FIRST_DELAY", 0.01)


async def fetch(m: Mesh, size: int, deadline: float = 20) -> None:
    """A fetch whose answer arrives whole."""
    answer = await m.client.call(fetch_of(size), org_id=1, deadline=deadline)
    assert bytes(answer.partitions[0].records[0]) == bytes(size)


@asynccontextmanager
async def proxied() -> AsyncGenerator[tuple[Mesh, TcpProxy]]:
    """A pair whose TLS connection passes through a proxy."""
    async with mesh() as m:
        await m.client.close()
        await m.server.close(0)
        allowed = {m.client_identity.node_id}
        m.server = MeshServer(
            m.server_identity, allowed, m.broker.handlers(), Tracer(), bulk=BulkCarrier.TLS
        )
        _, m.port = await m.server.start("127.0.0.1", 0)
        listener = m.server._bulk
        assert listener is not None
        assert listener._server is not None
        async with tcp_proxy(listener._server.sockets[0].getsockname()[1]) as proxy:
            listener._offered_port = proxy.port
            m.client = MeshClient(
                "127.0.0.1", m.port, m.client_identity, {m.server_identity.node_id}, Tracer(),
                bulk=BulkCarrier.TLS,
            )  # fmt: skip
            await m.client.start()
            try:
                assert await m.client.wait_connected(30)
                await over_tls(m)
                yield m, proxy
            finally:
                await m.client.close()
                await m.server.close(0)


def tls_bytes(m: Mesh) -> int:
    return m.client.counters().bulk_tls_bytes


# --- which way --------------------------------------------------------------------------------


async def test_bulk_answers_travel_over_tls_and_small_ones_over_quic() -> None:
    async with mesh(bulk=BulkCarrier.TLS) as m:
        await over_tls(m)
        await fetch(m, 10_000)
        assert tls_bytes(m) == 0
        for size in (20_000, MIB, LARGE):
            before = tls_bytes(m)
            await fetch(m, size)
            assert tls_bytes(m) - before > size
        (gateway,) = m.server.counters()
        assert gateway.bulk_tls_bytes == tls_bytes(m)
        assert gateway.transport is not None
        assert gateway.transport.bytes_sent < MIB


async def test_many_at_once_arrive_whole() -> None:
    async with mesh(bulk=BulkCarrier.TLS) as m:
        await over_tls(m)
        sizes = [20_000 * number for number in range(1, 40)] + [8 * MIB] * 3
        await asyncio.gather(*[fetch(m, size) for size in sizes])
        async with asyncio.timeout(20):
            while m.server.counters()[0].backlog_bytes:
                await asyncio.sleep(0.01)


@pytest.mark.parametrize("broker", [True, False])
async def test_with_one_side_only_bulk_answers_stay_on_quic(broker: bool) -> None:
    gateway_identity, broker_identity = new_identity(), new_identity()
    server = MeshServer(
        broker_identity,
        {gateway_identity.node_id},
        Broker().handlers(),
        Tracer(),
        bulk=BulkCarrier.TLS if broker else BulkCarrier.QUIC,
    )
    _, port = await server.start("127.0.0.1", 0)
    client = MeshClient(
        "127.0.0.1",
        port,
        gateway_identity,
        {broker_identity.node_id},
        Tracer(),
        bulk=BulkCarrier.QUIC if broker else BulkCarrier.TLS,
    )
    await client.start()
    try:
        assert await client.wait_connected(30)
        await asyncio.sleep(0.1)
        answer = await client.call(fetch_of(MIB), org_id=1, deadline=5)
        assert len(answer.partitions[0].records[0]) == MIB
        found = [client.counters(), *server.counters()]
        assert [(c.bulk_over_tls, c.bulk_tls_bytes, c.reconnects) for c in found] == [(0, 0, 0)] * 2
    finally:
        await client.close()
        await server.close(0)


async def test_a_broker_that_does_not_know_the_op_is_asked_once_per_connection() -> None:
    asked: list[OpenBulk] = []

    async def refuse(_context: OpContext, op: OpenBulk) -> OpenBulkResp:
        asked.append(op)
        raise OpFailedError(35)  # UNSUPPORTED_VERSION, as for an op that has no handler

    async with mesh({OpCode.OPEN_BULK: refuse}, bulk=BulkCarrier.TLS) as m:
        await fetch(m, MIB)
        await asyncio.sleep(0.1)
        assert len(asked) == 1
        assert tls_bytes(m) == 0


async def only_tcp_taken() -> tuple[asyncio.Server, int]:
    """A TCP server on a port that nobody uses for UDP, and the port."""
    while True:
        server = await asyncio.start_server(lambda _r, _w: None, "127.0.0.1", 0)
        number = server.sockets[0].getsockname()[1]
        with socket.socket(type=socket.SOCK_DGRAM) as udp, suppress(OSError):
            udp.bind(("127.0.0.1", number))
            return server, number
        server.close()


async def test_a_taken_tcp_port_is_an_error_and_port_0_takes_another() -> None:
    async with mesh() as m:
        taken, number = await only_tcp_taken()
        server = MeshServer(m.server_identity, (), {}, Tracer(), bulk=BulkCarrier.TLS)
        with pytest.raises(OSError, match="in use"):
            await server.start("127.0.0.1", number)
        again = MeshServer(m.server_identity, (), {}, Tracer())  # the UDP port is free again
        assert await again.start("127.0.0.1", number) == ("127.0.0.1", number)
        await again.close(0)
        taken.close()


# --- a TLS connection that fails --------------------------------------------------------------


async def test_answers_of_a_lost_connection_are_sent_again_over_quic() -> None:
    async with proxied() as (m, proxy):
        waiting = [asyncio.ensure_future(fetch(m, LARGE)) for _ in range(3)]
        while proxy.forwarded < LARGE // 2:
            await asyncio.sleep(0)
        proxy.cut()
        await asyncio.gather(*waiting)
        assert m.client.counters().reconnects == 0
        await over_tls(m)
        assert proxy.connections >= 2
        before = tls_bytes(m)
        await fetch(m, MIB)
        assert tls_bytes(m) - before > MIB


async def test_a_stalled_connection_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(broker_channel, "STALLED_SECONDS", 0.5)
    monkeypatch.setattr(broker_channel, "_TICK", 0.1)
    async with proxied() as (m, proxy):
        proxy.flowing.clear()
        await fetch(m, LARGE, deadline=8)
        await fetch(m, 20_000, deadline=8)


async def test_an_idle_connection_is_not_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(broker_channel, "STALLED_SECONDS", 0.3)
    monkeypatch.setattr(broker_channel, "_TICK", 0.05)
    async with proxied() as (m, proxy):
        for _ in range(3):
            await fetch(m, 20_000)
            await asyncio.sleep(0.5)
        assert proxy.connections == 1


async def test_changed_bytes_end_the_tls_connection_alone() -> None:
    async with proxied() as (m, proxy):
        proxy.flip = True
        await fetch(m, MIB)
        assert m.client.counters().reconnects == 0
        await over_tls(m)
        assert proxy.connections == 2


async def test_chunks_against_the_protocol_end_the_quic_connection(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with proxied() as (m, _):
        (session,) = m.server.sessions
        channel = session._ops.replies._tls
        assert channel is not None
        assert channel._pipe is not None
        channel._pipe.write(empty_chunk(ChunkKind.READY))
        channel._flush()
        async with asyncio.timeout(5):
            while not m.client.counters().reconnects:
                await asyncio.sleep(0.01)
        await over_tls(m)


async def test_acknowledgements_against_the_protocol_end_the_tls_connection() -> None:
    async with proxied() as (m, proxy):
        bulk = m.client._bulk
        assert bulk is not None
        assert bulk._receiver is not None
        bulk._receiver._pipe.write(b"\xff" * 8)
        bulk._receiver._flush()
        async with asyncio.timeout(5):
            while proxy.connections < 2:
                await asyncio.sleep(0.005)
        await fetch(m, MIB)
        await over_tls(m)
        assert proxy.connections == 2


# --- cancel, revoke, drain --------------------------------------------------------------------


async def test_a_cancelled_call_frees_the_way() -> None:
    async with proxied() as (m, proxy):
        call = asyncio.ensure_future(fetch(m, 100 * MIB))
        while proxy.forwarded < 4 * MIB:
            await asyncio.sleep(0)
        call.cancel()
        async with asyncio.timeout(5):
            while m.server.counters()[0].backlog_bytes:
                await asyncio.sleep(0.01)
        await fetch(m, MIB)
        assert proxy.forwarded < 60 * MIB
        assert proxy.connections == 1


@pytest.mark.parametrize("side", ["broker", "gateway"])
async def test_a_revocation_ends_the_tls_connection_at_once(side: str) -> None:
    async with proxied() as (m, proxy):
        call = asyncio.ensure_future(fetch(m, 100 * MIB))
        while proxy.forwarded < 4 * MIB:
            await asyncio.sleep(0)
        (session,) = m.server.sessions
        listener = m.server._bulk
        assert listener is not None
        if side == "broker":
            session._server.allowed.clear()  # type: ignore[attr-defined]
            m.server.enforce()
            assert not listener._channels
        else:
            m.client._connector._allowed.clear()  # type: ignore[attr-defined]
            m.client.enforce()
        with pytest.raises(OutcomeUnknownError):
            await call
        passed = 0
        while proxy.forwarded != passed:  # the proxy may hold some of it
            passed = proxy.forwarded
            await asyncio.sleep(0.1)
        assert passed < 100 * MIB
        assert not m.client.counters().bulk_over_tls
        assert not listener._channels
        assert proxy.connections == 1


async def test_a_draining_broker_delivers_what_it_has_answered() -> None:
    async with proxied() as (m, proxy):
        calls = [asyncio.ensure_future(fetch(m, LARGE)) for _ in range(3)]
        while proxy.forwarded < MIB:
            await asyncio.sleep(0)
        await m.server.close(10)
        await asyncio.gather(*calls)


async def test_a_gateway_that_does_not_read_holds_up_its_own_fetches_only() -> None:
    """Above the backlog, further fetches are not read; small ops go on."""
    async with proxied() as (m, proxy):
        handled: list[int] = []

        async def count(_context: OpContext, op: FetchOps) -> FetchOpsResp:
            handled.append(1)
            return FetchOpsResp([FetchOpResp([bytes(p.max_bytes)], 1) for p in op.partitions])

        (session,) = m.server.sessions
        assert session._begin_shard(0)
        session._open[0] = {**session._open[0], OpCode.FETCH: (FetchOps, count)}
        proxy.flowing.clear()
        calls = [asyncio.ensure_future(fetch(m, 10 * MIB)) for _ in range(20)]
        await asyncio.sleep(0.3)
        assert 3 <= len(handled) <= 5
        assert session.counters().backlog_bytes < 60 * MIB
        await m.client.call(DescribeTopics(), org_id=1, deadline=2)
        proxy.flowing.set()
        await asyncio.gather(*calls)
        assert len(handled) == 20


@asynccontextmanager
async def automatic(host: str, port: int, datagram_size: int | None) -> AsyncGenerator[MeshClient]:
    """A client of a server at `host`, both with `mesh.bulk = auto`."""
    ours, theirs = new_identity(), new_identity()
    handlers, tracer = Broker().handlers(), Tracer()
    server = MeshServer(theirs, {ours.node_id}, handlers, tracer, bulk=BulkCarrier.AUTO)
    _, port = await server.start(host, port)
    client = MeshClient(
        "127.0.0.1", port, ours, {theirs.node_id}, tracer,
        datagram_size=datagram_size, bulk=BulkCarrier.AUTO,
    )  # fmt: skip
    await client.start()
    try:
        assert await client.wait_connected(30)
        await asyncio.sleep(1)
        yield client
    finally:
        await client.close()
        await server.close(0)


@pytest.mark.parametrize(
    ("host", "datagram_size", "over_tls"),
    [("0.0.0.0", 1_452, True), ("0.0.0.0", None, False), ("127.0.0.1", 1_452, False)],
)
async def test_tls_is_chosen_between_hosts(
    host: str, datagram_size: int | None, over_tls: bool
) -> None:
    """None: the route within a host takes large datagrams."""
    async with automatic(host, 0, datagram_size) as client:
        answer = await client.call(fetch_of(MIB), org_id=1, deadline=5)
        assert bytes(answer.partitions[0].records[0]) == bytes(MIB)
        figures = client.counters()
        assert (figures.bulk_over_tls, bool(figures.bulk_tls_bytes)) == (over_tls, over_tls)


async def test_a_port_that_another_program_has_is_done_without(
    caplog: pytest.LogCaptureFixture,
) -> None:
    other = await asyncio.start_server(lambda _reader, _writer: None, "0.0.0.0", 9_192)
    async with other, automatic("0.0.0.0", 9_192, 1_452) as client:
        await client.call(fetch_of(MIB), org_id=1, deadline=5)
        assert client.counters().bulk_over_tls is False
    assert "no TLS for bulk answers: cannot listen on TCP port 9192" in caplog.text
