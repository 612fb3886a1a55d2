"""`quafka cluster`: nodes, brokers, versions and health of a cluster, in one screen."""

from __future__ import annotations

import argparse

from quafka.commands.output import Quantity, as_json, colour, facts, table
from quafka.commands.run import EXIT_DONE, with_cluster
from quafka_client.cluster import ClientCluster
from quafka_client.cluster_view import CONNECTED, ClusterOverview, SeenBroker, view


def run(options: argparse.Namespace) -> int:
    """Show the cluster; return the exit code."""
    return with_cluster(options, _show)


async def _show(cluster: ClientCluster, options: argparse.Namespace) -> int:
    found = await view(cluster)
    if options.format == "json":
        print(as_json({**as_fields(found), "healthy": not found.problems}))
    else:
        print(text(found))
    return EXIT_DONE


def as_fields(found: ClusterOverview) -> dict[str, object]:
    """The document for programs."""
    return {
        "cluster_id": found.cluster_id,
        "gateway_version": found.gateway_version,
        "topics": found.topics,
        "partitions": found.partitions,
        "nodes": found.nodes,
        "brokers": found.brokers,
        "problems": found.problems,
    }


def text(found: ClusterOverview) -> str:
    """The view for people."""
    problems = found.problems
    health = colour("; ".join(problems), "red") if problems else colour("healthy", "green")
    pairs: list[tuple[str, object]] = [("cluster", found.cluster_id)]
    if found.gateway_version is not None:
        pairs.append(("gateway", f"Quafka {found.gateway_version}"))
    pairs += [("topics", found.topics), ("partitions", found.partitions)]
    parts = [f"{facts(pairs)}\n{colour('health', 'bold')}      {health}"]
    nodes = [
        (each.node, each.address, each.rack, "controller" if each.controller else "")
        for each in found.nodes
    ]
    parts.append(table(("NODE", "ADDRESS", "RACK", "ROLE"), nodes))
    if found.brokers:
        parts.append(_brokers(found.brokers))
    return "\n\n".join(parts)


def _brokers(brokers: list[SeenBroker]) -> str:
    sharded = any(each.shard is not None for each in brokers)
    headings = ("BROKER", "SHARD", "STATE", "VERSION", "ROUND TRIP", "OP", "OPEN TXNS")
    rows = [
        (
            each.address,
            each.shard,
            each.state if each.state == CONNECTED else f"{each.state}: {each.problem or '-'}",
            each.version,
            milliseconds(each.round_trip_seconds),
            milliseconds(each.op_seconds),
            each.open_transactions,
        )
        for each in brokers
    ]
    wanted = [n for n in range(len(headings)) if sharded or n != 1]
    return table([headings[n] for n in wanted], [[row[n] for n in wanted] for row in rows])


def milliseconds(seconds: float | None) -> Quantity | None:
    """A short time."""
    return None if seconds is None else Quantity(f"{seconds * 1e3:.1f} ms")
