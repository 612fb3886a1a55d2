"""The features that the gateway finalizes (KIP-584). Pure.

`transaction.version` 2 (KIP-890): partitions join a transaction with their first produce, and every
EndTxn changes the producer's epoch. Clients that do not read features use version 1, which is
served as well. `group.version` 1 stands for the consumer group protocol (KIP-848), and
`share.version` 1 for share groups (KIP-932).
"""

from __future__ import annotations

from typing import NamedTuple


class Feature(NamedTuple):
    """A feature that is always finalized at its highest level."""

    name: str
    low: int
    level: int


FEATURES = (
    Feature("group.version", 0, 1),
    Feature("share.version", 0, 1),
    Feature("transaction.version", 0, 2),
)
EPOCH = 0
"""The epoch of the finalized features: they never change."""
