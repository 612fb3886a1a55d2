"""Brokers and shards: who owns what, what moves, and what a gateway measures.

The gateway's view comes over Kafka's protocol (DescribeGateway), owners, epochs and leases from the
brokers' status pages.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from quafka_client.cluster import ClientCluster
from quafka_client.errors import check
from quafka_console.data.status_pages import Row, StatusPage, number, words
from quafka_proto.schema.quafka import (
    DescribeGatewayRequest,
    DescribeGatewayResponse,
    GatewayBroker,
)

_SHARDS = "Shards of the cluster"
_SECONDS = re.compile(r"(-?[\d.]+) s")


@dataclass(frozen=True, slots=True)
class ReachedBroker:
    """A broker, or one of its shards, as the gateway reaches it; None: unknown.

    Attributes:
        shard: None: the cluster has no shards.
        away_seconds: for how long it has been unreachable.
        op_seconds, round_trip_seconds: the duration of an op, and of a round trip on the network.
        lost: the share of sent packets that were lost, from 0 to 1.
    """

    address: str
    shard: int | None
    connected: bool
    away_seconds: float
    version: str
    problem: str
    op_seconds: float | None
    round_trip_seconds: float | None
    lost: float
    open_transactions: int
    snapshot_interval_seconds: float
    snapshot_age_seconds: float | None
    snapshot_problem: str


@dataclass(frozen=True, slots=True)
class SeenShard:
    """A shard of the log, as a broker sees it.

    Attributes:
        owner: node id and address; "" if nobody owns it.
        epoch: the number of owners so far.
        lease_seconds: the rest of the owner's lease; None without owner.
        moves_to: the node id of the broker that shall have it; "": it stays.
    """

    number: int
    owner: str
    epoch: int
    lease_seconds: float | None
    moves_to: str
    problem: str


async def broker_links(cluster: ClientCluster) -> list[ReachedBroker] | None:
    """The brokers behind the gateway, by shard and address; None: the server is no gateway.

    Raises:
        ClientError: also if the user may not describe the cluster.
    """
    if not cluster.any.has(DescribeGatewayRequest):
        return None
    answer = await cluster.call(DescribeGatewayRequest(), DescribeGatewayResponse)
    check(answer.error_code, "brokers")
    found = [_link(each) for each in answer.brokers]
    return sorted(found, key=lambda each: (-1 if each.shard is None else each.shard, each.address))


def _link(broker: GatewayBroker) -> ReachedBroker:
    return ReachedBroker(
        broker.address,
        broker.shard if broker.shard >= 0 else None,
        broker.connected,
        broker.away_ms / 1e3,
        broker.version,
        broker.problem,
        broker.op_us / 1e6 if broker.op_us >= 0 else None,
        broker.rtt_us / 1e6 if broker.rtt_us >= 0 else None,
        broker.packets_lost / broker.packets_sent if broker.packets_sent else 0.0,
        broker.open_transactions,
        broker.snapshot_interval_ms / 1e3,
        broker.snapshot_age_ms / 1e3 if broker.snapshot_age_ms >= 0 else None,
        broker.snapshot_problem,
    )


def shards(pages: Iterable[StatusPage]) -> list[SeenShard]:
    """The shards, as the broker with the newest epochs sees them; empty: the cluster has none."""
    views: list[Sequence[SeenShard]] = [
        [_shard(row) for row in section.rows] for page in pages for section in page.named(_SHARDS)
    ]
    none: list[SeenShard] = []
    return list(max(views, key=lambda view: sum(each.epoch for each in view), default=none))


def _shard(row: Row) -> SeenShard:
    owner = words(row, "owner")
    lease = _SECONDS.match(words(row, "lease"))
    return SeenShard(
        int(words(row, "shard") or 0),
        "" if owner == "nobody" else owner,
        int(number(row, "epoch") or words(row, "epoch") or 0),
        float(lease[1]) if lease else None,
        words(row, "moves").removeprefix("to "),
        words(row, "problem"),
    )
