"""Kafka's folders that move, are damaged, or hold what Kafka does not write: each costs itself."""

from __future__ import annotations

import asyncio
import os
import random
import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from quafka_broker.kafka_logs.errors import KafkaLogError
from quafka_broker.kafka_logs.log_folders import KafkaFolders
from quafka_broker.ops import offsets
from quafka_broker.state import BrokerState
from quafka_mesh_ops.ops.group_offsets import CommitOffset, CommitOffsets
from quafka_mesh_ops.ops.leases import HoldLease
from quafka_proto.errors import ErrorCode
from tests.support.kafka_folder import KafkaFolder, kafka_batch
from tests.support.kafka_folder_checks import check_partition
from tests.support.kafka_folders import Expected, recorded
from tests.support.suites import more
from tests.unit.broker.kafka_sources import eventually, get, serving, values
from tests.unit.broker.tools import ORG, context


@pytest.fixture
def kafka(tmp_path: Path) -> KafkaFolder:
    return KafkaFolder(tmp_path / "kafka")


async def test_a_partition_moves_to_another_folder(kafka: KafkaFolder, tmp_path: Path) -> None:
    """As kafka-reassign-partitions moves it between `log.dirs`: for a moment both have it."""
    other = KafkaFolder(tmp_path / "other")
    kafka.append("t", 0, kafka_batch(0, b"a"))
    kafka.append("u", 0, kafka_batch(0, b"u"))
    async with serving(kafka.path, other.path) as state:
        assert values(await get(state)) == [(0, b"a")]
        future = other.path / "t-0.00ff-future"
        shutil.copytree(kafka.path / "t-0", future)
        waiting = asyncio.create_task(get(state, 1))
        future.rename(other.path / "t-0")
        assert state.kafka is not None
        await asyncio.to_thread(state.kafka.folders.refresh)
        assert values(await get(state)) == [(0, b"a")]
        (kafka.path / "t-0").rename(kafka.path / "t-0.00ff-delete")
        other.append("t", 0, kafka_batch(1, b"b"))
        answer = await asyncio.wait_for(waiting, 30)
        assert answer.error_code in (ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.NONE)
        await eventually(lambda: "t" in other_topics(state, other.path))
        async with asyncio.timeout(5):
            while (await get(state, 1, wait=100)).error_code:
                await asyncio.sleep(0.05)
        assert values(await get(state, 1)) == [(1, b"b")]
        assert values(await get(state, topic="u")) == [(0, b"u")]


def other_topics(state: BrokerState, root: Path) -> set[str]:
    assert state.kafka is not None
    return {
        name
        for name, topic in state.kafka.folders.topics.items()
        if any(folder.path.parent == root for folder in topic.partitions.values())
    }


def test_a_partition_in_two_folders_is_left_out(kafka: KafkaFolder, tmp_path: Path) -> None:
    other = KafkaFolder(tmp_path / "other")
    for each in (kafka, other):
        each.append("t", 0)
    kafka.append("t", 1)
    folders = KafkaFolders([kafka.path, other.path])
    assert folders.topics["t"].partitions.keys() == {1}
    assert folders.topics["t"].partition_count == 2
    assert "the same partition is in" in folders.problems["t-0"]
    shutil.rmtree(other.path / "t-0")
    assert folders.refresh()
    assert not folders.problems
    assert folders.topics["t"].partitions.keys() == {0, 1}


async def test_a_folder_that_is_not_mounted_keeps_its_topics(kafka: KafkaFolder) -> None:
    kafka.append("t", 0, kafka_batch(0, b"a"))
    async with serving(kafka.path) as state:
        commit = CommitOffsets("g", -1, "", "", [CommitOffset("t", 0, 1)])
        assert set((await offsets.commit(state, context(), commit)).partitions) == {0}
        away = kafka.path.with_name("away")
        kafka.path.rename(away)
        kafka.path.mkdir()
        assert state.kafka is not None
        await eventually(lambda: "meta.properties" in found_problem(state))
        assert state.registry.by_name(ORG, "t") is not None
        kafka.path.rmdir()
        away.rename(kafka.path)
        await eventually(lambda: not found_problem(state))
        entry = state.groups.find(ORG, "g")
        assert entry is not None
        assert entry.offsets


def found_problem(state: BrokerState) -> str:
    assert state.kafka is not None
    return state.kafka.figures().problem


