"""Groups of entries that are in the log together or not at all, and what they end."""

from __future__ import annotations

import pytest

from quafka_broker.partitions.partition import PartitionId, topic_hash
from quafka_broker.partitions.transactions import AbortedRange
from quafka_broker.wal.commit_group import GroupedBatch
from quafka_broker.wal.log import Log
from quafka_broker.wal.segment import index_name, log_name
from quafka_proto.record_codec import (
    MarkerType,
    Record,
    TransactionMarker,
    build_batch,
    build_marker,
)
from quafka_proto.records import BatchHeader, read_header
from tests.support.suites import more
from tests.unit.broker.memory_disk import MemoryDisk
from tests.unit.broker.tools import append, open_log, topic_id

JOURNAL = PartitionId(0, topic_hash(0, "journal"), 0, 0)
PARTITIONS = [topic_id("t", n) for n in range(5)]
PRODUCER = 7


def _batch(data: bytearray) -> tuple[BatchHeader, memoryview]:
    return read_header(data), memoryview(data)


async def _write(log: Log, partition: PartitionId, producer: int, sequence: int) -> None:
    data = build_batch(
        [Record(0, 1_000, None, b"v", [])] * 2,
        transactional=True,
        producer_id=producer,
        producer_epoch=0,
        base_sequence=sequence,
    )
    await log.queue.append(log.partitions.get(partition), [_batch(data)])


async def _end(log: Log, kind: MarkerType, producer: int = PRODUCER) -> list[int]:
    marker = _batch(build_marker(TransactionMarker(kind, 0), 0, 2_000, producer, 0))
    members = [GroupedBatch(log.partitions.get(id_), *marker) for id_ in PARTITIONS]
    event = build_batch([Record(0, 1_000, None, b"event", [])], base_sequence=len(members))
    return await log.queue.append(log.partitions.get(JOURNAL), [_batch(event)], members=members)


async def test_a_marker_takes_one_offset_in_each_partition_and_moves_the_last_stable_offset() -> (
    None
):
    disk = MemoryDisk()
    async with open_log(disk) as log:
        for id_ in PARTITIONS:
            await _write(log, id_, PRODUCER, 0)
        await append(log, "t", b"other")
        partition = log.partitions.get(PARTITIONS[0])
        assert (partition.last_stable_offset, partition.high_watermark) == (0, 3)
        before = disk.syncs()
        assert await _end(log, MarkerType.ABORT) == [0, 3, 2, 2, 2, 2]
        assert disk.syncs() == before + 1
        assert (partition.last_stable_offset, partition.high_watermark) == (4, 4)
        assert partition.aborted(0, 4) == [AbortedRange(PRODUCER, 0, 3, 4)]
    async with open_log(disk) as log:
        partition = log.partitions.get(PARTITIONS[0])
        assert (partition.last_stable_offset, partition.high_watermark) == (4, 4)
        assert partition.aborted(2, 3) == [AbortedRange(PRODUCER, 0, 3, 4)]
        assert partition.aborted(4, 9) == []


@pytest.mark.parametrize("with_checkpoint", [True, *more([False])])
async def test_recovery_keeps_a_group_whole_or_cuts_it_off_wherever_it_is_torn(
    with_checkpoint: bool,
) -> None:
    disk = MemoryDisk()
    async with open_log(disk) as log:
        for id_ in PARTITIONS:
            await _write(log, id_, PRODUCER, 0)
        if with_checkpoint:
            await log.checkpoint()
        begins = len(disk.files[log_name(0)].data)
        rows = len(disk.files[index_name(0)].data)
        await _end(log, MarkerType.COMMIT)
        torn = disk.copy()
    whole = len(torn.files[log_name(0)].data)
    cuts = [*range(begins, whole, 7), *range(whole - 3, whole + 1)]
    for cut in cuts:
        for lost_rows in (True, False):
            left = torn.copy()
            del left.files[log_name(0)].data[cut:]
            if lost_rows:
                del left.files[index_name(0)].data[rows:]
            ended = cut == whole
            for _ in range(2):
                async with open_log(left) as log:
                    assert not log.damages
                    for id_ in PARTITIONS:
                        partition = log.partitions.get(id_)
                        assert partition.high_watermark == 2 + ended
                        assert partition.last_stable_offset == (3 if ended else 0)
                    assert log.partitions.get(JOURNAL).high_watermark == ended
            async with open_log(left) as log:
                assert (await _end(log, MarkerType.ABORT))[0] == ended


async def test_a_group_is_one_write_also_where_the_segment_rolls() -> None:
    disk = MemoryDisk()
    async with open_log(disk, segment_bytes=1_500) as log:
        for turn in range(12):
            for id_ in PARTITIONS:
                await _write(log, id_, PRODUCER, 2 * turn)
            await _end(log, MarkerType.ABORT)
        segments = len(log.segments())
    assert segments > 5
    async with open_log(disk.crashed()) as log:
        for id_ in PARTITIONS:
            partition = log.partitions.get(id_)
            assert partition.last_stable_offset == partition.high_watermark == 36
            assert [a.last_offset for a in partition.aborted(0, 36)] == list(range(2, 36, 3))


async def test_markers_are_not_batches_with_sequences() -> None:
    disk = MemoryDisk()
    async with open_log(disk) as log:
        for id_ in PARTITIONS:
            await _write(log, id_, PRODUCER, 0)
        await _end(log, MarkerType.COMMIT)
        left = disk.crashed()
    async with open_log(left) as log:
        (state,) = log._contents.producers.dump(PARTITIONS[0])
        assert [batch[:2] for batch in state.batches] == [(0, 1)]
