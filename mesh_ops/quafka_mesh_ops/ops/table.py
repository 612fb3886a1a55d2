"""The table of all ops, by op code."""

from __future__ import annotations

from quafka_mesh_ops.ops import (
    admin,
    branches,
    bulk,
    group_offsets,
    groups,
    lag,
    leases,
    offsets,
    places,
    probe,
    records,
    security,
    snapshots,
    topics,
    transactions,
)
from quafka_mesh_ops.ops.base import AnyOp

_FAMILIES = (
    records, offsets, topics, leases, groups, group_offsets, admin, lag, probe, places, bulk,
    snapshots, transactions, branches, security,
)  # fmt: skip

OPS: dict[int, type[AnyOp]] = {op.code: op for family in _FAMILIES for op in family.ALL}
