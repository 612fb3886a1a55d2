"""A broker's metrics, read from counters that the broker keeps in any case.

The metrics of each partition and group have the names of kafka_exporter, so that dashboards and
alerts carry over. They are on a separate page.
"""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from quafka_broker.compaction.metrics import CompactionMetrics
from quafka_broker.groups.group import Group, GroupType
from quafka_broker.groups.lag import GroupPartitionLag
from quafka_broker.groups.metrics import group_families
from quafka_broker.shares.lag import lag_of, start_of
from quafka_broker.shares.metrics import share_families
from quafka_broker.sources.metrics import source_families
from quafka_broker.state import BrokerState
from quafka_broker.status.op_stats import BrokerStats
from quafka_broker.transactions.figures import figures_of
from quafka_loop import clock
from quafka_loop.slices import listed
from quafka_proto.errors import ErrorCode
from quafka_telemetry.expected_errors import expected_label
from quafka_telemetry.metrics import Family, FamilyKind, Sample, counter, gauge

_PARTITION = ("org", "topic", "partition")
_GROUP = ("org", "consumergroup")
_GROUP_PARTITION = (*_GROUP, "topic", "partition")


class GroupLagFigures(NamedTuple):
    """A group's lag over all of its partitions; `seconds`: the largest of a partition.

    `labels`: the group's org and name.
    """

    labels: tuple[str, str]
    kind: str
    state: str
    members: int
    partitions: int
    records: int
    seconds: float


@dataclass(slots=True, eq=False)
class _Lags:
    """The lag of every group in every partition that it has committed in, in columns.

    With an object for each, garbage collection would soon scan all objects of the broker, which
    takes longer than everything here.
    """

    groups: list[GroupLagFigures] = field(default_factory=list[GroupLagFigures])
    group: list[GroupLagFigures] = field(default_factory=list[GroupLagFigures])
    topic: list[str] = field(default_factory=list[str])
    partition: list[int] = field(default_factory=list[int])
    committed: list[int] = field(default_factory=list[int])
    records: list[int] = field(default_factory=list[int])
    seconds: list[float | None] = field(default_factory=list[float | None])
    catch_up_seconds: list[float | None] = field(default_factory=list[float | None])

    def add(self, org: int, group: Group, partitions: Sequence[GroupPartitionLag]) -> None:
        """Add a group's lag."""
        found = GroupLagFigures(
            (str(org), group.name),
            str(group.kind),
            str(group.state),
            group.member_count,
            len(partitions),
            sum(each.records or 0 for each in partitions),
            max((each.seconds or 0.0 for each in partitions), default=0.0),
        )
        self.groups.append(found)
        for each in partitions:
            if each.committed is not None and each.records is not None:
                self.group.append(found)
                self.topic.append(each.topic)
                self.partition.append(each.partition)
                self.committed.append(each.committed)
                self.records.append(each.records)
                self.seconds.append(each.seconds)
                self.catch_up_seconds.append(each.catch_up_seconds)

    def samples(self, values: Sequence[float | None]) -> Iterator[Sample]:
        """The samples of a column, without unknown values."""
        places = zip(self.group, self.topic, self.partition, values, strict=True)
        for group, topic, partition, value in places:
            if value is not None:
                yield (*group.labels, topic, str(partition)), value


