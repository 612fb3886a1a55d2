"""Decides which records are kept, by Kafka's rules, batch by batch.

A record is kept if it has a key and no later record of the pass has the same key. A tombstone (a
record without a value) is removed once its batch's delete horizon has passed; the first pass over
the tombstone sets the horizon (KIP-534). Records of aborted transactions are removed at once; the
marker of a transaction without batches is treated like a tombstone.

A batch without records is removed, unless it is the last batch of its partition or of its producer:
then its bounds and its sequence numbers are kept. Markers are kept or removed as a whole.
"""

from __future__ import annotations

import logging
import os
from array import array
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import TYPE_CHECKING

from quafka_broker.compaction.key_hash import HASH_SIZE
from quafka_broker.compaction.pass_transactions import PassTransactions
from quafka_broker.partitions.partition import PartitionId, partition_of
from quafka_broker.wal.segment_edit import Verdict
from quafka_loop import clock
from quafka_proto.errors import Malformed
from quafka_proto.log_format import ROW_CONTROL, ROW_TRANSACTIONAL, IndexRow
from quafka_proto.record_filter import (
    PAUSE_RECORDS,
    FoundRecords,
    delete_horizon,
    find_records,
    uncompressed,
    with_records,
    without_records,
)
from quafka_proto.records import BATCH_HEADER_SIZE, CONTROL, BatchHeader, read_header

if TYPE_CHECKING:
    from quafka_broker.compaction.offset_map import OffsetMap

log = logging.getLogger("quafka.broker.compaction")

_MAX_LONG = (1 << 63) - 1
_PAUSE_SECONDS = 50e-6


@dataclass(slots=True, eq=False)
class PassTarget:
    """A partition of a pass.

    Attributes:
        first_dirty: the map has the keys from this offset on.
        end: the offset below which records may be removed.
        high_watermark: that at the start of the pass; the batch before it is kept.
        delete_retention_ms: see `CompactionPolicy`.
        mapped: transactions for the map.
        cleaned: transactions for the cleaning.
        producers: epoch and last batch's first offset (None: only a marker) of each producer.
        before, after: bytes of the batches that the pass has read, and kept.
    """

    id: PartitionId
    first_dirty: int
    end: int
    high_watermark: int
    delete_retention_ms: int
    mapped: PassTransactions
    cleaned: PassTransactions
    producers: Mapping[int, tuple[int, int | None]]
    before: int = 0
    after: int = 0
    salt: bytes = field(default_factory=lambda: os.urandom(HASH_SIZE))


