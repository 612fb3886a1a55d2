"""The transactions of a partition during a pass. Pure; batches in offset order.

Records of aborted transactions are removed. A marker is kept if the pass has met a batch of its
transaction, even one that it removes: a start without a checkpoint finds transactions by their
batches.
"""

from __future__ import annotations

from collections.abc import Iterable

from quafka_broker.partitions.transactions import AbortedRange
from quafka_proto.log_format import ROW_ABORT, IndexRow


class PassTransactions:
    """The transactions that have begun at or before the last batch that was met."""

    def __init__(self, aborted: Iterable[AbortedRange]) -> None:
        """`aborted`: the aborted transactions that may have records in the range of the pass."""
        self._to_come = sorted(aborted, key=lambda one: one.first_offset, reverse=True)
        self._aborted: dict[int, bool] = {}  # producers, and whether a batch was met
        self._committed: set[int] = set()

    def is_aborted(self, row: IndexRow) -> bool:
        """Note a transactional batch; returns whether its transaction was aborted."""
        self._advance(row)
        if row.producer_id in self._aborted:
            self._aborted[row.producer_id] = True
            return True
        self._committed.add(row.producer_id)
        return False

    def is_without_data(self, row: IndexRow) -> bool:
        """Note a marker; returns whether no batch of its transaction was met."""
        self._advance(row)
        if row.flags & ROW_ABORT:
            return not self._aborted.pop(row.producer_id, False)
        if row.producer_id in self._committed:
            self._committed.remove(row.producer_id)
            return False
        return True

    def _advance(self, row: IndexRow) -> None:
        last = row.base_offset + row.record_count - 1
        while self._to_come and self._to_come[-1].first_offset <= last:
            self._aborted.setdefault(self._to_come.pop().producer_id, False)
