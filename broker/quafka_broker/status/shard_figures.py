"""Merges the metrics of all shards of a broker, as if they were one log."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain

from quafka_broker.status.metrics import BrokerMetrics
from quafka_telemetry.metrics import Family, FamilyKind, Histogram, Sample, Value

_OPS = "quafka_broker_op"
_FIRST = ("quafka_wal_disk_", _OPS)
"""Families that are equal for all shards: of the disk, and of the process's ops."""
_LEAST = ("quafka_wal_reserve_held",)
_MOST = (
    "quafka_wal_checkpoint_age_seconds", "quafka_wal_leader_epoch", "quafka_wal_failed",
    "quafka_wal_refusing", "quafka_security_incomplete", "quafka_snapshot_age_seconds",
    "quafka_snapshot_interval_seconds", "quafka_transaction_oldest_seconds",
    "quafka_transaction_overdue_seconds", "quafka_transaction_unfinished_seconds",
)  # fmt: skip


class ShardsFigures:
    """Reads and merges the metrics of the shards that are here now."""

    def __init__(self, shards: Callable[[], Sequence[BrokerMetrics]]) -> None:
        self._shards = shards

    def read(self) -> None:
        """Read the disk's usage. Blocks. Raises OSError."""
        for each in self._shards():
            each.read()

    async def read_lags(self) -> None:
        """Read the lag of every group, in slices."""
        for each in self._shards():
            await each.read_lags()

    async def read_compaction(self) -> None:
        """Read the status of compaction, in slices."""
        for each in self._shards():
            await each.compaction.read()

    def collect(self) -> Iterator[Family]:
        """All families except those of `detail`: sums, or the worst of the shards."""
        shards = self._shards()
        if len(shards) == 1:
            yield from shards[0].collect()
            return
        found: dict[str, list[Family]] = {}
        for each in shards:
            for family in each.collect():
                found.setdefault(family.name, []).append(family)
        yield from map(_merged, found.values())

    def detail(self) -> Iterator[Family]:
        """The families of partitions and groups, each of which is at one shard."""
        found: dict[str, list[Family]] = {}
        for each in self._shards():
            for family in each.detail():
                found.setdefault(family.name, []).append(family)
        for families in found.values():
            samples = chain.from_iterable(family.samples for family in families)
            yield families[0]._replace(samples=samples)


def _merged(families: Sequence[Family]) -> Family:
    first = families[0]
    if first.name.startswith(_FIRST):
        return first
    samples: dict[tuple[str, ...], Value] = {}
    for labels, value in chain.from_iterable(family.samples for family in families):
        known = samples.get(labels)
        samples[labels] = value if known is None else _combined(first, known, value)
    return first._replace(samples=_listed(samples.items()))


def _listed(samples: Iterable[Sample]) -> list[Sample]:
    return list(samples)


def _combined(family: Family, one: Value, other: Value) -> Value:
    if isinstance(one, Histogram) and isinstance(other, Histogram):
        both = Histogram(one.bounds)
        both.counts = [a + b for a, b in zip(one.counts, other.counts, strict=True)]
        both.sum = one.sum + other.sum
        return both
    assert not isinstance(one, Histogram)
    assert not isinstance(other, Histogram)
    if family.kind is FamilyKind.GAUGE and family.name in _LEAST:
        return min(one, other)
    if family.kind is FamilyKind.GAUGE and family.name in _MOST:
        return max(one, other)
    return one + other