class Cleaner:
    """One pass over some partitions, in a thread, by one call at a time.

    `decide` keeps its results for `edited`: a byte for each record of the changed batches, and
    eight for each such batch.

    Next to the event loop's thread, a pass pauses every quarter of a millisecond: otherwise each
    system call of the loop would wait 5 ms for the interpreter.
    """

    def __init__(self, offsets: OffsetMap, now_ms: int) -> None:
        self._targets: dict[PartitionId, PassTarget] = {}
        self._marks = _Marks()
        self._unpaused = 0  # records read since the last pause
        self._offsets = offsets
        self._now_ms = now_ms

    @property
    def partitions(self) -> Collection[PartitionId]:
        """The partitions of the pass."""
        return self._targets.keys()

    def add(self, target: PassTarget) -> None:
        """Add a partition whose dirty keys are in the map."""
        self._targets[target.id] = target

    # --- the map ----------------------------------------------------------------------------

    def map_keys(self, target: PassTarget, row: IndexRow, batch: memoryview) -> bool:
        """Add the keys of a dirty batch to the map; False if they do not fit.

        Raises:
            Malformed: the batch cannot be read.
        """
        if row.flags & ROW_CONTROL:
            target.mapped.is_without_data(row)
            return True
        if row.flags & ROW_TRANSACTIONAL and target.mapped.is_aborted(row):
            return True
        header = read_header(batch)
        found = self._records(header, batch)
        keyed = [number for number, key in enumerate(found.keys) if key is not None]
        offsets = [header.base_offset + found.offset_deltas[number] for number in keyed]
        return not keyed or self._offsets.add(_hashes(target, found, keyed), offsets)

    # --- decisions --------------------------------------------------------------------------

    def decide(self, row: IndexRow, batch: memoryview) -> Verdict:
        """See `BatchEditor`."""
        target = self._targets[partition_of(row)]
        if row.base_offset >= target.end:
            return Verdict.KEEP
        try:
            verdict = self._decide(target, row, batch)
        except Malformed as e:  # of an earlier version; no tombstone after it may be removed
            log.warning(
                "partition %s is compacted up to offset %d: %s", target.id.key, row.base_offset, e
            )
            target.end = row.base_offset
            return Verdict.KEEP
        target.before += row.length
        if verdict in (Verdict.KEEP, Verdict.FILTER):
            target.after += row.length
        return verdict

    def _decide(self, target: PassTarget, row: IndexRow, batch: memoryview) -> Verdict:
        header = read_header(batch)
        if header.attributes & CONTROL:
            return self._marker(target, row, header)
        if row.flags & ROW_TRANSACTIONAL and target.cleaned.is_aborted(row):
            return self._without_records(target, row, header)
        if not header.record_count:
            return self._without_records(target, row, header)
        found = self._records(header, batch)
        kept = self._kept(target, header, found)
        if not kept:
            return self._without_records(target, row, header)
        tombstones = [number for number in kept if not found.has_values[number]]
        if len(kept) == header.record_count and (
            not tombstones or delete_horizon(header) is not None
        ):
            return Verdict.KEEP
        self._marks.add(header, kept, tombstones)
        return Verdict.FILTER

    def edited(self, row: IndexRow, batch: memoryview, verdict: Verdict) -> bytearray:
        """See `BatchEditor`."""
        target = self._targets[partition_of(row)]
        header = read_header(batch)
        if verdict == Verdict.EMPTY:
            target.after += BATCH_HEADER_SIZE
            return without_records(header)
        kept, has_tombstones = self._marks.take(header)
        horizon = self._new_horizon(target, header) if has_tombstones else None
        edited = with_records(header, uncompressed(header, batch), kept, horizon)
        target.after += len(edited) - row.length
        return edited

    def _marker(self, target: PassTarget, row: IndexRow, header: BatchHeader) -> Verdict:
        if not target.cleaned.is_without_data(row) or not header.record_count:
            return Verdict.KEEP
        horizon = delete_horizon(header)
        if horizon is None:
            self._marks.add(header, [0], [0])
            return Verdict.FILTER
        known = target.producers.get(row.producer_id)
        is_last = known is not None and known == (row.producer_epoch, None)
        if self._now_ms < horizon or is_last or self._ends(target, row):
            return Verdict.KEEP
        return Verdict.DROP

    def _without_records(self, target: PassTarget, row: IndexRow, header: BatchHeader) -> Verdict:
        _, last = target.producers.get(row.producer_id, (0, None))
        if last != row.base_offset and not self._ends(target, row):
            return Verdict.DROP
        return Verdict.EMPTY if header.record_count else Verdict.KEEP

    def _ends(self, target: PassTarget, row: IndexRow) -> bool:
        return row.base_offset + row.record_count == target.high_watermark

    def _records(self, header: BatchHeader, batch: memoryview) -> FoundRecords:
        self._unpaused += header.record_count
        if self._unpaused >= PAUSE_RECORDS:
            self._unpaused = 0
            _pause()
        return find_records(header, uncompressed(header, batch), _pause)

    def _kept(self, target: PassTarget, header: BatchHeader, found: FoundRecords) -> list[int]:
        """The numbers of the records to keep."""
        keyed = [number for number, key in enumerate(found.keys) if key is not None]
        if not keyed:
            return []
        horizon = delete_horizon(header)
        tombstones_stay = horizon is None or self._now_ms < horizon
        base, deltas, has_values = header.base_offset, found.offset_deltas, found.has_values
        last_offsets = self._offsets.last_offsets(_hashes(target, found, keyed))
        return [
            number
            for number, last in zip(keyed, last_offsets, strict=True)
            if base + deltas[number] >= last and (tombstones_stay or has_values[number])
        ]

    def _new_horizon(self, target: PassTarget, header: BatchHeader) -> int | None:
        """The delete horizon to set in a batch with tombstones, or a marker; None if it has one."""
        if delete_horizon(header) is not None:
            return None
        return min(self._now_ms + target.delete_retention_ms, _MAX_LONG)


class _Marks:
    """The records to keep, in the order in which the batches are decided and edited."""

    _STAYS, _TOMBSTONE = 1, 2

    def __init__(self) -> None:
        self._marks = bytearray()
        self._taken = 0
        self._bases = array("q")
        self._bases_taken = 0

    def add(self, header: BatchHeader, kept: Iterable[int], tombstones: Iterable[int]) -> None:
        """Add a batch: the records to keep, and the tombstones among them."""
        count = header.record_count
        self._bases.append(header.base_offset)
        marks = bytearray(count)
        for number in kept:
            marks[number] = self._STAYS
        for number in tombstones:
            marks[number] = self._TOMBSTONE
        self._marks += marks

    def take(self, header: BatchHeader) -> tuple[list[int], bool]:
        """The records to keep of the next batch, and whether a tombstone is among them."""
        count = header.record_count
        assert self._bases[self._bases_taken] == header.base_offset, "edited in another order"
        self._bases_taken += 1
        marks = self._marks[self._taken : self._taken + count]
        self._taken += count
        if self._taken == len(self._marks):
            self._marks, self._taken = bytearray(), 0
            self._bases, self._bases_taken = array("q"), 0
        return [number for number, mark in enumerate(marks) if mark], self._TOMBSTONE in marks


def _pause() -> None:
    clock.sleep(_PAUSE_SECONDS)


def _hashes(target: PassTarget, found: FoundRecords, keyed: Iterable[int]) -> list[bytes]:
    """Hashes of keys; the salt distinguishes partitions, and defeats prepared collisions."""
    keys, salt = found.keys, target.salt
    return [
        blake2b(keys[number] or b"", digest_size=HASH_SIZE, salt=salt).digest() for number in keyed
    ]
