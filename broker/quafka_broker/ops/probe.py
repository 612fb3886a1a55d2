"""Op 0x31, probe: the broker's version, cluster and health."""

from __future__ import annotations

import asyncio

from quafka_broker.state import BrokerState
from quafka_broker.topics.topic import REDIS
from quafka_broker.transactions.figures import figures_of
from quafka_loop import clock
from quafka_loop.slices import listed
from quafka_mesh_ops.handlers import OpContext
from quafka_mesh_ops.ops.probe import Probe, ProbeResp
from quafka_proto.schema.quafka import GatewayServer
from quafka_telemetry.version import version

_LOOK_SECONDS = 1.0
_LONGEST_NAME = 1_000


async def handle(state: BrokerState, context: OpContext, _op: Probe) -> ProbeResp:
    """Answer without parking, except for a look at the servers of topics from Redis."""
    runs = await asyncio.to_thread(version)
    health, snapshots = state.log.health(), state.snapshots
    transactions = figures_of(state.transactions, context.org_id)
    return ProbeResp(
        runs,
        clock.time_ns() // 1_000_000,
        state.registry.cluster_id,
        health.failed or health.refusing or "",
        snapshots.interval_ms,
        snapshots.age_ms if snapshots.interval_ms else -1,
        snapshots.problem,
        transactions.open,
        transactions.oldest_ms if transactions.oldest is not None else -1,
        transactions.overdue_ms,
        [*await _servers(state, context.org_id), *_folders(state, context.org_id)],
        transactions.unfinished,
        transactions.unfinished_ms,
    )


async def _servers(state: BrokerState, org: int) -> list[GatewayServer]:
    """Look at the servers of the org's topics, for a second at most."""
    topics = await listed(t for t in state.registry.every_topic() if t.source == REDIS)
    found = state.redis.servers_of(topic for topic in topics if topic.org == org)
    looks = [asyncio.ensure_future(server.look()) for server in found]
    if looks:
        await asyncio.wait(looks, timeout=_LOOK_SECONDS)
    return [
        GatewayServer(server.name, _problem_of(look), server.detail, topics)
        for (server, topics), look in zip(found.items(), looks, strict=True)
    ]


def _folders(state: BrokerState, org: int) -> list[GatewayServer]:
    """Check the log folders of Kafka, if the org has their topics."""
    kafka = state.kafka
    if kafka is None or kafka.org != org:
        return []
    found = kafka.figures()
    detail = f"{found.open} partitions in use, {found.unreadable} of them cannot be read"
    name = ", ".join(map(str, kafka.folders.folders))[:_LONGEST_NAME]
    return [GatewayServer(name, found.problem, detail, found.topics, "kafka")]


def _problem_of(look: asyncio.Future[str]) -> str:
    """The result of a look, which is cancelled if it takes too long."""
    if look.done():
        return look.result()
    look.cancel()
    return f"no answer within {_LOOK_SECONDS:.0f} s"
