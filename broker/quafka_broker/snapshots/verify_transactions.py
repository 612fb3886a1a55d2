"""Verifies the transactions in a manifest against the index rows of its log."""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Set

from quafka_proto.log_format import ROW_ABORT, ROW_CONTROL, IndexRow
from quafka_proto.snapshot_format import (
    OpenTransaction,
    SnapshotAbortedTransaction,
    SnapshotPartition,
)


class FoundTransactions:
    """The transactional batches of one partition, in the order in which they are read.

    Memory: 24 bytes for each transactional batch.
    """

    def __init__(self) -> None:
        # First offset, producer id and flags of each batch's row, alternately.
        self._found = array("q")

    def add(self, row: IndexRow) -> None:
        """Add the row of a transactional batch."""
        self._found.extend((row.base_offset, row.producer_id, row.flags))

    def faults(self, name: str, partition: SnapshotPartition) -> Iterator[str]:
        """The differences between the manifest's transactions and those of the batches.

        Deletion below the log start may have removed the first batches of a transaction, and damage
        any of them. So not every transaction of the manifest must have batches.
        """
        open_, aborted = self._transactions(partition)
        yield from _unknown_aborted(name, partition, aborted)
        yield from _unknown_open(name, partition, open_)
        markers = self._markers()
        for each in partition.aborted:
            at = each.last_offset
            if (at, each.producer_id) not in markers and not _lost(partition, at, at + 1):
                yield f"{name}: no control batch ends the aborted {_about(each)}"
        stable = min((at.first_offset for at in partition.open), default=partition.high_watermark)
        stable = max(stable, partition.log_start)
        if partition.last_stable_offset != stable:
            yield f"{name}: the last stable offset is {partition.last_stable_offset}, not {stable}"

    def _transactions(
        self, partition: SnapshotPartition
    ) -> tuple[list[OpenTransaction], list[SnapshotAbortedTransaction]]:
        """The transactions of the batches below the high watermark: open and aborted ones."""
        open_: dict[int, int] = {}
        aborted: list[SnapshotAbortedTransaction] = []
        found = self._found
        for offset, producer_id, flags in sorted(
            zip(found[::3], found[1::3], found[2::3], strict=True)
        ):
            if not partition.log_start <= offset < partition.high_watermark:
                continue
            if not flags & ROW_CONTROL:
                open_.setdefault(producer_id, offset)
                continue
            first = open_.pop(producer_id, None)
            if first is not None and flags & ROW_ABORT:
                aborted.append(SnapshotAbortedTransaction(producer_id, first, offset))
        return [OpenTransaction(*item) for item in open_.items()], aborted

    def _markers(self) -> Set[tuple[int, int]]:
        """Offset and producer id of each marker that aborts."""
        found = self._found
        every = zip(found[::3], found[1::3], found[2::3], strict=True)
        return {(offset, id_) for offset, id_, flags in every if flags & ROW_ABORT}


def _unknown_aborted(
    name: str, partition: SnapshotPartition, aborted: list[SnapshotAbortedTransaction]
) -> Iterator[str]:
    promised = {(each.producer_id, each.last_offset): each for each in partition.aborted}
    for found in aborted:
        known = promised.get((found.producer_id, found.last_offset))
        missing = known is None or known.first_offset > found.first_offset
        # A lost end makes two transactions look like one.
        if missing and not _lost(partition, found.first_offset, found.last_offset):
            yield f"{name}: the manifest lacks the aborted {_about(found)}"


def _unknown_open(
    name: str, partition: SnapshotPartition, open_: list[OpenTransaction]
) -> Iterator[str]:
    promised = {each.producer_id: each.first_offset for each in partition.open}
    for found in open_:
        first = promised.get(found.producer_id, partition.high_watermark)
        if first > found.first_offset and not _lost(
            partition, found.first_offset, partition.high_watermark
        ):
            yield (
                f"{name}: the manifest lacks the open transaction of producer "
                f"{found.producer_id} from offset {found.first_offset}"
            )


def _lost(partition: SnapshotPartition, start: int, stop: int) -> bool:
    """Whether some offsets of a range are lost to damage."""
    return any(first < stop and end > start for first, end in partition.lost)


def _about(aborted: SnapshotAbortedTransaction) -> str:
    return (
        f"transaction of producer {aborted.producer_id} at the offsets {aborted.first_offset} to "
        f"{aborted.last_offset}"
    )
