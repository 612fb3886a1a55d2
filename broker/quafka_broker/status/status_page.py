"""The sections of a broker's `/statusz`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from heapq import nsmallest
from operator import attrgetter
from typing import TYPE_CHECKING

from quafka_broker.compaction.metrics import CompactionMetrics
from quafka_broker.groups.group import GroupType
from quafka_broker.groups.metrics import by_kind
from quafka_broker.security.security import BrokerSecurity
from quafka_broker.shares.metrics import full_partitions
from quafka_broker.shares.shares import BrokerShares
from quafka_broker.shares.states import Acknowledge
from quafka_broker.state import BrokerState
from quafka_broker.status.log_status import ShardStatus, damages, logs, lost_records
from quafka_broker.status.metrics import GroupLagFigures
from quafka_broker.status.op_stats import BrokerStats, SlowOp
from quafka_broker.status.share_status import share_windows
from quafka_broker.topics.topic import REDIS, Topic
from quafka_broker.transactions.figures import figures_of
from quafka_broker.transactions.transactions import BrokerTransactions
from quafka_mesh_ops.counters import PeerCounters
from quafka_mesh_ops.peer_table import peer_table
from quafka_telemetry import status_page
from quafka_telemetry.expected_errors import failures
from quafka_telemetry.status_page import (
    Cell,
    Facts,
    PageTable,
    Section,
    age,
    count,
    duration,
    moment,
    size,
    text,
)

if TYPE_CHECKING:
    from quafka_broker.sources.kafka.source import KafkaSource

_SHOWN = 500
"""The maximum number of open transactions on the page."""
_COMPACTION_LATE = 7_200  # seconds without a pass over a due topic
_OVERDUE_MS = 5_000  # a transaction is aborted within a second of its timeout


def sections(
    shards: Sequence[ShardStatus],
    stats: BrokerStats,
    peers: Callable[[], list[PeerCounters]],
    trace_url: str,
) -> Iterator[Section]:
    """The sections about open logs, after the summary; with several, each names its shard."""
    if shards:
        yield logs(shards)
    yield _topics(shards)
    yield _groups(shards)
    yield _kinds(shards)
    for each in shards:
        for section in _of_shard(each):
            if len(shards) > 1:
                yield section._replace(title=f"Shard {each.number}: {section.title}")
            else:
                yield section
    yield peer_table(peers())
    yield _ops(stats)
    yield _slow(stats, trace_url)


def _of_shard(each: ShardStatus) -> Iterator[Section]:
    """What a log may have, and most logs have not."""
    state, figures = each.state, each.figures
    if state.snapshots.interval_ms:
        yield _snapshots(state)
    if state.log.damages:
        yield damages(each)
        yield lost_records(each)
    if len(state.transactions.table) or state.transactions.table.branches:
        yield _transactions(state.transactions)
        yield _open_transactions(state.transactions)
        if state.transactions.table.unfinished:
            yield _unfinished(state.transactions)
    if len(state.security.table) or state.security.journal.incomplete:
        yield _security(state.security)
    if state.redis.servers:
        yield _redis(state)
    if state.kafka is not None:
        yield _kafka(state.kafka)
    if figures.compaction.topics:
        yield _compaction(figures.compaction)
    if len(state.shares.table):
        yield _shares(state.shares)
        yield share_windows(state)


def _with_shards(
    shards: Sequence[ShardStatus],
    title: str,
    columns: Sequence[str],
    rows: Iterable[tuple[int, tuple[Cell, ...]]],
) -> PageTable:
    """A table over all shards, with a column for their numbers if there are several.

    `rows`: with the number of each row's shard.
    """
    if len(shards) > 1:
        found = ((*row, text(number)) for number, row in rows)
        return PageTable(title, (*columns, "shard"), found)
    return PageTable(title, columns, (row for _, row in rows))


def _security(security: BrokerSecurity) -> Facts:
    orgs, users, acls, quotas = security.table.counts()
    problem = security.journal.incomplete
    return Facts(
        "Orgs, users and ACLs",
        [
            ("state", text(problem or "complete", bad=bool(problem))),
            ("orgs", count(orgs)),
            ("orgs being deleted", count(len(security.orgs_to_delete()))),
            ("users", count(users)),
            ("ACLs", count(acls)),
            ("users, client ids and addresses with quotas", count(quotas)),
            ("gateways that wait for changes", count(security.watchers.parked)),
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


def _transactions(transactions: BrokerTransactions) -> Facts:
    found = figures_of(transactions)
    overdue, slow = found.overdue_ms > _OVERDUE_MS, found.unfinished_ms > _OVERDUE_MS
    return Facts(
        "Transactions",
        [
            ("transactional ids", count(found.ids)),
            ("open", count(found.open)),
            ("oldest open", text(found.oldest.name if found.oldest else "none", bad=overdue)),
            ("open for", age(found.oldest_ms / 1000 if found.oldest else None)),
            ("past its timeout", age(found.overdue_ms / 1000 if found.overdue_ms else None)),
            ("not ended at all brokers", text(f"{found.unfinished:,}", bad=slow)),
            (
                "the first of these for",
                age(found.unfinished_ms / 1000 if found.unfinished else None),
            ),
            ("open branches of other brokers' transactions", count(found.branches)),
            ("committed since the start", count(transactions.ending.committed)),
            ("aborted since the start", count(transactions.ending.aborted)),
            ("of these by timeout", count(transactions.timed_out)),
            ("fenced requests since the start", count(transactions.fenced)),
        ],
    )


def _open_transactions(transactions: BrokerTransactions) -> PageTable:
    now_ms, every = transactions.now_ms(), transactions.table.open
    open_ = nsmallest(_SHOWN, every.values(), key=attrgetter("start_ms"))
    return PageTable(
        f"Open transactions: {len(every):,}, oldest first",
        ("transactional id", "org", "open for", "timeout", "producer", "partitions", "groups"),
        (
            (
                text(found.name, bad=now_ms - found.deadline_ms > _OVERDUE_MS),
                text(found.org),
                age((now_ms - found.start_ms) / 1000),
                duration(found.timeout_ms / 1000),
                text(f"{found.producer_id}, epoch {found.epoch}"),
                count(len(found.partitions) + len(found.elsewhere)),
                count(len(found.groups)),
            )
            for found in open_
        ),
    )


def _unfinished(transactions: BrokerTransactions) -> PageTable:
    now_ms = transactions.now_ms()
    rows = [
        (found, found.unfinished)
        for found in transactions.table.unfinished.values()
        if found.unfinished is not None
    ]
    rows.sort(key=lambda row: row[1].since_ms)
    return PageTable(
        f"Transactions that other brokers have not ended: {len(rows):,}, oldest first",
        ("transactional id", "org", "outcome", "ended here before", "node ids of these brokers"),
        (
            (
                text(found.name, bad=now_ms - left.since_ms > _OVERDUE_MS),
                text(found.org),
                text("commit" if left.commit else "abort"),
                age((now_ms - left.since_ms) / 1000),
                text(", ".join(sorted(left.left))),
            )
            for found, left in rows
        ),
    )


def _redis(state: BrokerState) -> PageTable:
    servers = state.redis.servers
    return PageTable(
        f"Redis servers: {len(servers):,}, of {state.redis.partitions:,} partitions in use",
        ("org", "server", "state", "connected to", "reads", "entries", "read", "batches added",
         "failures", "last failure"),
        (
            (
                text(org),
                text(each.name),
                text(each.problem or ("connected" if each.is_up else "not used"),
                     bad=bool(each.problem)),
                text(f"{each.connected.address}, {each.detail}" if each.connected else ""),
                count(each.figures.reads),
                count(each.figures.entries_read),
                size(each.figures.bytes_read),
                count(each.figures.appends),
                count(each.figures.failures, bad=each.figures.failures > 0),
                text(each.figures.last_failure),
            )
            for org, each in servers
        ),
    )  # fmt: skip


def _kafka(kafka: KafkaSource) -> Facts:
    found = kafka.figures()
    return Facts(
        "Kafka's log folders",
        [
            ("folders", text(", ".join(map(str, kafka.folders.folders)))),
            ("state", text(found.problem or "followed", bad=bool(found.problem))),
            ("org", text(kafka.org)),
            ("topics", count(found.topics)),
            ("partitions in use", count(found.open)),
            ("partitions that cannot be read", count(found.unreadable, bad=found.unreadable > 0)),
        ],
    )


def _kinds(shards: Sequence[ShardStatus]) -> PageTable:
    found: dict[GroupType, list[int]] = {kind: [0] * 4 for kind in GroupType}
    for each in shards:
        for kind, *figures in by_kind(each.state.groups):
            found[kind] = [a + b for a, b in zip(found[kind], figures, strict=True)]
    return PageTable(
        "Groups by type",
        ("type", "groups", "members", "rebalances", "heartbeats"),
        ((text(kind), *map(count, figures)) for kind, figures in found.items()),
    )


def _shares(shares: BrokerShares) -> Facts:
    full = full_partitions(shares)
    return Facts(
        "Records of share groups",
        [
            ("partitions", count(len(shares.table))),
            ("in flight", count(sum(usage.in_flight for usage in shares.table.usages))),
            ("partitions that are full while members wait", count(full, bad=full > 0)),
            ("acquired", count(shares.acquired)),
            *((_DONE[kind], count(shares.acknowledged[kind])) for kind in _DONE),
            ("locks that ended", count(shares.expired)),
            ("delivered too often", count(shares.exhausted)),
        ],
    )


_DONE = {
    Acknowledge.ACCEPT: "accepted",
    Acknowledge.RELEASE: "released",
    Acknowledge.REJECT: "rejected",
    Acknowledge.RENEW: "renewed",
}


def _groups(shards: Sequence[ShardStatus]) -> PageTable:
    found = [(each.number, group) for each in shards for group in each.figures.groups]
    found.sort(key=lambda row: row[1].records, reverse=True)
    return _with_shards(
        shards,
        f"Groups: {len(found):,}, largest lag first",
        ("group", "org", "type", "state", "members", "partitions", "lag in records", "lag in time"),
        ((number, _of_group(group)) for number, group in found),
    )


def _of_group(group: GroupLagFigures) -> tuple[Cell, ...]:
    org, name = group.labels
    return (
        text(name),
        text(org),
        text(group.kind),
        text(group.state),
        count(group.members),
        count(group.partitions),
        count(group.records),
        duration(group.seconds),
    )


def _topics(shards: Sequence[ShardStatus]) -> PageTable:
    found = [(each, topic) for each in shards for topic in each.state.registry.every_topic()]
    found.sort(key=lambda row: (row[1].org, row[1].name))
    return _with_shards(
        shards,
        f"Topics: {len(found):,}",
        ("topic", "org", "partitions", "records", "records ever written", "configs"),
        ((each.number, _of_topic(each.state, topic)) for each, topic in found),
    )


def _of_topic(state: BrokerState, topic: Topic) -> tuple[Cell, ...]:
    offsets = [state.sources.bounds(topic, each) for each in range(topic.partitions)]
    return (
        text(topic.name),
        text(topic.org),
        count(topic.partitions),
        *(
            (text("in Redis"), text(""))  # offsets have gaps
            if topic.source == REDIS
            else (
                count(sum(end - start for start, end in offsets)),
                count(sum(end for _, end in offsets)),
            )
        ),
        text(", ".join(f"{name}={value}" for name, value in topic.configs.items())),
    )


def _compaction(figures: CompactionMetrics) -> PageTable:
    most = sorted(figures.topics, key=attrgetter("dirty_bytes"), reverse=True)
    return PageTable(
        f"Compacted topics: {len(most):,}, most dirty bytes first",
        ("topic", "org", "clean", "dirty", "partitions due", "last pass", "left of its bytes"),
        (
            (
                text(each.topic.name),
                text(each.topic.org),
                size(each.clean_bytes),
                size(each.dirty_bytes),
                count(each.due, bad=each.due > 0 and figures.age(each) > _COMPACTION_LATE),
                text("none yet") if each.last_ms < 0 else moment(each.last_ms / 1000),
                text("" if each.last_ms < 0 else f"{each.ratio:.0%}"),
            )
            for each in most
        ),
    )


def _ops(stats: BrokerStats) -> PageTable:
    return PageTable(
        "Ops of gateways",
        ("op", "answered", "failed", "median", "99 %", "parked, each"),
        (
            status_page.served(
                code.name.lower(),
                one.ops,
                failures(one.errors, one.step),
                one.seconds,
                one.parked,
            )
            for code, one in sorted(stats.ops.items())
            if one.ops
        ),
        "none yet",
    )


def _slow(stats: BrokerStats, trace_url: str) -> PageTable:
    return PageTable(
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
