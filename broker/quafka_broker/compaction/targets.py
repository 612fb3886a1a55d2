"""Prepares the partitions of a pass."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from quafka_broker.compaction.cleaner import Cleaner, PassTarget
from quafka_broker.compaction.pass_transactions import PassTransactions
from quafka_broker.partitions.partition import Partition
from quafka_broker.partitions.producers import Producers
from quafka_broker.topics.configs import CompactionPolicy
from quafka_broker.wal.log import Log
from quafka_broker.wal.rewrite_task import RewriteTask
from quafka_broker.wal.segment_edit import STEP_BYTES

if TYPE_CHECKING:
    from quafka_broker.compaction.offset_map import OffsetMap


async def cleanable_end(
    wal: Log, partition: Partition, first: int, policy: CompactionPolicy, now_ms: int
) -> int:
    """The offset, not below `first`, before which records may be removed.

    These records are in a sealed segment, in no open transaction, and older than
    `min.compaction.lag.ms`.

    Raises:
        StorageError: the index cannot be read.
        OffsetGoneError: the log start has moved.
    """
    sealed = partition.first_offset_from(wal.sealed_id)
    end = max(first, min(partition.last_stable_offset, sealed))
    if not policy.min_lag_ms:
        return end
    young = now_ms - policy.min_lag_ms + 1
    offset = first
    while (block := partition.batches.first_reaching(young, offset)) and block.start < end:
        for row in await wal.reader.rows(partition, max(first, block.start), block.end):
            if row.max_timestamp >= young and row.base_offset >= first:
                return min(end, row.base_offset)
        offset = block.end
    return end


def target_of(
    partition: Partition, first: int, end: int, policy: CompactionPolicy, producers: Producers
) -> PassTarget:
    """The target of a pass over [log start, end); `first` is the first dirty offset."""
    known = {
        state.producer_id: (state.epoch, state.batches[-1][3] if state.batches else None)
        for state in producers.dump(partition.id)
    }
    return PassTarget(
        partition.id, first, end, partition.high_watermark, policy.delete_retention_ms,
        PassTransactions(partition.aborted(first, end)),
        PassTransactions(partition.aborted(partition.log_start, end)),
        known,
    )  # fmt: skip


def map_keys(
    rewriter: RewriteTask,
    partition: Partition,
    target: PassTarget,
    cleaner: Cleaner,
    offsets: OffsetMap,
    share: int,
) -> Iterator[int]:
    """Add the dirty keys of a partition to the map, in steps for `RewriteTask.paced`.

    The target ends where they do not fit, or exceed a `share` of the map.

    Raises:
        CorruptError, Malformed, OSError: the log cannot be read.
    """
    size = 0
    for row, batch in rewriter.batches(partition, target.first_dirty, target.end):
        if not offsets.has_room(share) or not cleaner.map_keys(target, row, batch):
            target.end = row.base_offset
            return
        size += row.length
        if size >= STEP_BYTES:
            yield size
            size = 0
    yield size