async def test_a_log_that_is_cut_off_and_longer_again_is_read_anew(kafka: KafkaFolder) -> None:
    """No look came between: as when a new leader has other records."""
    before = [kafka_batch(0, b"a"), kafka_batch(1, b"b" * 100), kafka_batch(2, b"c")]
    path = kafka.append("t", 0, *before)
    async with serving(kafka.path) as state:
        assert len(values(await get(state))) == 3
        held = await state.leases.hold(ORG, "peer", HoldLease(b"h" * 16))
        path.write_bytes(before[0] + kafka_batch(1, b"x" * 300, epoch=1))
        await asyncio.sleep(0.15)
        assert values(await get(state, 2, wait=0)) == []
        assert values(await get(state)) == [(0, b"a"), (1, b"x" * 300)]
        kafka.append("t", 0, kafka_batch(2, b"y"))
        assert values(await get(state, 2)) == [(2, b"y")]
        news = await state.leases.hold(
            ORG, "peer", HoldLease(b"h" * 16, held.incarnation, held.serial)
        )
        assert [(each.topic, each.partition) for each in news.changes] == [("t", 0)]


# --- damage -----------------------------------------------------------------------------------


def _fifo(path: Path) -> None:
    path.unlink(missing_ok=True)
    os.mkfifo(path)


def _folder(path: Path) -> None:
    path.unlink(missing_ok=True)
    path.mkdir()


def _loop(path: Path) -> None:
    path.unlink(missing_ok=True)
    path.symlink_to(path.name)


def _endless(path: Path) -> None:
    path.unlink(missing_ok=True)
    path.symlink_to("/dev/zero")


def _noise(path: Path) -> None:
    path.write_bytes(random.Random(str(path)).randbytes(3_000))


def _sparse(path: Path) -> None:
    """As large as an index of a hundred million rows."""
    path.write_bytes(b"\x00\x00" + b"\xff" * 100)
    os.truncate(path, 1 << 30)


@pytest.mark.parametrize("damage", [_fifo, _folder, _loop, _endless, _noise, _sparse])
@pytest.mark.parametrize(
    "name",
    ["{}.log", "{}.index", "{}.timeindex", "{}.txnindex", "{}.snapshot", "partition.metadata",
     "leader-epoch-checkpoint"],
)  # fmt: skip
async def test_what_kafka_does_not_write_costs_its_partition(
    kafka: KafkaFolder, name: str, damage: Callable[[Path], None]
) -> None:
    for topic in ("t", "u"):
        kafka.append(topic, 0, kafka_batch(0, b"a"), kafka_batch(1, b"b"))
        kafka.append(topic, 0, kafka_batch(2, b"c"), segment=2)
    damage(kafka.path / "t-0" / name.format("0" * 20))
    async with serving(kafka.path) as state:
        async with asyncio.timeout(5):
            if state.registry.by_name(ORG, "t") is not None:
                for committed in (False, True):
                    await get(state, 0, wait=50, committed=committed)
            assert [value for _, value in values(await get(state, topic="u"))] == [b"a", b"b", b"c"]


@pytest.mark.parametrize("damage", [_fifo, _folder, _loop, _noise])
@pytest.mark.parametrize(
    "name", ["log-start-offset-checkpoint", "recovery-point-offset-checkpoint", ".lock"]
)
async def test_damaged_checkpoints_are_shown(
    kafka: KafkaFolder, name: str, damage: Callable[[Path], None]
) -> None:
    kafka.append("t", 0, kafka_batch(0, b"a"))
    damage(kafka.path / name)
    async with serving(kafka.path) as state:
        assert values(await get(state)) == [(0, b"a")]
        assert ("log-start" in found_problem(state)) == ("log-start" in name)


@pytest.mark.parametrize("seed", [0, *more([1])])
def test_random_damage_of_every_file(tmp_path: Path, seed: int) -> None:
    """Bytes change or are cut off in any file: other topics are served as they were."""
    expected = recorded(tmp_path)["topics"]
    chance = random.Random(seed)
    root = tmp_path / "killed"
    for path in sorted(each for each in root.rglob("*") if each.is_file()):
        before = path.read_bytes()
        path.write_bytes(_damaged(chance, before))
        try:
            folders = KafkaFolders([root])
        except KafkaLogError:
            assert path.parent.name == "__cluster_metadata-0" or path.name == "meta.properties"
        else:
            if not path.parent.name.startswith("__cluster"):
                assert folders.topics.keys() >= expected.keys()
                _check(folders, path.parent.name.rpartition("-")[0], expected)
        path.write_bytes(before)


def _check(folders: KafkaFolders, damaged: str, expected: Expected) -> None:
    other = "codec-none" if damaged != "codec-none" else "codec-zstd"
    check_partition(folders.open(other, 0), expected[other]["partitions"][0])
    if damaged in expected:
        with suppress(KafkaLogError, KeyError):
            log = folders.open(damaged, 0)
            offset = log.log_start
            while offset < log.log_end and (found := log.read(offset, 4_096)):
                offset = found[-1].next_offset
            log.aborted(log.log_start, log.log_end)
            log.newest()


def _damaged(chance: random.Random, data: bytes) -> bytes:
    if chance.random() < 0.3:
        return data[: chance.randrange(len(data) + 1)]
    changed = bytearray(data or bytes(8))
    for _ in range(chance.randint(1, 4)):
        changed[chance.randrange(len(changed))] = chance.randrange(256)
    return bytes(changed)
