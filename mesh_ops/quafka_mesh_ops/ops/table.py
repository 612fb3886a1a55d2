"""The table of all ops, by op code."""

from __future__ import annotations

from quafka_mesh_ops.ops import (
    admin,
    branches,
    bulk,
    cluster,
    consumer_groups,
    group_configs,
    group_offsets,
    groups,
    lag,
    leases,
    memory,
    offsets,
    pieces,
    places,
    previous,
    probe,
    records,
    security,
    share_groups,
    shares,
    snapshots,
    topics,
    transactions,
)
from quafka_mesh_ops.ops.base import AnyOp

_FAMILIES = (
    records, offsets, topics, leases, groups, consumer_groups, group_offsets, group_configs, admin,
    lag, probe, places, bulk, memory, pieces, cluster, snapshots, transactions, branches, security,
    share_groups, shares, previous,
)  # fmt: skip

OPS: dict[int, type[AnyOp]] = {op.code: op for family in _FAMILIES for op in family.ALL}
