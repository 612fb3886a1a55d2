"""Decides which record batches of a segment change, before the segment is rewritten."""

from __future__ import annotations

from collections.abc import Collection
from enum import IntEnum
from typing import Protocol

from quafka_broker.partitions.gaps import Range
from quafka_broker.partitions.partition import PartitionId
from quafka_broker.wal.disk import Buffer
from quafka_broker.wal.rewrite_segment import Examined
from quafka_broker.wal.segment import Segment
from quafka_broker.wal.segment_entries import Entries, SegmentEntries, Steps
from quafka_proto.log_format import ENTRY_HEADER_SIZE, IndexRow

STEP_BYTES = 64 << 10
"""Bytes of batches per step: for small batches, the decisions take a few milliseconds."""


class Verdict(IntEnum):
    """The decision about a batch: keep it, drop it, or drop all or some of its records.

    FILTER also if only its delete horizon is set.
    """

    KEEP = 0
    DROP = 1
    EMPTY = 2
    FILTER = 3


class BatchEditor(Protocol):
    """Decides about the batches of some partitions. Called in another thread."""

    @property
    def partitions(self) -> Collection[PartitionId]:
        """The partitions whose batches may change."""
        ...

    def decide(self, row: IndexRow, batch: memoryview) -> Verdict:
        """Decide about a batch. Called once for each, in the order of offsets.

        Raises:
            Malformed: the batch cannot be read.
        """
        ...

    def edited(self, row: IndexRow, batch: memoryview, verdict: Verdict) -> Buffer:
        """The batch without all or some of its records, with the same bounds, producer and codec.

        Raises:
            Malformed: the batch cannot be read.
        """
        ...


class SegmentEdit:
    """The decisions about one segment.

    Attributes:
        removed: the offsets of dropped batches, in order, by partition.
        partitions: the partitions with changed batches.
        bytes: bytes of the decided batches.
    """

    def __init__(self, segment: Segment, found: Examined, editor: BatchEditor) -> None:
        self._found = found
        self._editor = editor
        self._entries = SegmentEntries(segment, found.lengths)
        self._verdicts = bytearray(len(found.lengths))
        self.removed: dict[PartitionId, list[Range]] = {}
        self.partitions: set[PartitionId] = set()
        self.bytes = 0

    def decide(self) -> Steps:
        """Decide about every batch, and remove dropped ones from the live entries.

        Raises:
            OSError, Malformed: an entry cannot be read.
        """
        last: tuple[PartitionId, int, Range] | None = None
        for id_ in [id_ for id_ in self._found.live if id_ in self._editor.partitions]:
            removed: list[Range] = []
            size = 0
            for numbers in self._entries.slices(self._found.live[id_]):
                entries: Entries = {}
                yield from self._entries.read(numbers, entries)
                for number in numbers:
                    row, data = entries.pop(number)
                    verdict = self._editor.decide(row, data[ENTRY_HEADER_SIZE:])
                    self._verdicts[number] = verdict
                    if verdict != Verdict.KEEP:
                        self.partitions.add(id_)
                    self.bytes += row.length
                    if verdict == Verdict.DROP:
                        removed.append((row.base_offset, row.base_offset + row.record_count))
                        last = id_, number, removed[-1]
                    size += row.length
                    if size >= STEP_BYTES:
                        yield 0  # it was read before
                        size = 0
            if removed:
                self.removed[id_] = removed
        self._keep_one(last)
        self._drop()

    def _keep_one(self, last: tuple[PartitionId, int, Range] | None) -> None:
        """Keep the bounds of one batch of an otherwise empty segment: its ids stay in use."""
        dropped = self._verdicts.count(Verdict.DROP)
        if last is None or dropped < sum(map(len, self._found.live.values())):
            return
        id_, number, offsets = last
        self._verdicts[number] = Verdict.EMPTY
        self.removed[id_].remove(offsets)

    def _drop(self) -> None:
        for id_ in self.removed:
            live = self._found.live[id_]
            left = [number for number in live if self._verdicts[number] != Verdict.DROP]
            self._found.live[id_] = type(live)("I", left)

    def edited(self, number: int, row: IndexRow, batch: memoryview) -> Buffer | None:
        """See `Edit`."""
        verdict = Verdict(self._verdicts[number])
        return None if verdict == Verdict.KEEP else self._editor.edited(row, batch, verdict)
