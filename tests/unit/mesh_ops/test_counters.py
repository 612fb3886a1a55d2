"""The counters of both ends, over paths with and without loss."""

from __future__ import annotations

import asyncio
from typing import cast

import pytest

from quafka_mesh_ops.client import MeshClient
from quafka_mesh_ops.counters import PeerCounters
from quafka_mesh_ops.ops.topics import DescribeTopics
from quafka_mesh_ops.scheduler import BOUNDS
from quafka_mesh_ops.transport.aioquic_adapter.counters import TransportCounters
from quafka_mesh_ops.transport.aioquic_adapter.quic import MeshQuic
from quafka_telemetry.tracing import Tracer
from tests.support.virtual.loop import VirtualLoop
from tests.support.virtual.network import SlowAir
from tests.unit.mesh_ops.mesh import Mesh, fetch_of, mesh, new_identity, produce_of

MB = 1 << 20


def transport(counters: PeerCounters) -> TransportCounters:
    assert counters.transport is not None
    return counters.transport


def of_the_client(m: Mesh) -> PeerCounters:
    (counters,) = m.server.counters()
    return counters


@pytest.mark.parametrize("batched", [True, False], ids=["batched", "stock"])
async def test_both_ends_count_the_same_bytes(batched: bool) -> None:
    cast("VirtualLoop", asyncio.get_running_loop()).net.air = SlowAir(0.001)
    async with mesh(batched=batched, datagram_size=1452) as m:
        await m.client.call(fetch_of(4 * MB), org_id=1, deadline=9)
        await m.client.call(produce_of(bytes(2 * MB)), org_id=1, deadline=9, lane=0)
        await asyncio.sleep(0.1)  # for the last acknowledgements
        here, there = m.client.counters(), of_the_client(m)
        assert (here.peer, there.peer) == (m.server_identity.node_id, m.client_identity.node_id)
        assert here.connected
        assert there.connected
        for counters in (transport(here), transport(there)):
            assert 0 < counters.rtt_min_us <= counters.rtt_us < 1_000_000
            assert counters.datagram_bytes == 1452
            assert counters.streams < 32
            assert counters.congestion_window_bytes > 0
        assert 4 * MB < transport(here).bytes_received < 5 * MB
        assert 2 * MB < transport(here).bytes_sent < 3 * MB
        # Sent packets have arrived, except for those that a full socket dropped.
        for sender, receiver in ((here, there), (there, here)):
            sent, lost = transport(sender).bytes_sent, transport(sender).packets_lost
            assert sent - 1452 * (lost + 8) <= transport(receiver).bytes_received <= sent
        assert transport(there).packets_sent > 4 * MB / 1452
        assert (here.ops, here.credit_used_bytes, there.credit_used_bytes) == (0, 0, 0)
        assert there.backlog_bytes == 0


async def test_ops_and_credit_in_use_are_seen_on_both_sides() -> None:
    async with mesh() as m:
        parked = [
            asyncio.create_task(
                m.client.call(DescribeTopics(["park"]), org_id=1, deadline=9, lane=0)
            )
            for _ in range(3)
        ]
        while len(m.server.counters()) != 1 or of_the_client(m).ops != 3:
            await asyncio.sleep(0.01)
        here, there = m.client.counters(), of_the_client(m)
        assert here.ops == 3
        whole = sum(each.size for each in BOUNDS.values())
        assert 0 < here.credit_used_bytes < here.credit_bytes == whole
        assert 0 < there.credit_used_bytes < there.credit_bytes
        m.broker.release.set()
        await asyncio.gather(*parked)
        assert m.client.counters().ops == 0


async def test_reconnects_are_counted_and_the_connection_begins_anew() -> None:
    async with mesh() as m:
        await m.client.call(fetch_of(MB), org_id=1, deadline=9)
        before = m.client.counters()
        assert before.reconnects == 0
        (session,) = m.server.sessions
        session.connection.close("again")
        async with asyncio.timeout(5):
            while m.client.counters().reconnects == 0:
                await asyncio.sleep(0.01)
        after = m.client.counters()
        assert after.reconnects == 1
        assert transport(after).bytes_received < transport(before).bytes_received
        assert of_the_client(m).reconnects == 1


async def test_without_a_connection_there_is_nothing_to_count() -> None:
    client = MeshClient("::1", 9, new_identity(), set(), Tracer())
    counters = client.counters()
    assert (counters.peer, counters.address, counters.connected) == ("", "[::1]:9", False)
    assert (counters.reconnects, counters.ops, counters.transport) == (0, 0, None)


@pytest.mark.parametrize("batched", [True, False], ids=["batched", "stock"])
async def test_lost_packets_are_counted(batched: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    async with mesh(batched=batched, datagram_size=1452) as m:
        (session,) = m.server.sessions
        quic: MeshQuic = session.connection.quic
        build, dropped = type(quic).datagrams_to_send, 0

        def lossy(self: MeshQuic, now: float) -> list[tuple[bytes, object]]:
            nonlocal dropped
            datagrams = build(self, now)
            if self is not quic:
                return list(datagrams)
            kept = [d for n, d in enumerate(datagrams) if n % 20 != 7]
            dropped += len(datagrams) - len(kept)
            return list(kept)

        monkeypatch.setattr(type(quic), "datagrams_to_send", lossy)
        await m.client.call(fetch_of(2 * MB), org_id=1, deadline=20)
        assert dropped > 20
        counted = transport(of_the_client(m))
        assert 0.7 * dropped <= counted.packets_lost <= counted.packets_retransmitted
        assert counted.packets_retransmitted < 3 * dropped + 50
        assert transport(m.client.counters()).packets_lost == 0
