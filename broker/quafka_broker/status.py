"""The sections of a broker's `/statusz`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from operator import attrgetter

from quafka_broker.metrics import BrokerMetrics, GroupLag
from quafka_broker.op_stats import BrokerStats, SlowOp
from quafka_broker.state import BrokerState
from quafka_broker.topics.topic import Topic
from quafka_broker.wal.quarantine import Damage
from quafka_mesh_ops.counters import PeerCounters
from quafka_mesh_ops.peer_table import peer_table
from quafka_telemetry import status_page
from quafka_telemetry.status_page import (
    Cell,
    Facts,
    Section,
    Table,
    count,
    duration,
    moment,
    size,
    text,
)


def sections(
    state: BrokerState,
    stats: BrokerStats,
    figures: BrokerMetrics,
    peers: Callable[[], list[PeerCounters]],
    trace_url: str,
) -> Iterator[Section]:
    """The sections for a broker whose log is open; `figures` have been read."""
    yield _log(state, figures)
    if state.snapshots.interval_ms:
        yield _snapshots(state)
    if state.log.damages:
        yield _damages(list(state.log.damages))
    yield _groups(figures)
    yield _topics(state)
    yield peer_table(peers())
    yield _ops(stats)
    yield _slow(stats, trace_url)


def _log(state: BrokerState, figures: BrokerMetrics) -> Facts:
    wal = state.log
    stats, now, health = wal.stats, wal.figures(), wal.health()
    trouble = health.failed or health.refusing
    return Facts(
        "Log",
        [
            ("state", text(trouble or "accepts writes", bad=trouble is not None)),
            ("segments", count(now.segments)),
            ("bytes in segments", size(now.bytes)),
            ("free disk space", size(figures.free)),
            ("leader epoch", text(wal.epochs.current)),
            ("reserve", text("held" if now.reserve_held else "in use", bad=not now.reserve_held)),
            ("damaged ranges", count(health.damages, bad=health.damages > 0)),
            ("appends", count(stats.appends)),
            ("writes", count(stats.groups)),
            ("pending appends", size(now.pending_bytes)),
            ("fsync, median", duration(stats.fsync.quantile(0.5))),
            ("fsync, 99 %", duration(stats.fsync.quantile(0.99))),
            ("age of the last checkpoint", duration(figures.checkpoint_age)),
            ("bytes since then", size(now.unsaved_bytes)),
        ],
    )


def _snapshots(state: BrokerState) -> Facts:
    status, config = state.snapshots, state.configs.broker
    last = text("none", bad=True) if status.cut_ms is None else moment(status.cut_ms / 1000)
    return Facts(
        "The broker's own snapshots",
        [
            ("destination", text(config.snapshot_dest)),
            ("interval", duration(status.interval_ms / 1000)),
            ("last good snapshot", last),
            ("age of that snapshot", duration(status.age_ms / 1000)),
            ("snapshots since the start", count(status.made)),
            ("failures since the start", count(status.failures, bad=status.failures > 0)),
            ("problem", text(status.problem or "none", bad=bool(status.problem))),
        ],
    )


def _damages(damages: list[Damage]) -> Table:
    return Table(
        "Damaged ranges of the log",
        ("segment", "from", "to", "reason", "lost offsets"),
        (
            (
                count(damage.segment),
                count(damage.start),
                count(damage.end),
                text(damage.reason, bad=True),
                count(sum(lost.end - lost.first for lost in damage.lost)),
            )
            for damage in damages
        ),
    )


def _groups(figures: BrokerMetrics) -> Table:
    furthest = sorted(figures.groups, key=attrgetter("records"), reverse=True)
    return Table(
        f"Consumer groups: {len(furthest):,}, largest lag first",
        ("group", "org", "state", "members", "partitions", "lag in records", "lag in time"),
        map(_of_group, furthest),
    )


def _of_group(group: GroupLag) -> tuple[Cell, ...]:
    org, name = group.labels
    return (
        text(name),
        text(org),
        text(group.state),
        count(group.members),
        count(group.partitions),
        count(group.records),
        duration(group.seconds),
    )


def _topics(state: BrokerState) -> Table:
    every = sorted(state.registry.every_topic(), key=attrgetter("org", "name"))
    return Table(
        f"Topics: {len(every):,}",
        ("topic", "org", "partitions", "records", "records ever written", "configs"),
        (_of_topic(state, topic) for topic in every),
    )


def _of_topic(state: BrokerState, topic: Topic) -> tuple[Cell, ...]:
    offsets = [state.log.offsets(topic.partition_id(each)) for each in range(topic.partitions)]
    return (
        text(topic.name),
        text(topic.org),
        count(topic.partitions),
        count(sum(end - start for start, end in offsets)),
        count(sum(end for _, end in offsets)),
        text(", ".join(f"{name}={value}" for name, value in topic.configs.items())),
    )


def _ops(stats: BrokerStats) -> Table:
    return Table(
        "Ops of gateways",
        ("op", "answered", "failed", "median", "99 %", "parked, each"),
        (
            status_page.served(code.name.lower(), one.ops, one.errors, one.seconds, one.parked)
            for code, one in sorted(stats.ops.items())
            if one.ops
        ),
        "none yet",
    )


def _slow(stats: BrokerStats, trace_url: str) -> Table:
    return Table(
        f"Slow ops: {stats.slow_seconds:g} s or longer, without parked time",
        ("ended", "op", "org", "gateway", "took", "parked", "trace"),
        (_of_slow(each, trace_url) for each in reversed(list(stats.slow))),
    )


def _of_slow(each: SlowOp, trace_url: str) -> tuple[Cell, ...]:
    return (
        moment(each.at),
        text(each.op),
        text(each.org),
        text(each.peer[:16]),
        duration(each.seconds),
        duration(each.parked or None),
        status_page.trace(each.trace_id, trace_url),
    )
