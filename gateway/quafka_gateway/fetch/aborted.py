"""Aborted transactions of cached batches, whose records a read_committed consumer drops. Pure.

A transaction concerns the offsets from its first record to its control batch. An answer for
[first, end) must list every transaction that concerns some of these offsets, and no other: a
consumer forgets a transaction at its control batch, so one that ended before `first` would hide
the producer's next, committed one.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from quafka_mesh_ops.ops.records import AbortedByOffset

READ_UNCOMMITTED, READ_COMMITTED = 0, 1
"""Kafka's isolation levels."""

Aborted = Sequence[AbortedByOffset]
"""Aborted transactions, each once, in the order of their first offsets."""
NONE: Aborted = ()


def concerning(aborted: Aborted, first: int, end: int) -> Aborted:
    """Those that concern offsets in [first, end)."""
    if not aborted:
        return NONE
    return [each for each in aborted if each.last_offset >= first and each.first_offset < end]


def joined(lists: Iterable[Aborted]) -> Aborted:
    """The transactions of several lists."""
    some = [each for each in lists if each]
    if len(some) <= 1:
        return some[0] if some else NONE
    unique = {(each.first_offset, each.producer_id): each for one in some for each in one}
    return [unique[key] for key in sorted(unique)]
