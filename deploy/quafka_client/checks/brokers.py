"""The brokers in a gateway's report: one entry for each, whatever the number of its shards."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby

from quafka_proto.schema.quafka import GatewayBroker, GatewayServer


def by_broker(reported: Iterable[GatewayBroker]) -> list[GatewayBroker]:
    """Merge the shards of a broker that are in the same state; their address names the shards.

    A gateway reports each shard of a cluster, with the broker that has it now.
    """
    found = list(reported)
    several = any(each.shard > 0 for each in found)
    groups: dict[tuple[str, bool, bool, str, str], list[GatewayBroker]] = {}
    for each in found:
        state = each.address, each.connected, each.answered, each.version, each.problem
        groups.setdefault(state, []).append(each)
    return [_merged(group, names_shards=several) for group in groups.values()]


def _merged(group: Sequence[GatewayBroker], *, names_shards: bool) -> GatewayBroker:
    # The clock is most certain by the quickest answer.
    quickest = min(group, key=lambda each: each.op_us if each.op_us >= 0 else 1 << 62)
    shards = _of_shards([each.shard for each in group]) if names_shards else ""
    overdue = max(group, key=lambda each: each.snapshot_age_ms)
    return GatewayBroker(
        address=quickest.address + shards,
        connected=quickest.connected,
        away_ms=max(each.away_ms for each in group),
        answered=quickest.answered,
        version=quickest.version,
        time_ms=quickest.time_ms,
        problem=quickest.problem,
        op_us=quickest.op_us,
        rtt_us=quickest.rtt_us,
        datagram_bytes=quickest.datagram_bytes,
        packets_sent=max(each.packets_sent for each in group),
        packets_lost=max(each.packets_lost for each in group),
        snapshot_interval_ms=overdue.snapshot_interval_ms,
        snapshot_age_ms=overdue.snapshot_age_ms,
        snapshot_problem=overdue.snapshot_problem,
        open_transactions=sum(each.open_transactions for each in group),
        oldest_transaction_ms=max(each.oldest_transaction_ms for each in group),
        overdue_transaction_ms=max(each.overdue_transaction_ms for each in group),
        servers=_servers(group),
        unfinished_transactions=sum(each.unfinished_transactions for each in group),
        unfinished_transaction_ms=max(each.unfinished_transaction_ms for each in group),
    )


def _servers(group: Sequence[GatewayBroker]) -> list[GatewayServer]:
    """The servers of all shards; those that are equal but for their topics are one."""
    found: dict[tuple[str, str, str, str], int] = {}
    for server in (server for each in group for server in each.servers):
        which = server.kind, server.name, server.problem, server.detail
        found[which] = found.get(which, 0) + server.topics
    return [
        GatewayServer(kind=kind, name=name, problem=problem, detail=detail, topics=topics)
        for (kind, name, problem, detail), topics in found.items()
    ]


def _of_shards(shards: Sequence[int]) -> str:
    """The shards in brackets: (shard 3), (shards 0-2, 7)."""
    runs = (
        [shard for _, shard in run]
        for _, run in groupby(enumerate(sorted(shards)), lambda pair: pair[1] - pair[0])
    )
    named = ", ".join(
        f"{run[0]}-{run[-1]}" if len(run) > 2 else ", ".join(map(str, run)) for run in runs
    )
    return f" (shard{'' if len(shards) == 1 else 's'} {named})"
