"""Rewritten segments: dead entries are gone, live ones are found, also after any crash."""

from __future__ import annotations

import errno

import pytest

from quafka_broker.partitions.partition import Partition, PartitionId, partition_of
from quafka_broker.wal import rewrite_segment, segment_entries
from quafka_broker.wal.rewrite_segment import Examined, SegmentRewrite, examine
from quafka_broker.wal.segment import Segment, index_name, log_name
from quafka_proto.errors import Malformed
from quafka_proto.log_format import (
    ENTRY_HEADER_SIZE,
    FILE_HEADER_SIZE,
    LOG_MAGIC,
    REWRITTEN,
    IndexRow,
    check_entry,
    check_file_header,
    encode_entry_header,
    row_of,
)
from quafka_proto.record_codec import Record, build_batch, iter_records
from tests.unit.broker.memory_disk import MemoryDisk
from tests.unit.broker.tools import topic_id

TOPICS = [topic_id(name) for name in "abc"]

Topics = dict[PartitionId, Partition]


def written(disk: MemoryDisk, count: int = 300) -> tuple[Segment, Topics]:
    """A segment in which the batches of three partitions alternate; values are offsets."""
    segment = Segment.create(disk, 0)
    partitions = {partition: Partition(partition) for partition in TOPICS}
    for n in range(count):
        partition = partitions[TOPICS[n % 3]]
        start = partition.high_watermark
        records = [Record(0, 0, None, b"%d" % (start + i), []) for i in range(1 + n % 4)]
        batch = build_batch(records, start)
        header = encode_entry_header(
            batch, salt=segment.salt, length=len(batch), global_id=10 * n, base_offset=start,
            durable_position=0, record_count=len(records), **partition.id._asdict(),
        )  # fmt: skip
        data = header + batch
        row = row_of(check_entry(data, 0, segment.salt), segment.end, data[ENTRY_HEADER_SIZE:])
        segment.write([data], [row])
        segment.add_rows([row])
        partition.add(row)
    segment.sync()
    return segment, partitions


def examined(segment: Segment, topics: Topics) -> Examined:
    contents = Examined()
    starts = {partition.id: partition.log_start for partition in topics.values()}
    for _ in examine(segment, starts.get, contents):
        pass
    return contents


def rewritten(disk: MemoryDisk, segment: Segment, topics: Topics) -> Segment:
    work = SegmentRewrite(disk, segment, examined(segment, topics))
    for _ in work.copy():
        pass
    return work.publish()


def entries(segment: Segment) -> list[tuple[IndexRow, list[bytes | None]]]:
    """Every entry in the order of positions, verified."""
    data = segment.log.read(0, segment.log.size())
    rows = [row for _, row in segment_entries.index_rows(segment.index, segment.entries)]
    assert [row.global_id for row in rows] == sorted({row.global_id for row in rows})
    found: list[tuple[IndexRow, list[bytes | None]]] = []
    position = FILE_HEADER_SIZE
    for row in sorted(rows, key=lambda row: row.position):
        assert row.position == position, "entries follow each other"
        entry = check_entry(data, position, segment.salt)
        batch = data[position + ENTRY_HEADER_SIZE : row.end]
        assert row == row_of(entry, position, batch)
        found.append((row, [record.value for record in iter_records(batch)]))
        position = row.end
    assert position == len(data) == segment.end
    return found


def check_contents(segment: Segment, topics: Topics) -> None:
    """All live entries are there, contiguous and in order for each partition."""
    by_id: dict[PartitionId, list[bytes | None]] = {}
    last = None
    for row, values in entries(segment):
        id_ = partition_of(row)
        assert id_ == last or id_ not in by_id, "grouped"
        last = id_
        by_id.setdefault(id_, []).extend(values)
    for partition in topics.values():
        values = [b"%d" % n for n in range(partition.log_start, partition.high_watermark)]
        found = by_id.pop(partition.id, [])
        first = len(found) - len(values)
        assert 0 <= first < 4, "at most the batch that the log start is in has more"
        assert found[first:] == values
    assert not by_id


