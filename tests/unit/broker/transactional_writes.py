"""Transactional batches and their ends, written straight into a log."""

from __future__ import annotations

from quafka_broker.partitions.partition import Partition, PartitionId, topic_hash
from quafka_broker.wal.commit_group import GroupedBatch
from quafka_broker.wal.log import Log
from quafka_proto.record_codec import (
    MarkerType,
    Record,
    TransactionMarker,
    build_batch,
    build_marker,
)
from quafka_proto.records import BatchHeader, read_header

_JOURNAL = PartitionId(0, topic_hash(0, "journal of a test"), 0, 0)


def _batch(data: bytearray) -> tuple[BatchHeader, memoryview]:
    return read_header(data), memoryview(data)


async def write(log: Log, partition: Partition, producer_id: int, *values: bytes) -> None:
    """One transactional batch."""
    records = [Record(0, 1_000, None, value, []) for value in values]
    data = build_batch(records, transactional=True, producer_id=producer_id, producer_epoch=0)
    await log.queue.append(partition, [_batch(data)])


async def end(log: Log, producer_id: int, *partitions: Partition, commit: bool) -> None:
    """End a producer's transaction in these partitions, at once."""
    kind = MarkerType.COMMIT if commit else MarkerType.ABORT
    marker = build_marker(TransactionMarker(kind, 0), 0, 2_000, producer_id, 0)
    members = [GroupedBatch(partition, *_batch(bytearray(marker))) for partition in partitions]
    event = build_batch([Record(0, 2_000, None, b"end", [])], base_sequence=len(members))
    await log.queue.append(log.partitions.get(_JOURNAL), [_batch(event)], members=members)
