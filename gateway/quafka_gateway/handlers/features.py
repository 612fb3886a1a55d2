"""The features that the gateway finalizes (KIP-584). Pure.

`transaction.version` 2 (KIP-890): partitions join a transaction with their first produce, and every
EndTxn changes the producer's epoch. Clients that do not read features use version 1, which is
served as well.
"""

from __future__ import annotations

from typing import NamedTuple


class Feature(NamedTuple):
    """A feature that is always finalized at its highest level."""

    name: str
    low: int
    level: int


FEATURES = (Feature("transaction.version", 0, 2),)
EPOCH = 0
"""The epoch of the finalized features: they never change."""
