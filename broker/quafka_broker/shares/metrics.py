"""Metrics of share groups."""

from __future__ import annotations

from collections.abc import Iterator

from quafka_broker.shares.shares import BrokerShares
from quafka_broker.shares.states import Acknowledge
from quafka_telemetry.metrics import Family, FamilyKind, counter, gauge


def full_partitions(shares: BrokerShares) -> int:
    """The share partitions whose window is full while a member waits for more."""
    return sum([found.is_full for found in shares.table])


def share_families(shares: BrokerShares) -> Iterator[Family]:
    """The families of all share groups together."""
    usages = shares.table.usages
    yield gauge(
        "quafka_share_partitions", "Partitions that share groups read, each group's counted",
        sum(usage.partitions for usage in usages),
    )  # fmt: skip
    yield gauge(
        "quafka_share_in_flight_records", "Offsets that share groups have in flight",
        sum(usage.in_flight for usage in usages),
    )  # fmt: skip
    yield gauge(
        "quafka_share_full_partitions",
        "Partitions of which a share group has as many offsets in flight as it may, and members "
        "wait", full_partitions(shares),
    )  # fmt: skip
    yield counter(
        "quafka_share_acquired_records", "Records given to members of share groups",
        shares.acquired,
    )  # fmt: skip
    yield Family(
        "quafka_share_acknowledged_records", FamilyKind.COUNTER,
        "Records that members of share groups have acknowledged",
        [((kind.name.lower(),), shares.acknowledged[kind]) for kind in Acknowledge], ("type",),
    )  # fmt: skip
    yield counter(
        "quafka_share_expired_locks", "Records that were not acknowledged in time", shares.expired
    )
    yield counter(
        "quafka_share_exhausted_records",
        "Records archived because they were delivered too often", shares.exhausted,
    )  # fmt: skip