@dataclass(slots=True)
class BrokerMetrics:
    """The metrics of a broker whose log is open."""

    state: BrokerState
    stats: BrokerStats
    folder: Path
    free: int = 0
    """Free bytes on the disk at the last `read`."""
    _size: int = 0
    _recovered: float = field(init=False)
    _lags: _Lags = field(default_factory=_Lags)
    compaction: CompactionMetrics = field(init=False)

    def __post_init__(self) -> None:
        self._recovered = clock.monotonic()
        self.compaction = CompactionMetrics(self.state.compaction, self.state.registry)

    def read(self) -> None:
        """Read the disk's usage. Blocks. Raises OSError."""
        usage = shutil.disk_usage(self.folder)
        self.free, self._size = usage.free, usage.total

    @property
    def groups(self) -> Sequence[GroupLagFigures]:
        """All groups, as `read_lags` found them."""
        return self._lags.groups

    @property
    def checkpoint_age(self) -> float:
        """Seconds since the last checkpoint, or since the start."""
        return clock.monotonic() - (self.state.log.figures().checkpoint_at or self._recovered)

    async def read_lags(self) -> None:
        """Read the lag of every group, in slices, nearly always from memory."""
        lags = _Lags()
        async for org, group, partitions in self.state.groups.lags.of_every_group(
            self.state.groups.every_group(), self.state.groups.now_ms
        ):
            if group.kind is GroupType.SHARE:
                partitions = await listed(self._share_lags(org, group))
            lags.add(org, group, partitions)
        self._lags = lags

    def _share_lags(self, org: int, group: Group) -> Iterator[GroupPartitionLag]:
        """The lag of a share group in the partitions of this broker."""
        for share in self.state.shares.table.of((org, group.name)):
            topic = self.state.registry.find(org, "", share.place.topic_id)
            if topic is None or not topic.has(share.place.partition):
                continue
            source = self.state.sources.partition(topic, share.place.partition)
            lag = lag_of(share, source)
            yield GroupPartitionLag(
                topic.name, share.place.partition, source.log_start, source.high_watermark,
                start_of(share, source), lag if lag >= 0 else None,
            )  # fmt: skip

    def collect(self) -> Iterator[Family]:
        """All families except those of `detail`."""
        yield from self._ops()
        yield from self._contents()
        yield from self._wal()
        yield from self._places()
        yield from self._transactions()
        yield from self._security()
        yield from self.compaction.collect()
        yield from source_families(self.state.redis, self.state.kafka)
        yield from group_families(self.state.groups)
        yield from share_families(self.state.shares)
        if self.state.snapshots.interval_ms:
            yield from self._snapshots()

    def _places(self) -> Iterator[Family]:
        places = self.state.places
        yield counter(
            "quafka_placed_bytes", "Bytes of record batches in answers by place", places.bytes
        )
        yield gauge(
            "quafka_place_gateways", "Gateway processes that take records by place", places.gateways
        )
        yield gauge(
            "quafka_handed_descriptors", "Descriptors of segments that gateways have",
            places.descriptors,
        )  # fmt: skip
        yield counter(
            "quafka_refused_place_gateways",
            "Connections for descriptors that were refused", places.refused,
        )  # fmt: skip

    def _transactions(self) -> Iterator[Family]:
        transactions = self.state.transactions
        found = figures_of(transactions)
        yield gauge("quafka_transactional_ids", "Transactional ids", found.ids)
        yield gauge(
            "quafka_transactions_open", "Transactional ids with an open transaction", found.open
        )
        yield gauge(
            "quafka_transaction_oldest_seconds", "Age of the oldest open transaction; 0 if none",
            found.oldest_ms / 1000,
        )  # fmt: skip
        yield gauge(
            "quafka_transaction_overdue_seconds",
            "Seconds by which the most overdue transaction has passed its timeout; 0 if none",
            found.overdue_ms / 1000,
        )  # fmt: skip
        yield gauge(
            "quafka_transactions_unfinished",
            "Transactions that have ended here, but not yet at all other brokers",
            found.unfinished,
        )  # fmt: skip
        yield gauge(
            "quafka_transaction_unfinished_seconds",
            "Seconds since the end of the first of these transactions; 0 if none",
            found.unfinished_ms / 1000,
        )  # fmt: skip
        yield gauge(
            "quafka_transaction_branches",
            "Transactions of other brokers with partitions here that are open", found.branches,
        )  # fmt: skip
        yield Family(
            "quafka_transactions_ended", FamilyKind.COUNTER,
            "Transactions that have ended, by outcome",
            [
                (("commit",), transactions.ending.committed),
                (("abort",), transactions.ending.aborted),
            ], ("outcome",),
        )  # fmt: skip
        yield counter(
            "quafka_transactions_timed_out", "Transactions that were aborted at their timeout",
            transactions.timed_out,
        )  # fmt: skip
        yield counter(
            "quafka_transaction_requests_fenced",
            "Requests and batches that were refused because a later session has begun",
            transactions.fenced,
        )  # fmt: skip

    def _security(self) -> Iterator[Family]:
        security = self.state.security
        orgs, users, acls, quotas = security.table.counts()
        yield Family(
            "quafka_security_records", FamilyKind.GAUGE, "Orgs, users, ACLs and quota entities",
            [
                (("org",), orgs), (("user",), users), (("acl",), acls), (("quota",), quotas),
            ], ("kind",),
        )  # fmt: skip
        yield gauge(
            "quafka_security_watchers", "Gateway processes that wait for changes of these records",
            security.watchers.parked,
        )  # fmt: skip
        yield gauge(
            "quafka_security_incomplete",
            "1 while damage hides changes of these records: no gateway gets any",
            int(bool(security.journal.incomplete)),
        )  # fmt: skip
        yield gauge(
            "quafka_orgs_deleting", "Orgs that are being deleted", len(security.orgs_to_delete())
        )

    def _snapshots(self) -> Iterator[Family]:
        status = self.state.snapshots
        yield gauge(
            "quafka_snapshot_age_seconds",
            "Seconds since the broker's last good snapshot or, without one, since its start",
            status.age_ms / 1000,
        )  # fmt: skip
        yield gauge(
            "quafka_snapshot_interval_seconds", "Interval between the broker's own snapshots",
            status.interval_ms / 1000,
        )  # fmt: skip
        yield counter("quafka_snapshots", "Snapshots that the broker made", status.made)
        yield counter(
            "quafka_snapshot_failures", "Snapshots that the broker failed to make", status.failures
        )

    def detail(self) -> Iterator[Family]:
        """The families of each partition and group."""
        groups = self._lags.groups
        yield Family(
            "kafka_topic_partitions", FamilyKind.GAUGE, "Partitions of a topic",
            (
                ((str(topic.org), topic.name), topic.partitions)
                for topic in self.state.registry.every_topic()
            ), ("org", "topic"),
        )  # fmt: skip
        yield Family(
            "kafka_topic_partition_current_offset", FamilyKind.GAUGE,
            "High watermark of a partition",
            self._offsets(1), _PARTITION,
        )  # fmt: skip
        yield Family(
            "kafka_topic_partition_oldest_offset", FamilyKind.GAUGE,
            "Log start offset of a partition",
            self._offsets(0), _PARTITION,
        )  # fmt: skip
        yield Family(
            "quafka_partition_unstable_records", FamilyKind.GAUGE,
            "Records from the last stable offset on; only of partitions with open transactions",
            self._unstable(), _PARTITION,
        )  # fmt: skip
        yield Family(
            "kafka_consumergroup_members", FamilyKind.GAUGE, "Members of a consumer group",
            ((group.labels, group.members) for group in groups), _GROUP,
        )  # fmt: skip
        yield Family(
            "kafka_consumergroup_lag_sum", FamilyKind.GAUGE,
            "Records that a consumer group has not consumed, in all partitions",
            ((group.labels, group.records) for group in groups), _GROUP,
        )  # fmt: skip
        yield from self._lag_families(self._lags)
        yield from self.compaction.detail()

    def _lag_families(self, lags: _Lags) -> Iterator[Family]:
        yield Family(
            "kafka_consumergroup_current_offset", FamilyKind.GAUGE, "Committed offset of a group",
            lags.samples(lags.committed), _GROUP_PARTITION,
        )  # fmt: skip
        yield Family(
            "kafka_consumergroup_lag", FamilyKind.GAUGE,
            "Records that a group has not yet consumed",
            lags.samples(lags.records), _GROUP_PARTITION,
        )  # fmt: skip
        yield Family(
            "kafka_consumergroup_lag_seconds", FamilyKind.GAUGE,
            "Age of the first record that a group has not yet consumed; 0 if none",
            lags.samples(lags.seconds), _GROUP_PARTITION,
        )  # fmt: skip
        yield Family(
            "kafka_consumergroup_catch_up_seconds", FamilyKind.GAUGE,
            "Seconds until a group has caught up at its present rate; missing if it will not",
            lags.samples(lags.catch_up_seconds), _GROUP_PARTITION,
        )  # fmt: skip

    def _offsets(self, which: int) -> Iterator[Sample]:
        """The log start (0) or high watermark (1) of each partition."""
        bounds = self.state.sources.bounds
        for topic in self.state.registry.every_topic():
            org, name = str(topic.org), topic.name
            for partition in range(topic.partitions):
                yield (org, name, str(partition)), bounds(topic, partition)[which]

    def _unstable(self) -> Iterator[Sample]:
        """The records of each partition that read_committed consumers do not get yet."""
        for topic in self.state.registry.every_topic():
            for number in range(0 if topic.source else topic.partitions):
                found = self.state.log.partitions.find(topic.partition_id(number))
                if found is not None and found.transactions is not None:
                    unstable = found.high_watermark - found.last_stable_offset
                    if unstable:
                        yield (str(topic.org), topic.name, str(number)), unstable

    def _ops(self) -> Iterator[Family]:
        ops = sorted((code.name.lower(), one) for code, one in self.stats.ops.items())
        yield Family(
            "quafka_broker_ops", FamilyKind.COUNTER, "Ops of gateways that the broker answered",
            [((op,), one.ops) for op, one in ops], ("op",),
        )  # fmt: skip
        yield Family(
            "quafka_broker_op_errors", FamilyKind.COUNTER,
            "Ops that failed as a whole; expected: the error is a step of the protocol",
            [
                ((op, ErrorCode.name_of(code), expected_label(code, one.step)), count)
                for op, one in ops
                for code, count in sorted(one.errors.items())
            ], ("op", "error", "expected"),
        )  # fmt: skip
        yield Family(
            "quafka_broker_op_duration_seconds", FamilyKind.HISTOGRAM,
            "Seconds from an op's arrival to its answer, without the time that it was parked",
            [((op,), one.seconds) for op, one in ops if one.ops], ("op",),
        )  # fmt: skip
        yield Family(
            "quafka_broker_op_parked_seconds", FamilyKind.COUNTER,
            "Seconds that ops were parked, for records or for other members of their group",
            [((op,), one.parked) for op, one in ops if one.ops], ("op",),
        )  # fmt: skip

    def _contents(self) -> Iterator[Family]:
        state = self.state
        topics = state.registry.every_topic()
        yield gauge("quafka_broker_topics", "Topics", len(topics))
        partitions = sum(topic.partitions for topic in topics)
        yield gauge("quafka_broker_partitions", "Partitions of all topics", partitions)
        yield gauge(
            "quafka_broker_producers",
            "Idempotent producers that the broker remembers, counted once per partition",
            len(state.producers),
        )  # fmt: skip
        yield gauge("quafka_broker_parked_fetches", "Parked fetches", len(state.parked_fetches))
        groups = [entry.group for _, entry in state.groups.every_group()]
        states = Counter(str(group.state) for group in groups)
        yield Family(
            "quafka_broker_groups", FamilyKind.GAUGE, "Consumer groups",
            [((name,), count) for name, count in sorted(states.items())], ("state",),
        )  # fmt: skip
        members = sum(group.member_count for group in groups)
        yield gauge("quafka_broker_group_members", "Members of all consumer groups", members)

    def _wal(self) -> Iterator[Family]:
        wal = self.state.log
        stats, figures = wal.stats, wal.figures()
        yield counter("quafka_wal_appends", "Appends to the log", stats.appends)
        yield counter("quafka_wal_commits", "Writes of the log; appends share them", stats.groups)
        yield counter(
            "quafka_wal_appended_bytes", "Bytes of record batches appended to the log", stats.bytes
        )
        yield Family(
            "quafka_wal_fsync_duration_seconds", FamilyKind.HISTOGRAM,
            "Seconds that a sync of the log takes",
            [((), stats.fsync)],
        )  # fmt: skip
        yield gauge(
            "quafka_wal_pending_bytes", "Bytes accepted and not yet written", figures.pending_bytes
        )
        yield gauge("quafka_wal_segments", "Segments of the log", figures.segments)
        yield gauge("quafka_wal_bytes", "Bytes in the log's segments", figures.bytes)
        yield from self._wal_health()
        yield gauge(
            "quafka_wal_checkpoint_age_seconds",
            "Seconds since the last checkpoint or, without one, since the start",
            self.checkpoint_age,
        )  # fmt: skip
        yield gauge(
            "quafka_wal_unsaved_bytes",
            "Bytes written after the last checkpoint",
            figures.unsaved_bytes,
        )
        yield counter(
            "quafka_wal_checkpoint_failures", "Checkpoints that could not be written",
            figures.checkpoint_failures,
        )  # fmt: skip

    def _wal_health(self) -> Iterator[Family]:
        wal = self.state.log
        figures, health = wal.figures(), wal.health()
        yield gauge(
            "quafka_wal_leader_epoch",
            "Leader epoch; it rises when acknowledged records may have been lost",
            wal.epochs.current,
        )  # fmt: skip
        yield gauge("quafka_wal_quarantined", "Damaged ranges of the log", health.damages)
        yield gauge(
            "quafka_wal_failed", "1: the log takes no more writes until the broker restarts",
            int(health.failed is not None),
        )  # fmt: skip
        yield gauge(
            "quafka_wal_refusing", "1: the last write was refused",
            int(health.refusing is not None),
        )  # fmt: skip
        yield gauge(
            "quafka_wal_reserve_held", "0: the disk is full, and the reserve is in use",
            int(figures.reserve_held),
        )  # fmt: skip
        yield gauge("quafka_wal_disk_free_bytes", "Free bytes on the log's file system", self.free)
        yield gauge(
            "quafka_wal_disk_size_bytes", "Size of the log's file system in bytes", self._size
        )
