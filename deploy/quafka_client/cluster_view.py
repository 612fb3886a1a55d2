"""A cluster in one view: its nodes, the brokers behind a gateway, and where logs are kept."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from quafka_client.cluster import ClientCluster
from quafka_client.connection import ClientConnection
from quafka_client.errors import ClientError, check, sentence
from quafka_proto.schema.log_dirs import (
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
)
from quafka_proto.schema.quafka import (
    DescribeGatewayRequest,
    DescribeGatewayResponse,
    GatewayBroker,
)

CONNECTED, SILENT, AWAY, TROUBLED = "connected", "no answer", "away", "problem"
"""States of a broker as its gateway sees it."""


@dataclass(frozen=True, slots=True)
class ClusterNode:
    """A server that clients connect to: a broker of Kafka, or a gateway."""

    node: int
    address: str
    rack: str | None
    controller: bool


@dataclass(frozen=True, slots=True)
class SeenBroker:
    """A broker, or one of its shards, behind the gateway that answers; None: unknown.

    `shard`: None: the cluster has no shards.
    """

    address: str
    shard: int | None
    state: str
    version: str | None
    round_trip_seconds: float | None
    op_seconds: float | None
    open_transactions: int
    problem: str | None


@dataclass(frozen=True, slots=True)
class ClusterOverview:
    """`gateway_version`: None for servers other than gateways. `brokers`: those behind it."""

    cluster_id: str | None
    gateway_version: str | None
    nodes: list[ClusterNode]
    brokers: list[SeenBroker]
    topics: int
    partitions: int
    leaderless: int

    @property
    def problems(self) -> list[str]:
        """What does not work, a sentence each."""
        found = [
            f"broker {each.address}: {each.problem or each.state}"
            for each in self.brokers
            if each.state != CONNECTED
        ]
        if self.leaderless:
            found.append(f"partitions without a leader: {self.leaderless}")
        return list(dict.fromkeys(found))


async def view(cluster: ClientCluster) -> ClusterOverview:
    """The cluster now. Raises ClientError."""
    metadata = await cluster.metadata(None)
    gateway = await _gateway(cluster)
    partitions = [each for topic in metadata.topics for each in topic.partitions]
    return ClusterOverview(
        metadata.cluster_id,
        None if gateway is None else gateway.version,
        [
            ClusterNode(
                each.node_id, f"{each.host}:{each.port}", each.rack,
                each.node_id == metadata.controller_id,
            )
            for each in sorted(metadata.brokers, key=lambda each: each.node_id)
        ],
        [] if gateway is None else list(map(_seen, gateway.brokers)),
        len(metadata.topics),
        len(partitions),
        sum(each.leader_id < 0 for each in partitions),
    )  # fmt: skip


async def _gateway(cluster: ClientCluster) -> DescribeGatewayResponse | None:
    if not cluster.any.has(DescribeGatewayRequest):
        return None
    answer = await cluster.call(DescribeGatewayRequest(), DescribeGatewayResponse)
    check(answer.error_code, "the gateway's brokers")
    return answer


def _seen(broker: GatewayBroker) -> SeenBroker:
    if not broker.connected:
        state = AWAY
    elif not broker.answered:
        state = SILENT
    else:
        state = TROUBLED if broker.problem else CONNECTED
    return SeenBroker(
        broker.address,
        broker.shard if broker.shard >= 0 else None,
        state,
        broker.version or None,
        broker.rtt_us / 1e6 if broker.rtt_us >= 0 else None,
        broker.op_us / 1e6 if broker.op_us >= 0 else None,
        broker.open_transactions,
        broker.problem or None,
    )


# --- places -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class LogPlace:
    """A part of the cluster's log: a shard, a broker's folder, or a log folder of Kafka.

    `broker`: who serves it; `place`: where it is kept. None: unknown, or not for this client.
    """

    shard: int | None
    broker: str
    place: str
    state: str
    topics: int
    partitions: int
    bytes: int
    disk_bytes: int | None
    free_bytes: int | None
    error: str | None


async def places(cluster: ClientCluster) -> list[LogPlace]:
    """All parts of the cluster's log. Raises ClientError."""
    gateway = await _gateway(cluster)
    found: list[LogPlace] = []
    if gateway is not None:
        # A gateway's folders are in the order of its brokers.
        results = await _log_dirs(cluster.any)
        if len(results) != len(gateway.brokers):
            raise ClientError("the gateway's brokers are changing; try again in a moment")
        for broker, result in zip(gateway.brokers, results, strict=True):
            seen = _seen(broker)
            found.append(_place(seen.shard, seen.address, seen.state, result))
    else:
        for node in await cluster.nodes():
            found += [
                _place(None, node.address, CONNECTED, result) for result in await _log_dirs(node)
            ]
    return found


async def _log_dirs(connection: ClientConnection) -> Sequence[DescribeLogDirsResult]:
    answer = await connection.call(DescribeLogDirsRequest(topics=None), DescribeLogDirsResponse)
    check(answer.error_code, connection.address)
    return answer.results


def _place(shard: int | None, broker: str, state: str, result: DescribeLogDirsResult) -> LogPlace:
    parts = [each for topic in result.topics for each in topic.partitions]
    return LogPlace(
        shard,
        broker,
        result.log_dir.removeprefix(f"shard:{shard}:"),
        state,
        len(result.topics),
        len(parts),
        sum(each.partition_size for each in parts if not each.is_future_key),
        result.total_bytes if result.total_bytes >= 0 else None,
        result.usable_bytes if result.usable_bytes >= 0 else None,
        sentence(result.error_code) if result.error_code else None,
    )
