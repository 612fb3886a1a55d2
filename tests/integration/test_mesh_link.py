"""The mesh alone over a link that changes: no op fails, whatever the size of datagrams."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from quafka_mesh_ops.errors import OutcomeUnknownError
from quafka_mesh_ops.ops.topics import DescribeTopics
from quafka_mesh_ops.server import MeshServer
from quafka_telemetry.tracing import Tracer
from tests.support.link import Link
from tests.unit.mesh_ops.mesh import Mesh, fetch_of, mesh, produce_of

pytestmark = pytest.mark.long

PARK = DescribeTopics(["park"])
SIZES = [(9_000, 8_900), (1_500, 1_452), (0, 60_000), (1_300, 1_200)]
"""The link's MTU, and the datagram size that suits it."""
PATIENCE = 20.0
"""Seconds that only a machine with too much to do takes."""


def sizes(m: Mesh) -> set[int]:
    """What both ends use now."""
    counters = [m.client.counters(), *m.server.counters()]
    return {c.transport.datagram_bytes for c in counters if c.transport is not None}


@asynccontextmanager
async def traffic(m: Mesh) -> AsyncGenerator[list[int]]:
    """Ops of all kinds, all the time; each must be answered. Yields how many were."""
    done = [0]

    async def produce(lane: int) -> None:
        while True:
            answer = await m.client.call(
                produce_of(bytes(30_000 * lane)), org_id=1, deadline=PATIENCE, lane=lane
            )
            assert answer.partitions[0].base_offset == 30_000 * lane
            done[0] += 1

    async def fetch(size: int) -> None:
        while True:
            answer = await m.client.call(fetch_of(size), org_id=1, deadline=PATIENCE)
            assert len(answer.partitions[0].records[0]) == size
            done[0] += 1

    async def describe() -> None:
        while True:
            await m.client.call(DescribeTopics(), org_id=1, deadline=PATIENCE)
            done[0] += 1
            await asyncio.sleep(0.01)

    async with asyncio.TaskGroup() as group:
        jobs = [produce(0), produce(3), fetch(100), fetch(1 << 20), describe()]
        tasks = [group.create_task(job) for job in jobs]
        yield done
        for task in tasks:
            task.cancel()


@asynccontextmanager
async def linked(batched: bool, **faults: Any) -> AsyncGenerator[tuple[Mesh, Link]]:
    """A pair with a link in between."""
    links: list[Link] = []

    def by(port: int) -> tuple[str, int]:
        links.append(Link(("127.0.0.1", port), **faults))
        return links[0].address

    try:
        async with mesh(batched=batched, by=by) as m:
            yield m, links[0]
    finally:
        for link in links:
            link.__exit__()


@pytest.mark.parametrize("batched", [True, False])
async def test_the_size_follows_the_link_and_no_op_fails(batched: bool) -> None:
    async with linked(batched, mtu=1_500) as (m, link):
        async with traffic(m) as done:
            for mtu, size in SIZES:
                await asyncio.to_thread(link.change, mtu=mtu)
                async with asyncio.timeout(PATIENCE):
                    while sizes(m) != {size}:
                        await asyncio.sleep(0.01)
                    before = done[0]
                    while done[0] < before + 10:
                        await asyncio.sleep(0.01)
        assert m.client.counters().reconnects == 0


@pytest.mark.parametrize("cut", ["up", "down", "both"])
async def test_both_ends_notice_a_dead_line_in_about_two_seconds(cut: str) -> None:
    async with linked(True) as (m, link):
        call = asyncio.ensure_future(m.client.call(PARK, org_id=1, deadline=20))
        await asyncio.wait_for(m.broker.parked.wait(), 30)
        (session,) = m.server.sessions
        loop = asyncio.get_running_loop()
        await asyncio.to_thread(link.change, cut=cut)
        began = loop.time()
        async with asyncio.timeout(15):
            with pytest.raises(OutcomeUnknownError):
                await call
            while session in m.server.sessions or not m.broker.cancelled:
                await asyncio.sleep(0.01)
        assert 1.5 < loop.time() - began < 10
        assert m.broker.cancelled == ["park"]


@pytest.mark.parametrize("delay_ms", [0, 30])
async def test_a_broker_that_drains_and_is_replaced_fails_no_op(delay_ms: int) -> None:
    async with linked(True, delay_ms=delay_ms) as (m, _):
        async with traffic(m) as done:
            for turn in range(3):
                before = done[0]
                async with asyncio.timeout(10):
                    while done[0] < before + 20:
                        await asyncio.sleep(0.01)
                    await m.server.close(5)
                    m.server = MeshServer(
                        m.server_identity,
                        {m.client_identity.node_id},
                        m.broker.handlers(),
                        Tracer(),
                    )
                    await m.server.start("127.0.0.1", m.port)
                    while m.client.counters().reconnects == turn:
                        await asyncio.sleep(0.01)
        await m.server.close(0)
