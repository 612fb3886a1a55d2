"""Damage to the broker's own topics: no topic, group or record is lost that another place has."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from quafka_broker.groups.table import Commit, Committed
from quafka_broker.journals.internal_topics import GROUPS, REGISTRY
from quafka_broker.ops import topics as topic_ops
from quafka_broker.ops.topics import describe
from quafka_broker.partitions.partition import PartitionId
from quafka_broker.state import BrokerState
from quafka_broker.topics.topic import Topic
from quafka_broker.wal.rewrite_task import RewritePolicy
from quafka_broker.wal.scan import scan
from quafka_broker.wal.segment import log_name
from quafka_mesh_ops.ops.topics import CreateTopic, DescribeTopics
from quafka_proto.errors import ErrorCode
from quafka_proto.log_format import LOG_MAGIC, IndexRow, check_file_header
from tests.unit.broker.memory_disk import MemoryDisk
from tests.unit.broker.tools import ORG, checked, context, running_state, values_of

NAMES = ("a", "b", "c")


def entries_of(disk: MemoryDisk, id_: PartitionId) -> list[tuple[str, IndexRow]]:
    """Every entry of a virtual topic, with its file."""
    found: list[tuple[str, IndexRow]] = []
    for name in [name for name in disk.names() if name.endswith(".log")]:
        file = disk.open(name)
        salt = check_file_header(file.read(0, 32), LOG_MAGIC, int(name[:-4])).salt
        rows = [row for row in scan(file, salt, 0, 0, None) if isinstance(row, IndexRow)]
        found += [(name, row) for row in rows if row.topic_hash == id_.topic_hash]
    return found


def flip(disk: MemoryDisk, name: str, at: int) -> None:
    disk.files[name].data[at] ^= 1


def damage_last_byte(disk: MemoryDisk, entry: tuple[str, IndexRow]) -> None:
    flip(disk, entry[0], entry[1].end - 1)


async def fill(disk: MemoryDisk, segment_bytes: int = 700) -> list[Topic]:
    """Topics with a record in each of two partitions, and an offset of a group in each."""
    made: list[Topic] = []
    async with running_state(disk, segment_bytes=segment_bytes) as state:
        for name in NAMES:
            topic, _ = await state.topics.create(ORG, name, 2)
            made.append(topic)
            for partition in range(2):
                grown = state.log.partitions.get(topic.partition_id(partition))
                await state.log.queue.append(grown, checked(name.encode(), b"2"))
            await commit(state, topic, 1)
    return made


async def commit(state: BrokerState, topic: Topic, offset: int) -> None:
    place = topic.name, 0
    value = Committed(topic.generation, offset, -1, "", 0)
    await state.groups.offsets.commit(ORG, f"of {topic.name}", Commit.of({place: value}))


def committed(state: BrokerState, name: str) -> int | None:
    kept = state.groups.find(ORG, f"of {name}")
    return None if kept is None or not kept.offsets else kept.offsets[name, 0].offset


async def values(state: BrokerState, topic: Topic, partition: int) -> list[bytes]:
    return await values_of(state.log, state.log.partitions.get(topic.partition_id(partition)))


async def assert_all_there(state: BrokerState, made: list[Topic]) -> None:
    assert state.registry.topics(ORG) == made
    for topic in made:
        for partition in range(2):
            assert await values(state, topic, partition) == [topic.name.encode(), b"2"]
        assert committed(state, topic.name) == 1
    assert not state.registry.unnamed


@pytest.mark.parametrize("which", [REGISTRY, GROUPS], ids=["registry", "groups"])
async def test_any_damaged_event_is_in_the_checkpoint(which: PartitionId) -> None:
    """And the damage is left behind: the events are restated, and nothing is lost any more."""
    disk = MemoryDisk()
    made = await fill(disk)
    for entry in entries_of(disk, which):
        damaged = disk.copy()
        damage_last_byte(damaged, entry)
        async with running_state(damaged) as state:
            await assert_all_there(state, made)
            while state.log.partitions.is_damaged(which):
                await asyncio.sleep(0)
        async with running_state(damaged.crashed()) as state:
            await assert_all_there(state, made)


@pytest.mark.parametrize("which", range(4))
async def test_without_the_copy_a_topic_keeps_its_records(which: int) -> None:
    """It has lost its name, but not its offsets; whoever asks for it gives it its name again."""
    disk = MemoryDisk()
    made = await fill(disk)
    damaged = disk.crashed()
    damage_last_byte(damaged, entries_of(disk, REGISTRY)[which])  # cluster, a, b, c
    lost = {NAMES[which - 1]} if which else set[str]()
    async with running_state(damaged) as state:
        assert {topic.name for topic in state.registry.topics(ORG)} == set(NAMES) - lost
        assert list(state.registry.unnamed.values()) == [2] * len(lost)
        await free_everything_dead(state)
        for name in NAMES:
            answer = await describe(state, context(), DescribeTopics([name], None, False))
            assert answer.topics[0].error_code == ErrorCode.NONE
            assert answer.topics[0].partitions == 2
        for topic in made:
            for partition in range(2):
                assert await values(state, topic, partition) == [topic.name.encode(), b"2"]
    async with running_state(damaged.crashed()) as state:
        assert {topic.name for topic in state.registry.topics(ORG)} == set(NAMES)
        assert not state.registry.unnamed


async def free_everything_dead(state: BrokerState) -> None:
    rewriting = state.log.rewrite_task(RewritePolicy(rewrite=True), lambda: state.journal.deletions)
    await rewriting.run_once()
    await rewriting.close()


async def test_a_topic_whose_name_is_lost_is_not_created_anew() -> None:
    disk = MemoryDisk()
    await fill(disk)
    disk = disk.crashed()
    damage_last_byte(disk, entries_of(disk, REGISTRY)[2])
    async with running_state(disk) as state:
        answer = await topic_ops.create(state, context(), CreateTopic("b", 7))
        assert answer.error_code == ErrorCode.TOPIC_ALREADY_EXISTS
        topic = state.registry.by_name(ORG, "b")
        assert topic is not None
        assert await values(state, topic, 0) == [b"b", b"2"]


async def test_what_is_lost_comes_back_with_the_bytes() -> None:
    """A damaged event that is restored from a copy of the disk counts, also after checkpoints."""
    disk = MemoryDisk()
    made = await fill(disk)
    disk = disk.crashed()
    name, row = entries_of(disk, REGISTRY)[2]
    flip(disk, name, row.end - 1)
    async with running_state(disk) as state:
        state.journal.events_kept = 0
        await state.producer_ids.allocate(1)  # would restate the registry
        assert state.registry.by_name(ORG, "b") is None
    async with running_state(disk) as state:
        assert len(state.registry.unnamed) == 1
    flip(disk, name, row.end - 1)
    async with running_state(disk) as state:
        await assert_all_there(state, made)


async def test_lost_partitions_come_back() -> None:
    disk = MemoryDisk()
    async with running_state(disk) as state:
        topic, _ = await state.topics.create(ORG, "t", 1)
        await state.topics.change(topic, lambda old: replace(old, partitions=3))
        await state.log.queue.append(state.log.partitions.get(topic.partition_id(2)), checked(b"1"))
    disk = disk.crashed()
    damage_last_byte(disk, entries_of(disk, REGISTRY)[2])
    for _ in range(2):
        async with running_state(disk) as state:
            found = state.registry.by_name(ORG, "t")
            assert found is not None
            assert found.partitions == 3
            assert await values(state, found, 2) == [b"1"]
        disk = disk.crashed()


async def test_a_later_event_names_a_topic() -> None:
    disk = MemoryDisk()
    async with running_state(disk) as state:
        topic, _ = await state.topics.create(ORG, "t", 1)
        await state.log.queue.append(state.log.partitions.get(topic.partition_id(0)), checked(b"1"))
        await state.log.queue.append(state.log.partitions.get(topic.partition_id(0)), checked(b"2"))
        await state.topics.delete_records({topic: {0: 1}})
    disk = disk.crashed()
    damage_last_byte(disk, entries_of(disk, REGISTRY)[1])
    async with running_state(disk) as state:
        found = state.registry.by_name(ORG, "t")
        assert found is not None
        assert (await values_of(state.log, state.log.partitions.get(found.partition_id(0)), 1))[
            -1
        ] == b"2"


async def test_a_deleted_topic_does_not_come_back() -> None:
    """Whatever event is damaged but that of its deletion, and even then it is not mixed up."""
    disk = MemoryDisk()
    async with running_state(disk) as state:
        for name in NAMES:
            topic, _ = await state.topics.create(ORG, name, 1)
            await state.log.queue.append(
                state.log.partitions.get(topic.partition_id(0)), checked(name.encode())
            )
        await state.topics.delete(topic)
        again, _ = await state.topics.create(ORG, "c", 1)
        await state.log.queue.append(
            state.log.partitions.get(again.partition_id(0)), checked(b"again")
        )
    disk = disk.crashed()
    every = entries_of(disk, REGISTRY)
    assert len(every) == 6
    for entry in every:
        damaged = disk.copy()
        damage_last_byte(damaged, entry)
        async with running_state(damaged) as state:
            for name in NAMES:
                await state.topics.create(ORG, name, 1)
            found = state.registry.by_name(ORG, "c")
            assert found is not None
            assert await values(state, found, 0) == [b"again"]


@pytest.mark.parametrize(("distance", "count"), [(0, 1_500), (7, 128)])
async def test_producer_ids_are_not_handed_out_twice(
    distance: int, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The lost event has raised the highest id by little or, with blocks far apart, by much."""
    monkeypatch.setattr("secrets.randbelow", lambda _most: distance)
    disk = MemoryDisk()
    async with running_state(disk) as state:
        seen = {await state.producer_ids.allocate(1) for _ in range(count)}
        await state.topics.create(ORG, "t", 1)  # else it could be a torn write
    disk = disk.crashed()
    damage_last_byte(disk, entries_of(disk, REGISTRY)[-2])
    monkeypatch.setattr("secrets.randbelow", lambda _most: 0)
    for _ in range(2):
        async with running_state(disk) as state:
            fresh = {await state.producer_ids.allocate(1) for _ in range(10)}
            assert not fresh & seen
            seen |= fresh
        disk = disk.crashed()


