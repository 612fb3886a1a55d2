"""A broker's metrics, read from the numbers that it keeps anyway.

What there is of every partition or group has the names that kafka_exporter gave it, so that
dashboards and alerts carry over. It is on a page of its own.
"""

from __future__ import annotations

import shutil
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from quafka_broker.op_stats import BrokerStats
from quafka_broker.state import BrokerState
from quafka_mesh_ops.metrics import Family, Kind, Sample, counter, gauge
from quafka_proto.errors import ErrorCode

_PARTITION = ("org", "topic", "partition")
_GROUP = ("org", "consumergroup")
_GROUP_PARTITION = (*_GROUP, "topic", "partition")


class _Group(NamedTuple):
    labels: tuple[str, str]
    members: int
    records: int


class _Lag(NamedTuple):
    """A group's in one partition: `labels` are those of `_GROUP_PARTITION`."""

    labels: tuple[str, str, str, str]
    committed: int
    records: int
    seconds: float | None
    catch_up_seconds: float | None


@dataclass(slots=True)
class BrokerMetrics:
    """What there is to say of a broker whose log is open."""

    state: BrokerState
    stats: BrokerStats
    folder: Path
    _free: int = 0
    _size: int = 0
    _recovered: float = field(default_factory=time.monotonic)
    _lags: list[_Lag] = field(default_factory=list[_Lag])
    _groups: list[_Group] = field(default_factory=list[_Group])

    def read(self) -> None:
        """Look at the disk, which may block. Raises OSError."""
        usage = shutil.disk_usage(self.folder)
        self._free, self._size = usage.free, usage.total

    async def read_lags(self) -> None:
        """Find out how far behind every group is; in slices, and from memory nearly always."""
        lags: list[_Lag] = []
        groups: list[_Group] = []
        async for org, group, partitions in self.state.groups.every_lag():
            labels = str(org), group.name
            known = [
                _Lag(
                    (*labels, each.topic, str(each.partition)),
                    each.committed, each.records, each.seconds, each.catch_up_seconds,
                )
                for each in partitions
                if each.committed is not None and each.records is not None
            ]  # fmt: skip
            lags += known
            groups.append(_Group(labels, len(group.members), sum(lag.records for lag in known)))
        self._lags, self._groups = lags, groups

    def collect(self) -> Iterator[Family]:
        """All families but those of `detail`."""
        yield from self._ops()
        yield from self._contents()
        yield from self._wal()

    def detail(self) -> Iterator[Family]:
        """Every partition and every group."""
        groups = self._groups
        yield Family(
            "kafka_topic_partitions", Kind.GAUGE, "Partitions of a topic",
            (
                ((str(topic.org), topic.name), topic.partitions)
                for topic in self.state.registry.every_topic()
            ), ("org", "topic"),
        )  # fmt: skip
        yield Family(
            "kafka_topic_partition_current_offset", Kind.GAUGE, "High watermark of a partition",
            self._offsets(1), _PARTITION,
        )  # fmt: skip
        yield Family(
            "kafka_topic_partition_oldest_offset", Kind.GAUGE, "Log start offset of a partition",
            self._offsets(0), _PARTITION,
        )  # fmt: skip
        yield Family(
            "kafka_consumergroup_members", Kind.GAUGE, "Members of a consumer group",
            ((group.labels, group.members) for group in groups), _GROUP,
        )  # fmt: skip
        yield Family(
            "kafka_consumergroup_lag_sum", Kind.GAUGE,
            "Records that a consumer group has not consumed, in all partitions",
            ((group.labels, group.records) for group in groups), _GROUP,
        )  # fmt: skip
        yield from self._lag_families(self._lags)

    def _lag_families(self, lags: list[_Lag]) -> Iterator[Family]:
        yield Family(
            "kafka_consumergroup_current_offset", Kind.GAUGE, "Committed offset of a group",
            ((lag.labels, lag.committed) for lag in lags), _GROUP_PARTITION,
        )  # fmt: skip
        yield Family(
            "kafka_consumergroup_lag", Kind.GAUGE, "Records that a group has not consumed",
            ((lag.labels, lag.records) for lag in lags), _GROUP_PARTITION,
        )  # fmt: skip
        yield Family(
            "kafka_consumergroup_lag_seconds", Kind.GAUGE,
            "Age of the first record that a group has not consumed; 0 where there is none",
            ((lag.labels, lag.seconds) for lag in lags if lag.seconds is not None),
            _GROUP_PARTITION,
        )  # fmt: skip
        yield Family(
            "kafka_consumergroup_catch_up_seconds", Kind.GAUGE,
            "Until a group will have caught up at its present pace; missing where it will not",
            (
                (lag.labels, lag.catch_up_seconds)
                for lag in lags
                if lag.catch_up_seconds is not None
            ),
            _GROUP_PARTITION,
        )  # fmt: skip

    def _offsets(self, which: int) -> Iterator[Sample]:
        """Log start (0) or high watermark (1) of every partition."""
        offsets = self.state.log.offsets
        for topic in self.state.registry.every_topic():
            org, name = str(topic.org), topic.name
            for partition in range(topic.partitions):
                found = offsets(topic.virtual(partition))
                yield (org, name, str(partition)), found[which]

    def _ops(self) -> Iterator[Family]:
        ops = sorted((code.name.lower(), one) for code, one in self.stats.ops.items())
        yield Family(
            "quafka_broker_ops", Kind.COUNTER, "Ops of gateways that were answered",
            [((op,), one.ops) for op, one in ops], ("op",),
        )  # fmt: skip
        yield Family(
            "quafka_broker_op_errors", Kind.COUNTER, "Ops that failed as a whole",
            [
                ((op, ErrorCode.name_of(code)), count)
                for op, one in ops
                for code, count in sorted(one.errors.items())
            ], ("op", "error"),
        )  # fmt: skip
        yield Family(
            "quafka_broker_op_duration_seconds", Kind.HISTOGRAM,
            "From an op's arrival to its answer, without the time for which it was parked",
            [((op,), one.seconds) for op, one in ops if one.ops], ("op",),
        )  # fmt: skip
        yield Family(
            "quafka_broker_op_parked_seconds", Kind.COUNTER,
            "What ops waited for records, or for other members of their group",
            [((op,), one.parked) for op, one in ops if one.ops], ("op",),
        )  # fmt: skip

    def _contents(self) -> Iterator[Family]:
        state = self.state
        topics = state.registry.every_topic()
        yield gauge("quafka_broker_topics", "Topics", len(topics))
        partitions = sum(topic.partitions for topic in topics)
        yield gauge("quafka_broker_partitions", "Partitions of all topics", partitions)
        yield gauge(
            "quafka_broker_producers", "Idempotent producers that are remembered, by partition",
            len(state.producers),
        )  # fmt: skip
        yield gauge("quafka_broker_parked_fetches", "Fetches that wait", state.purgatory.fetches)
        groups = [kept.group for _, kept in state.groups.every_group()]
        states = Counter(group.state.value for group in groups)
        yield Family(
            "quafka_broker_groups", Kind.GAUGE, "Consumer groups",
            [((name,), count) for name, count in sorted(states.items())], ("state",),
        )  # fmt: skip
        members = sum(len(group.members) for group in groups)
        yield gauge("quafka_broker_group_members", "Members of all consumer groups", members)

    def _wal(self) -> Iterator[Family]:
        wal = self.state.log
        stats, figures, health = wal.stats, wal.figures(), wal.health()
        yield counter("quafka_wal_appends", "Appends that are in the log", stats.appends)
        yield counter("quafka_wal_commits", "Writes that they shared", stats.groups)
        yield counter("quafka_wal_appended_bytes", "Bytes of record batches", stats.bytes)
        yield Family(
            "quafka_wal_fsync_duration_seconds", Kind.HISTOGRAM, "How long the disk takes to sync",
            [((), stats.fsync)],
        )  # fmt: skip
        yield gauge(
            "quafka_wal_pending_bytes", "Accepted, and not written yet", figures.pending_bytes
        )
        yield gauge("quafka_wal_segments", "Files of the log", figures.segments)
        yield gauge("quafka_wal_bytes", "Bytes in them", figures.bytes)
        yield gauge("quafka_wal_quarantined", "Damaged pieces of the log", health.damages)
        yield gauge(
            "quafka_wal_failed", "1: no more writes until the broker is started again",
            int(health.failed is not None),
        )  # fmt: skip
        yield gauge(
            "quafka_wal_refusing", "1: the last write was refused",
            int(health.refusing is not None),
        )  # fmt: skip
        yield gauge(
            "quafka_wal_reserve_held", "0: the disk is full, and the reserve in use",
            int(figures.reserve_held),
        )  # fmt: skip
        yield gauge("quafka_wal_disk_free_bytes", "Room on the log's file system", self._free)
        yield gauge("quafka_wal_disk_size_bytes", "Size of the log's file system", self._size)
        yield gauge(
            "quafka_wal_checkpoint_age_seconds", "Since the last checkpoint, or since the start",
            time.monotonic() - (figures.checkpoint_at or self._recovered),
        )  # fmt: skip
        yield gauge(
            "quafka_wal_unsaved_bytes", "Written behind the last checkpoint", figures.unsaved_bytes
        )
        yield counter(
            "quafka_wal_checkpoint_failures", "Checkpoints that could not be written",
            figures.checkpoint_failures,
        )  # fmt: skip
