"""A flood of first packets from another process: gateways connect in spite of it."""

from __future__ import annotations

import asyncio
import json
import sys
from asyncio.subprocess import PIPE
from typing import Any

import pytest

from quafka_mesh_ops.ops.topics import DescribeTopics
from quafka_mesh_ops.transport.admission import MAX_UNPROVEN
from tests.unit.mesh_ops.mesh import fetch_of
from tests.unit.mesh_ops.test_flood import PATIENCE, served

pytestmark = pytest.mark.long

RATE, SECONDS = 2_000, 100


async def test_gateways_connect_and_work_during_a_flood() -> None:
    """Once, such a flood locked out every gateway for as long as it lasted."""
    async with served() as s, s.gateway() as existing:
        arguments = ("127.0.0.1", str(s.port), str(RATE), str(SECONDS))
        flood = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "tests.support.quic_flood", *arguments, stdin=PIPE, stdout=PIPE
        )
        assert flood.stdin is not None
        assert flood.stdout is not None
        await flood.stdout.readline()
        async with asyncio.timeout(PATIENCE):
            while not s.server.first_packets().get("retried"):
                await asyncio.sleep(0.01)  # until the flood holds every slot for unproven senders
        for _ in range(3):
            async with s.gateway() as another:
                assert await another.call(DescribeTopics(), org_id=1, deadline=PATIENCE)
            await existing.call(fetch_of(100_000), org_id=1, deadline=PATIENCE)
        assert flood.returncode is None
        flood.stdin.close()
        said: dict[str, Any] = json.loads(await flood.stdout.read())
        await flood.wait()
        outcomes = s.server.first_packets()
        assert existing.counters().reconnects == 0
        assert outcomes["retried"] > said["sent"] / 4
        assert said["received_bytes"] < said["sent_bytes"] / 4
        assert s.connections <= MAX_UNPROVEN + 2
