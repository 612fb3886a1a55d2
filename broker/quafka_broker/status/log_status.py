"""The sections of a broker's `/statusz` about its logs: the summary, and a row for each log."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from quafka_broker.partitions.partition import topic_hash
from quafka_broker.state import BrokerState
from quafka_broker.status.metrics import BrokerMetrics
from quafka_broker.topics.topic import Topic
from quafka_broker.wal.quarantine import Lost, SegmentDamage
from quafka_telemetry.status_page import (
    Cell,
    Facts,
    PageTable,
    Section,
    count,
    duration,
    size,
    text,
)


class ShardStatus(NamedTuple):
    """What the page shows of one shard; `figures` have been read."""

    number: int
    state: BrokerState
    figures: BrokerMetrics


def summary(shards: Sequence[ShardStatus], *others: tuple[str, Cell]) -> Facts:
    """The first section: what a broker has, and whether something is wrong; then `others`."""
    states = [each.state for each in shards]
    topics = [topic for state in states for topic in state.registry.every_topic()]
    lags = [group for each in shards for group in each.figures.groups]
    refusing = [found for found in map(_trouble, states) if found]
    damages = sum(state.log.health().damages for state in states)
    return Facts(
        "Summary",
        [
            ("writes", text("; ".join(refusing) or "accepted", bad=bool(refusing))),
            ("damaged ranges of logs", count(damages, bad=damages > 0)),
            ("topics", count(len(topics))),
            ("partitions", count(sum(topic.partitions for topic in topics))),
            ("bytes in the logs", size(sum(state.log.figures().bytes for state in states))),
            *(("free local disk space", size(each.figures.free)) for each in shards[:1]),
            ("groups", count(len(lags))),
            ("members of groups", count(sum(each.members for each in lags))),
            ("largest lag of a group", text(f"{max((each.records for each in lags), default=0):,} "
                                            "records")),
            ("open transactions", count(sum(len(each.transactions.table.open) for each in states))),
            *others,
        ],
    )  # fmt: skip


def logs(shards: Sequence[ShardStatus]) -> Section:
    """The log of the only shard as facts, or a row for each of several shards."""
    if len(shards) == 1:
        return _log(shards[0])
    return PageTable(
        f"Logs of the shards at this broker: {len(shards)}",
        (
            "shard", "state", "topics", "segments", "size", "leader epoch", "damaged", "appends",
            "commits", "pending", "commit, median", "99 %", "last checkpoint", "size since then",
        ),
        map(_row, shards),
    )  # fmt: skip


def damages(each: ShardStatus) -> PageTable:
    """The damaged ranges of one log."""
    found: Sequence[SegmentDamage] = list(each.state.log.damages)
    return PageTable(
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
            for damage in found
        ),
    )


def lost_records(each: ShardStatus) -> PageTable:
    """The offsets that damaged ranges have lost, by topic; those of deleted topics are left out."""
    topics = {(topic.org, topic_hash(topic.org, topic.name), topic.generation): topic
              for topic in each.state.registry.every_topic()}  # fmt: skip
    found: list[tuple[Topic, Lost]] = []
    for damage in list(each.state.log.damages):
        for lost in damage.lost:
            id_ = lost.partition
            topic = topics.get((id_.org_id, id_.topic_hash, id_.generation))
            if topic is not None:
                found.append((topic, lost))
    return PageTable(
        "Records lost to damage",
        ("topic", "org", "partition", "from offset", "to offset", "topic id"),
        (
            (
                text(topic.name),
                text(topic.org),
                count(lost.partition.partition),
                count(lost.first),
                count(lost.end),
                text(topic.ulid),
            )
            for topic, lost in found
        ),
    )


def _trouble(state: BrokerState) -> str | None:
    health = state.log.health()
    return health.failed or health.refusing


def _state(state: BrokerState) -> Cell:
    trouble = _trouble(state)
    return text(trouble or "accepts writes", bad=trouble is not None)


def _log(each: ShardStatus) -> Facts:
    wal, figures = each.state.log, each.figures
    stats, now, health = wal.stats, wal.figures(), wal.health()
    return Facts(
        "Log",
        [
            ("state", _state(each.state)),
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


def _row(each: ShardStatus) -> tuple[Cell, ...]:
    wal = each.state.log
    stats, now, damaged = wal.stats, wal.figures(), wal.health().damages
    return (
        text(each.number),
        _state(each.state),
        count(len(each.state.registry.every_topic())),
        count(now.segments),
        size(now.bytes),
        text(wal.epochs.current),
        count(damaged, bad=damaged > 0),
        count(stats.appends),
        count(stats.groups),
        size(now.pending_bytes),
        duration(stats.fsync.quantile(0.5)),
        duration(stats.fsync.quantile(0.99)),
        duration(each.figures.checkpoint_age),
        size(now.unsaved_bytes),
    )