@pytest.mark.parametrize("slice_bytes", [1, 5_000, 1 << 20])
@pytest.mark.parametrize("start", [0, 100, 101, 1_000])
def test_live_entries_are_grouped(
    monkeypatch: pytest.MonkeyPatch, slice_bytes: int, start: int
) -> None:
    monkeypatch.setattr(segment_entries, "_SLICE_BYTES", slice_bytes)
    monkeypatch.setattr(segment_entries, "_READ_BYTES", 2_000)
    monkeypatch.setattr(rewrite_segment, "_SYNC_BYTES", 3_000)
    monkeypatch.setattr(rewrite_segment, "_WRITE_BYTES", 1_000)
    disk = MemoryDisk()
    segment, partitions = written(disk)
    before = segment.log.size()
    partitions[TOPICS[0]].advance_log_start(start)
    del partitions[TOPICS[1]]
    if start == 1_000:
        partitions = {TOPICS[0]: partitions[TOPICS[0]]}
    new = rewritten(disk, segment, partitions)
    assert new.log.size() < before
    left = {
        id_: partition
        for id_, partition in partitions.items()
        if partition.high_watermark > partition.log_start
    }
    check_contents(new, left)
    assert (new.number, new.kind) == (0, REWRITTEN)
    assert sorted(disk.files) == [log_name(0), index_name(0)]
    for file in disk.files.values():
        assert file.durable == bytes(file.data)
    again = rewritten(disk, new, partitions)
    check_contents(again, left)
    assert again.salt != new.salt


def test_a_segment_is_examined_by_its_index() -> None:
    disk = MemoryDisk()
    segment, topics = written(disk)
    contents = examined(segment, topics)
    assert contents.live_bytes == segment.end - FILE_HEADER_SIZE
    assert contents.runs == segment.entries == 300
    new = rewritten(disk, segment, topics)
    topics[TOPICS[0]].advance_log_start(10**6)
    less = examined(new, topics)
    assert less.live_bytes < contents.live_bytes
    assert less.bytes_per_run < less.live_bytes
    assert set(less.live) == set(TOPICS[1:])
    assert examined(new, {}).live_bytes == 0


@pytest.mark.parametrize("place", [50, 120, 5_000])
def test_an_unverified_entry_is_not_copied(place: int) -> None:
    disk = MemoryDisk()
    segment, topics = written(disk)
    disk.files[log_name(0)].data[place] ^= 1
    work = SegmentRewrite(disk, segment, examined(segment, topics))
    with pytest.raises(Malformed):
        for _ in work.copy():
            pass
    work.abandon()
    assert sorted(disk.files) == [log_name(0), index_name(0)]


def test_a_full_disk_leaves_the_old_segment() -> None:
    disk = MemoryDisk()
    segment, topics = written(disk)
    old = {name: bytes(file.data) for name, file in disk.files.items()}
    for room in (0, 10, 100, 5_000, 30_000):
        disk.room = room
        work = SegmentRewrite(disk, segment, examined(segment, topics))
        with pytest.raises(OSError) as caught:
            for _ in work.copy():
                pass
        assert caught.value.errno == errno.ENOSPC
        work.abandon()
        assert {name: bytes(file.data) for name, file in disk.files.items()} == old


def test_after_a_crash_each_file_is_the_old_or_the_new_one() -> None:
    disk = MemoryDisk(record=True)
    segment, topics = written(disk)
    begun = len(disk.snapshots)
    rewritten(disk, segment, topics)
    salts: set[tuple[bool, bool]] = set()
    for snapshot in disk.snapshots[begun:]:
        files = snapshot.files
        log, index = files[log_name(0)], files[index_name(0)]
        salt = check_file_header(log[0], LOG_MAGIC, 0).salt
        same_index = index[0][24:28] == log[0][24:28]
        salts.add((salt == segment.salt, same_index))
        assert log[0] == log[1], "what has the log's name has been synced"
        assert index[0] == index[1]
    assert salts == {(True, True), (True, False), (False, True)}
