"""The contents of the log in memory: segments, partitions, producers, and damage.

Recovery fills the contents, the writer extends them, reads use them, and checkpoints save them.
"""

from __future__ import annotations

import asyncio
import logging
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping

from quafka_broker.partitions.gaps import NO_GAPS, Gaps, Range
from quafka_broker.partitions.leader_epochs import LeaderEpochs
from quafka_broker.partitions.partition import Partition, PartitionId, partition_of
from quafka_broker.partitions.producers import Producers
from quafka_broker.wal.checkpoint_file import Checkpoint
from quafka_broker.wal.errors import DamagedLogError
from quafka_broker.wal.live_records import LiveRecords
from quafka_broker.wal.quarantine import Lost, Quarantine, SegmentDamage, damaged_entry
from quafka_broker.wal.segment import Segment
from quafka_loop import threads
from quafka_proto.log_format import REWRITTEN, IndexRow

log = logging.getLogger("quafka.broker.recovery")


class Contents:
    """The contents of one log. Only one thread changes them."""

    def __init__(self, producers: Producers) -> None:
        self.producers = producers
        self.segments: list[Segment] = []
        """Changed only by `append_segment` and `replace_segment`, which make a new list."""
        self._changing = threads.Lock()
        self.naming = asyncio.Lock()
        """Held while a segment's files get or lose their names."""
        self.partitions: dict[PartitionId, Partition] = {}
        self.live = LiveRecords()
        self.quarantine = Quarantine()
        self.on_withdrawn: Callable[[Segment], None] = lambda _segment: None
        """Called with a segment that other processes must stop reading: it was rewritten or freed,
        or is damaged."""
        self.epochs = LeaderEpochs()
        self.next_id = 0
        # During recovery: the ids up to which the checkpoint covers each partition, and all.
        self._covered: dict[PartitionId, int] = {}
        self._all_covered = 0
        # The next unused id of each damage, for lost records.
        self._given: dict[int, int] = {}

    # --- lookup -----------------------------------------------------------------------------

    def segment_of(self, global_id: int) -> Segment | None:
        """The segment that would have a record; None if the record is older than all segments."""
        segments = self.segments  # another thread may replace the list
        at = bisect_right(segments, global_id, key=_first_id) - 1
        return segments[at] if at >= 0 else None

    # --- segments ---------------------------------------------------------------------------

    def append_segment(self, segment: Segment) -> None:
        """Add a new active segment."""
        with self._changing:
            self.segments = [*self.segments, segment]

    def replace_segment(self, old: Segment, new: Segment | None) -> None:
        """Replace a sealed segment that was rewritten or freed. Running reads keep the old one."""
        with self._changing:
            at = self.segments.index(old)
            between = [new] if new is not None else []
            self.segments = [*self.segments[:at], *between, *self.segments[at + 1 :]]
        if new is None:
            self.live.removed(old.number)
        self.on_withdrawn(old)

    def add_bad_entry(self, segment: Segment, row: IndexRow, reason: str) -> None:
        """Stop serving an entry whose bytes have changed since they were written."""
        damage = damaged_entry(segment.number, row, reason)
        log.error("damaged: %s", damage)
        self.quarantine.add(damage)
        self.on_withdrawn(segment)

    # --- partitions -------------------------------------------------------------------------

    def log_start(self, partition: PartitionId) -> int | None:
        """A partition's log start; None if it does not exist. Safe in any thread."""
        found = self.partitions.get(partition)
        return None if found is None else found.log_start

    def advance_log_start(self, partition: Partition, offset: int) -> None:
        """Drop the records of a partition below an offset, which are then dead."""
        before = partition.ids
        partition.advance_log_start(offset)
        if partition.ids is not before:
            first = partition.first_id
            end_id = first if first is not None else self.next_id
            self.live.died(partition.id, before, end_id)

    def drop_partition(self, partition: PartitionId) -> None:
        """Drop a deleted partition, whose records are then dead."""
        dead = self.partitions.pop(partition, None)
        if dead is not None:
            self.live.dropped(dead)

    # --- recovery ---------------------------------------------------------------------------

    def load_checkpoint(self, checkpoint: Checkpoint) -> None:
        """Load a checkpoint, except its damages: recovery verifies those places again.

        Raises:
            ValueError: the checkpoint cannot be decoded.
        """
        for saved in checkpoint.partitions:
            self.partitions[saved.id] = Partition.load(saved.id, saved.state)
            self.producers.load(saved.id, saved.producers)
            self._covered[saved.id] = saved.covered
        self.producers.load_evicted(checkpoint.evicted)
        if checkpoint.epochs is not None:
            self.epochs.load(checkpoint.epochs)
        self._all_covered = checkpoint.next_id

    def reset(self) -> None:
        """Drop everything, and release the files."""
        for segment in self.segments:
            segment.close()
        self.segments = []
        self.partitions.clear()
        self.producers.keep_partitions(())
        self.live = LiveRecords()
        self.quarantine = Quarantine()
        self._covered.clear()
        self._all_covered = 0
        self._given.clear()

    def agrees(self, row: IndexRow) -> bool:
        """Whether an entry that was lost and is back fits its partition."""
        id_ = partition_of(row)
        if row.global_id >= max(self._all_covered, self._covered.get(id_, 0)):
            return True
        partition = self.partitions.get(id_)
        is_dead = (
            partition is not None and row.base_offset + row.record_count <= partition.log_start
        )
        return is_dead or self.expects(row)

    def expects(self, row: IndexRow) -> bool:
        """Whether an entry's records are live at the entry's offsets."""
        partition = self.partitions.get(partition_of(row))
        end = row.base_offset + row.record_count
        if partition is None or not partition.log_start < end <= partition.high_watermark:
            return False
        offset = max(row.base_offset, partition.log_start)
        return partition.global_id_at(offset) == row.global_id + offset - row.base_offset

    def add_damage(self, damage: SegmentDamage) -> None:
        """Add damage found by recovery. `settle` determines which records were in it."""
        if damage[:3] not in [known[:3] for known in self.quarantine.damages]:
            self.quarantine.add(damage)

    def restore_row(self, row: IndexRow) -> None:
        """Add an entry that recovery has found. Called in the order of global ids.

        Raises:
            DamagedLogError: its offsets contradict an earlier entry.
        """
        self.epochs.begin_epoch(row.leader_epoch, row.global_id)
        partition = partition_of(row)
        if row.global_id < max(self._all_covered, self._covered.get(partition, 0)):
            return
        found = self.partitions.get(partition)
        if found is None:
            found = self.partitions[partition] = Partition(partition, row.base_offset)
        missing = row.base_offset - found.high_watermark
        if missing < 0:
            raise DamagedLogError(
                f"partition {partition.key} goes on at offset {row.base_offset} where "
                f"{found.high_watermark} is next"
            )
        if missing and self._may_be_compacted(partition, found.next_id, row.global_id, missing):
            found.add_gap(row.global_id - missing, missing)
        elif missing:
            ids = self._ids_for(found, row.base_offset, found.next_id, row.global_id, missing)
            for first, end in ids:
                found.add_lost(first, end - first)
        found.add(row)
        self.producers.restore_row(row)

    def _may_be_compacted(self, id_: PartitionId, above: int, below: int, count: int) -> bool:
        """Whether compaction has removed the `count` records of a partition between two ids.

        Only a rewrite does so, never of a damaged segment, and not in the broker's own topics.
        """
        segments = self.segments
        first, last = self.segment_of(above), self.segment_of(below)
        if last is None or below - count < above or not id_.org_id:
            return False
        low = first.number if first is not None else segments[0].number
        between = [s for s in segments if low <= s.number <= last.number]
        damaged = {damage.segment for damage in self.quarantine.damages}
        return any(segment.kind == REWRITTEN for segment in between) and not damaged & set(
            range(low, last.number + 1)
        )

    def restore_gaps(
        self, first_id: int, end_id: int, present: Mapping[PartitionId, Gaps]
    ) -> Iterator[tuple[Partition, int, int]]:
        """Add the gaps of a rewritten segment that the checkpoint does not know.

        The segment has the ids [first_id, end_id), of which each partition has the `present`
        offsets. Yields the partitions with gaps, and their offsets in the segment.
        """
        for partition in self.partitions.values():
            start, end = partition.offsets_between(first_id, end_id)
            if start == end or not partition.id.org_id:
                continue
            absent: list[Range] = []
            offsets = start, end
            for first, after in present.get(partition.id, NO_GAPS):
                absent.append((start, min(first, end)))
                start = max(start, after)
            partition.compacted([(a, b) for a, b in [*absent, (start, end)] if a < b])
            if partition.gaps:
                yield partition, *offsets

    def _ids_for(
        self, partition: Partition, end_offset: int, above: int, below: int, count: int
    ) -> list[tuple[int, int]]:
        """Ids in [above, below) for the `count` lost records of a partition before `end_offset`.

        The ids are those that damage has left without a record.

        Raises:
            DamagedLogError: there are fewer such ids.
        """
        found: list[tuple[int, int]] = []
        for number, damage in enumerate(self.quarantine.damages):
            first = max(above, self._given.get(number, damage.first_id))
            end = min(damage.end_id, first + count)
            if first < end <= below and count:
                self._given[number] = above = end
                found.append((first, end))
                count -= end - first
        if count:
            # A rewrite of a segment may have dropped the records below the log start.
            if below - count < above:
                raise DamagedLogError(
                    f"partition {partition.id.key} lacks {count} records that never had ids"
                )
            found.append((below - count, below))
            lost = Lost(partition.id, end_offset - count, end_offset)
            at = self.segments[-1].number
            self.quarantine.add(
                SegmentDamage(at, 0, 0, "records are missing", below - count, below, (lost,))
            )
        return found

    def settle(self, live: Mapping[PartitionId, int | None]) -> None:
        """Keep only these partitions, from these log starts on (None: unchanged).

        This determines and logs the records that are lost to damage.

        Raises:
            DamagedLogError: see `restore_row`.
        """
        for partition in self.partitions.keys() - live.keys():
            del self.partitions[partition]
        for id_, log_start in live.items():
            if log_start is not None:
                self._begin_at(id_, log_start)
        self._covered.clear()
        self._given.clear()
        self.quarantine.settle(self.partitions.values())
        for damage in self.quarantine.damages:
            log.error("damaged: %s", damage)
        found = [(s.number, s.first_id) for s in self.segments if s.first_id is not None]
        self.live.begin(found, self.partitions.values(), self.next_id)

    def _begin_at(self, id_: PartitionId, log_start: int) -> None:
        partition = self.partitions.get(id_)
        if partition is None:
            if log_start:
                self.partitions[id_] = Partition(id_, log_start)
            return
        missing = partition.log_start - log_start
        first = partition.first_id
        if missing > 0 and first is not None and self._may_be_compacted(id_, 0, first, missing):
            partition.add_gap_before(first - missing, missing)
        elif missing > 0 and first is not None:
            partition.add_lost_before(
                self._ids_for(partition, partition.log_start, 0, first, missing)
            )
        elif missing < 0:
            partition.advance_log_start(log_start)


def _first_id(segment: Segment) -> int:
    """The first id of a segment. An empty segment is the last one: every id is below its first."""
    first = segment.first_id
    return 1 << 64 if first is None else first
