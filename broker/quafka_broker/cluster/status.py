"""The cluster as one of its brokers shows it: a section of /statusz, and metrics."""

from __future__ import annotations

from collections.abc import Iterator

from quafka_broker.cluster.member import ClusterMember
from quafka_loop import clock
from quafka_telemetry.metrics import Family, FamilyKind, counter, gauge
from quafka_telemetry.status_page import Cell, PageTable, Section, text


def cluster_section(member: ClusterMember) -> Section:
    """The shards: owners, leases and placement."""
    rows: list[tuple[Cell, ...]] = []
    for shard, manifest in enumerate(member.view.manifests):
        owner = None if manifest is None else manifest.owner
        left = 0.0 if manifest is None else manifest.lease_until_ms / 1000 - clock.time()
        target = member.view.target[shard]
        rows.append(
            (
                text(str(shard)),
                text(f"{owner.node[:16]} at {owner.address}" if owner else "nobody"),
                text("yes" if shard in member.moves.hosted else ""),
                text(str(manifest.epoch if manifest else 0)),
                text(f"{left:.1f} s" if owner else ""),
                text("" if owner and owner.node == target else f"to {target[:16] or 'nobody'}"),
                text(member.view.problems.get(shard, "")),
            )
        )
    there = ", ".join(
        f"{each.node[:16]} at {each.address}{' (draining)' if each.draining else ''}"
        for each in member.view.members.there()
    )
    columns = ("shard", "owner", "here", "epoch", "lease", "moves", "problem")
    return PageTable(f"Shards of the cluster; brokers: {there or 'none'}", columns, rows)


def cluster_families(member: ClusterMember) -> Iterator[Family]:
    """The cluster as this broker sees it, and the moves of shards."""
    owners = [
        ((str(shard), manifest.owner.node[:16]), 1)
        for shard, manifest in enumerate(member.view.manifests)
        if manifest is not None and manifest.owner is not None
    ]
    yield Family(
        "quafka_shard_owner", FamilyKind.GAUGE, "1 for the broker that owns a shard", owners,
        ("shard", "node"),
    )  # fmt: skip
    yield Family(
        "quafka_shard_epoch", FamilyKind.COUNTER, "Owners that a shard has had",
        [
            ((str(shard),), 0 if manifest is None else manifest.epoch)
            for shard, manifest in enumerate(member.view.manifests)
        ], ("shard",),
    )  # fmt: skip
    yield gauge("quafka_shards", "Shards of the cluster", len(member.view.manifests))
    yield gauge("quafka_shards_here", "Shards at this broker", len(member.moves.hosted))
    yield gauge(
        "quafka_shards_free", "Shards without an owner that renews its lease",
        len(member.view.free - member.moves.hosted.keys()),
    )  # fmt: skip
    yield gauge(
        "quafka_shards_failed", "Shards that this broker cannot open", len(member.view.problems)
    )
    yield gauge(
        "quafka_cluster_brokers", "Brokers of the cluster that are alive",
        len(member.view.members.there()),
    )  # fmt: skip
    yield counter(
        "quafka_shards_taken", "Shards that this broker has taken over", member.moves.taken
    )
    yield counter(
        "quafka_shards_given_up", "Shards that this broker has given up", member.moves.given_up
    )
    yield counter(
        "quafka_shards_lost",
        "Shards that another broker has taken over from this one",
        member.moves.lost,
    )
