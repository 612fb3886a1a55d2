"""Checkpoints: files read back as written, damage is detected; taken while the log goes on."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from quafka_broker.partitions.partition import Partition
from quafka_broker.partitions.producer_state import ProducerPartitionState
from quafka_broker.partitions.producers import Producers
from quafka_broker.wal import checkpoint_task
from quafka_broker.wal.checkpoint_file import (
    CheckpointWriter,
    SavedPartition,
    faults_of,
    load_newest,
    pack_partitions,
    read_checkpoint,
)
from quafka_broker.wal.quarantine import Lost, SegmentDamage
from quafka_broker.wal.segment import SegmentState
from tests.unit.broker.memory_disk import MemoryDisk
from tests.unit.broker.tools import append, open_log, topic_id, values_of

SEGMENTS = [SegmentState(3, 7, 1, 1_000, 65, 90, bytes(16)), SegmentState(4, 8, 0, 32, 0, 0, b"")]
DAMAGES = [
    SegmentDamage(3, 40, 90, "why", 5, 9, (Lost(topic_id("a"), 2, 4), Lost(topic_id("b"), 0, 2)))
]
EPOCHS = [(0, 0), (2, 70)]
EVICTED = [(1, 8), (7, 1 << 62)]
TOPICS = [
    SavedPartition(
        topic_id(name),
        95,
        Partition(topic_id(name), 5).dump(),
        [ProducerPartitionState(7, 1, 99, ((0, 4, 1_000, 3), (5, 5, -1, 8)))],
    )
    for name in "abc"
]


SECTIONS: dict[str, list[list[Any]]] = {"one/1": [[1, {"a": "b"}], [b"2"]], "two/1": [[]]}


def write(disk: MemoryDisk, number: int, keep: int = 0) -> None:
    writer = CheckpointWriter(disk, number)
    writer.begin(90, SEGMENTS, DAMAGES, EPOCHS)
    writer.partitions(pack_partitions(TOPICS[:2]))
    writer.partitions(pack_partitions(TOPICS[2:]))
    for name, blocks in SECTIONS.items():
        for values in blocks:
            writer.section(name, values)
    writer.finish((4, 500), 99, EVICTED, keep)


def test_a_checkpoint_is_read_back() -> None:
    disk = MemoryDisk()
    write(disk, 4)
    found = load_newest(disk)
    assert (found.newest, found.number, found.faults) == (4, 4, {})
    assert found.checkpoint == (
        90,
        SEGMENTS,
        DAMAGES,
        TOPICS,
        (4, 500),
        99,
        EPOCHS,
        EVICTED,
        SECTIONS,
    )
    write(disk, 11, keep=4)
    assert disk.names() == ["checkpoint-11", "checkpoint-4"]
    write(disk, 12, keep=11)
    assert disk.names() == ["checkpoint-11", "checkpoint-12"]


def test_a_checkpoint_from_before_evictions_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    disk = MemoryDisk()
    written = CheckpointWriter._write

    def write_but_that(self: CheckpointWriter, head: bytes, blocks: list[tuple[Any, ...]]) -> None:
        written(self, head, [block for block in blocks if block[0] != "evicted"])

    monkeypatch.setattr(CheckpointWriter, "_write", write_but_that)
    write(disk, 4)
    assert b"evicted" not in disk.files["checkpoint-4"].data
    found = load_newest(disk).checkpoint
    assert found == (90, SEGMENTS, DAMAGES, TOPICS, (4, 500), 99, EPOCHS, [], SECTIONS)


def test_any_damage_invalidates_a_checkpoint() -> None:
    disk = MemoryDisk()
    write(disk, 1)
    good = bytes(disk.files["checkpoint-1"].data)
    for at in range(len(good)):
        disk.put("checkpoint-1", good[:at] + bytes([good[at] ^ 1]) + good[at + 1 :])
        with pytest.raises(ValueError, match=r"."):
            read_checkpoint(disk.open("checkpoint-1"))
        disk.put("checkpoint-1", good[:at])
        with pytest.raises(ValueError, match=r"."):
            read_checkpoint(disk.open("checkpoint-1"))


def test_the_newest_whole_checkpoint_is_used() -> None:
    disk = MemoryDisk()
    write(disk, 9)
    disk.put("checkpoint-10", b"torn")
    disk.put("checkpoint-11.new", b"unfinished")
    found = load_newest(disk)
    assert (found.newest, found.number) == (10, 9)
    assert found.checkpoint is not None
    assert list(found.faults) == list(faults_of(disk)) == ["checkpoint-10"]


def test_a_checkpoint_that_could_not_be_written_leaves_no_file() -> None:
    disk = MemoryDisk()
    disk.room = 20
    writer = CheckpointWriter(disk, 1)
    with pytest.raises(OSError, match="space"):
        writer.begin(90, SEGMENTS, DAMAGES, EPOCHS)
    writer.abandon()
    assert disk.names() == []


async def test_the_log_goes_on_during_a_checkpoint(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every slice is one partition, and records are appended between any two of them."""
    monkeypatch.setattr(checkpoint_task, "_SLICE", 0.0)
    disk = MemoryDisk()
    names = [f"t{n}" for n in range(30)]
    async with open_log(disk, segment_bytes=2_000, checkpoint_bytes=3_000) as log:
        turns = 0
        while turns < 20 or not _checkpoints(disk):  # its thread may get no core for a while
            await asyncio.gather(*[append(log, name, b"%d" % turns) for name in names])
            turns += 1
        left = disk.copy()
    name = max(_checkpoints(left))
    found = read_checkpoint(left.open(name))
    assert len({partition.covered for partition in found.partitions}) > 1, "it is fuzzy"
    async with open_log(left) as again:
        for topic in names:
            assert await values_of(again, topic) == [b"%d" % turn for turn in range(turns)]


def _checkpoints(disk: MemoryDisk) -> list[str]:
    return [n for n in disk.files if n.startswith("checkpoint-") and n[-1].isdigit()]


async def test_producers_are_as_covered_as_their_partition() -> None:
    disk = MemoryDisk()
    async with open_log(disk) as log:
        await append(log, "a", b"1")
    producers = Producers()
    found = load_newest(disk).checkpoint
    assert found is not None
    assert [(partition.covered, partition.producers) for partition in found.partitions] == [(1, [])]
    assert producers.dump(topic_id("a")) == []