async def test_deleted_groups_stay_deleted_without_a_checkpoint() -> None:
    disk = MemoryDisk()
    async with running_state(disk, segment_bytes=2_000) as state:
        state.groups.journal.facts_kept = 5
        topic, _ = await state.topics.create(ORG, "a", 1)
        live = state.log.partitions.get(topic.partition_id(0))
        await commit(state, topic, 5)
        await state.log.queue.append(live, checked(b"keeps the first segment"))
        while len(state.log.segments()) < 2:
            await state.log.queue.append(live, checked(b"x" * 500))
        assert await state.groups.delete_group(ORG, "of a") == ErrorCode.NONE
        for n in range(60):
            other = {("a", 0): Committed(0, n, -1, "", 0)}
            await state.groups.offsets.commit(ORG, f"other {n % 3}", Commit.of(other))
        await state.topics.delete_records({topic: {0: live.high_watermark - 1}})
        await free_everything_dead(state)
    left = disk.crashed()
    deleted = [name for name, _ in entries_of(left, GROUPS)]
    assert deleted, "the journal goes on"
    async with running_state(left) as state:
        assert committed(state, "a") is None
        assert not state.log.damages
        assert {kept.group.name for kept in state.groups.groups(ORG)} == {
            "other 0", "other 1", "other 2"
        }  # fmt: skip


async def test_an_empty_batch_in_the_journals_ends_no_replay() -> None:
    """What older versions' repairs left there made the broker spin."""
    disk = MemoryDisk()
    made = await fill(disk)
    disk = disk.crashed()
    damage_last_byte(disk, entries_of(disk, REGISTRY)[-1])
    damage_last_byte(disk, entries_of(disk, GROUPS)[-1])
    async with running_state(disk) as state:
        await state.log.repair()
    async with running_state(disk.crashed()) as state:
        assert [t.name for t in state.registry.topics(ORG)] == ["a", "b"]
        await state.topics.create(ORG, "c", 1)
        found = state.registry.topics(ORG)
        assert [t.partitions for t in found] == [2, 2, 2]
        assert committed(state, "b") == 1
        assert committed(state, "c") is None
        assert made
    assert log_name(0) in disk.names()
