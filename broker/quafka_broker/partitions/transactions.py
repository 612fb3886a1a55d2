"""The transactions of one partition: open ones, the last stable offset, aborted ones. Pure.

This state follows from the partition's batches in the order of the log, as described by their index
rows: the first transactional batch of a producer opens a transaction, and the producer's next
control batch (a marker) ends it.

Aborted transactions are kept in the order of their markers, each with the last stable offset after
its marker. A transaction that ends later began at or after that offset, so a search may stop at the
first one whose last stable offset is not below the range (as in Kafka's transaction index).
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from quafka_broker.partitions.gaps import Gaps
from quafka_proto.log_format import ROW_ABORT, ROW_CONTROL, IndexRow


class AbortedRange(NamedTuple):
    """An aborted transaction of a partition; `last_offset` is that of its marker."""

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


class TransactionsState(NamedTuple):
    """The transactions of a partition, as a checkpoint keeps them.

    `open`: producer id and first offset of each, by offset. `aborted`: fields of `AbortedRange`.
    """

    open: Sequence[tuple[int, int]]
    aborted: Sequence[tuple[int, int, int, int]]


class PartitionTransactions:
    """One partition's open and aborted transactions."""

    __slots__ = ("_firsts", "_lasts", "_open", "_producers", "_stable")

    def __init__(self) -> None:
        self._open: OrderedDict[int, int] = OrderedDict()  # first offsets ascend
        self._lasts = array("q")
        self._firsts = array("q")
        self._producers = array("q")
        self._stable = array("q")

    def __bool__(self) -> bool:
        """Whether there is any state to remember."""
        return bool(self._open or self._lasts)

    # --- open transactions ------------------------------------------------------------------

    @property
    def first_open(self) -> int | None:
        """The lowest first offset of the open transactions."""
        return next(iter(self._open.values())) if self._open else None

    @property
    def open(self) -> Sequence[tuple[int, int]]:
        """The open transactions: producer id and first offset, by offset."""
        return list(self._open.items())

    @property
    def aborted_count(self) -> int:
        """The number of remembered aborted transactions."""
        return len(self._lasts)

    def first_of(self, producer_id: int) -> int | None:
        """The first offset of a producer's open transaction."""
        return self._open.get(producer_id)

    def add(self, row: IndexRow) -> None:
        """Add a transactional batch or a marker, at the end of the partition."""
        if row.flags & ROW_CONTROL:
            self.end(row.producer_id, row.base_offset, aborted=bool(row.flags & ROW_ABORT))
        elif row.producer_id not in self._open:
            self._open[row.producer_id] = row.base_offset

    def end(self, producer_id: int, last_offset: int, *, aborted: bool) -> None:
        """End a producer's transaction, if it is open; its marker is at `last_offset`."""
        first = self._open.pop(producer_id, None)
        if first is None or not aborted:
            return
        # Markers arrive in the order of offsets, except those that replace damaged ones.
        at = bisect_left(self._lasts, last_offset)
        stable = self.first_open
        if at < len(self._lasts):
            stable = 0  # no longer known: no search stops here
        elif stable is None:
            stable = last_offset + 1
        self._lasts.insert(at, last_offset)
        self._firsts.insert(at, first)
        self._producers.insert(at, producer_id)
        self._stable.insert(at, stable)

    # --- aborted transactions ---------------------------------------------------------------

    def aborted(self, start: int, end: int) -> list[AbortedRange]:
        """The aborted transactions that may have records in [start, end)."""
        found: list[AbortedRange] = []
        for at in range(bisect_left(self._lasts, start), len(self._lasts)):
            if self._firsts[at] < end:
                found.append(self._aborted_at(at))
            if self._stable[at] >= end:
                break
        return found

    def _aborted_at(self, at: int) -> AbortedRange:
        return AbortedRange(
            self._producers[at], self._firsts[at], self._lasts[at], self._stable[at]
        )  # fmt: skip

    def every_aborted(self) -> Iterator[tuple[int, int, int]]:
        """Producer id, first and last offset of all aborted transactions, by last offset."""
        return zip(self._producers, self._firsts, self._lasts, strict=True)

    def drop_below(self, offset: int) -> None:
        """Drop the aborted transactions without remaining records."""
        gone = bisect_left(self._lasts, offset)
        if gone:
            for column in (self._lasts, self._firsts, self._producers, self._stable):
                del column[:gone]

    def markers_in(self, gaps: Gaps) -> list[int]:
        """The markers of aborted transactions that are in gaps. Safe in any thread."""
        return [last for last in self._lasts[:] if gaps.end_of(last) > last]

    def drop_markers(self, offsets: Iterable[int]) -> None:
        """Drop the aborted transactions with these markers."""
        for offset in offsets:
            at = bisect_left(self._lasts, offset)
            if at < len(self._lasts) and self._lasts[at] == offset:
                for column in (self._lasts, self._firsts, self._producers, self._stable):
                    del column[at]

    # --- copies -------------------------------------------------------------------------

    def copy(self) -> PartitionTransactions:
        """A copy for a thread: 32 bytes and 50 ns for each aborted transaction."""
        copied = PartitionTransactions()
        copied._open.update(self._open)
        copied._lasts, copied._firsts = self._lasts[:], self._firsts[:]
        copied._producers, copied._stable = self._producers[:], self._stable[:]
        return copied

    def dump(self) -> TransactionsState:
        """The whole state, for a checkpoint."""
        return TransactionsState(
            self.open, [self._aborted_at(at) for at in range(len(self._lasts))]
        )

    @classmethod
    def load(cls, state: TransactionsState) -> PartitionTransactions:
        """Load the result of `dump`."""
        loaded = cls()
        loaded._open.update(state.open)
        for producer_id, first, last, stable in state.aborted:
            loaded._producers.append(producer_id)
            loaded._firsts.append(first)
            loaded._lasts.append(last)
            loaded._stable.append(stable)
        return loaded
