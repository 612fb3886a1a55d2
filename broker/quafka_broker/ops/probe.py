"""Op 0x31, probe: the broker's version, cluster and health."""

from __future__ import annotations

import asyncio
from time import time_ns

from quafka_broker.state import BrokerState
from quafka_mesh_ops.handlers import OpContext
from quafka_mesh_ops.ops.probe import Probe, ProbeResp
from quafka_telemetry.version import version


async def handle(state: BrokerState, _context: OpContext, _op: Probe) -> ProbeResp:
    """Answer without parking."""
    runs = await asyncio.to_thread(version)
    health, snapshots = state.log.health(), state.snapshots
    return ProbeResp(
        runs,
        time_ns() // 1_000_000,
        state.registry.cluster_id,
        health.failed or health.refusing or "",
        snapshots.interval_ms,
        snapshots.age_ms if snapshots.interval_ms else -1,
        snapshots.problem,
    )
