"""Data folders that earlier versions wrote: today's broker serves all of them, byte for byte.

`folders/<commit>.zip` was written by the code of that commit and copied while the broker ran, so a
start recovers it as after a kill under `wal.fsync=never`. It holds topics of two orgs (one deleted,
one with more partitions than at first, one whose log start has moved), all codecs, keys, headers
and nulls, idempotent producers (one whose batches are gone), groups with commits and a member, two
checkpoints, rewritten segments, and two leader epochs. `answers.json` in the archive has the
answers of that commit.
"""

from __future__ import annotations

import json
import zipfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from quafka_broker.config.settings import BrokerConfig
from quafka_broker.groups.classic.group import ClassicGroup
from quafka_broker.partitions.partition import Partition
from quafka_broker.partitions.producer_state import SequenceError
from quafka_broker.state import BrokerState
from quafka_broker.topics.topic import Topic
from quafka_broker.wal.disk import RealDisk
from quafka_broker.wal.fsync import FsyncPolicy
from quafka_broker.wal.log import Log
from quafka_broker.wal.verify import verify
from quafka_proto.errors import ErrorCode
from quafka_proto.log_format import APPENDED, REWRITTEN
from quafka_proto.record_codec import Record, build_batch
from quafka_proto.records import BatchHeader, read_header

FOLDERS = sorted((Path(__file__).parent / "folders").glob("*.zip"))
EVERYTHING = 1 << 30
REMEMBERED = 5
ORG = 1


class Older:
    """An unpacked folder, and what the version that wrote it answered."""

    def __init__(self, archive: Path, folder: Path) -> None:
        with zipfile.ZipFile(archive) as packed:
            packed.extractall(folder)
        self.folder = folder
        self.answers: dict[str, Any] = json.loads((folder / "answers.json").read_text())

    @asynccontextmanager
    async def started(self) -> AsyncIterator[BrokerState]:
        log = Log(RealDisk(self.folder / "wal"), FsyncPolicy(0.0), 1 << 20)
        state = BrokerState(BrokerConfig(data=self.folder), log)
        log.open(state.producers)
        log.start()
        try:
            await state.replay_registry()
            await state.start_groups()
            yield state
        finally:
            state.groups.drain()
            await state.groups.close()
            await log.close()


@pytest.fixture(params=FOLDERS, ids=lambda path: path.stem)
def older(request: pytest.FixtureRequest, tmp_path: Path) -> Older:
    return Older(request.param, tmp_path)


def topics_of(state: BrokerState) -> dict[str, Topic]:
    return {f"{topic.org}/{topic.name}": topic for topic in state.registry.every_topic()}


def partitions_of(state: BrokerState) -> dict[str, Partition]:
    return {
        f"{name}-{number}": state.log.partitions.get(topic.partition_id(number))
        for name, topic in topics_of(state).items()
        for number in range(topic.partitions)
    }


def next_batch(producer_id: int, epoch: int, sequence: int, count: int) -> BatchHeader:
    records = [Record(n, 1_000, None, b"v", []) for n in range(count)]
    batch = build_batch(
        records, producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence
    )
    return read_header(batch)


def test_the_log_is_whole(older: Older) -> None:
    reports = list(verify(RealDisk(older.folder / "wal")))
    assert len(reports) > 2
    assert not [r for r in reports if r.damages or r.index_fault or r.torn]


async def test_records_and_offsets(older: Older) -> None:
    async with older.started() as state:
        kinds = {segment.kind for segment in state.log.segments()}
        assert kinds == {APPENDED, REWRITTEN}
        partitions = partitions_of(state)
        assert partitions.keys() == older.answers["records"].keys()
        for name, answered in older.answers["records"].items():
            found = partitions[name]
            start, end = answered["log_start"], answered["high_watermark"]
            assert (found.log_start, found.high_watermark) == (start, end), name
            batches: list[memoryview] = []
            if start < end:
                batches = await state.log.reader.read(found, start, EVERYTHING, at_least_one=True)
            assert [bytes(batch).hex() for batch in batches] == answered["batches"], name


async def test_leader_epochs(older: Older) -> None:
    async with older.started() as state:
        known = [tuple(epoch) for epoch in older.answers["epochs"]]
        begun = state.log.epochs.dump()
        assert begun[:-1] == known
        assert begun[-1] == (known[-1][0] + 1, state.log.next_id), "it was killed"
        partitions = partitions_of(state)
        for name, answered in older.answers["records"].items():
            offsets = range(answered["log_start"], answered["high_watermark"])
            found = [state.log.epochs.epoch_at(partitions[name], offset) for offset in offsets]
            assert found == answered["epochs"], name


async def test_topics_and_configs(older: Older) -> None:
    async with older.started() as state:
        found = {
            name: {
                "uuid": topic.uuid.hex(),
                "partitions": topic.partitions,
                "configs": dict(topic.configs),
                "rrl": state.configs.rrl(topic),
            }
            for name, topic in topics_of(state).items()
        }
        assert found == older.answers["topics"]
        assert not state.registry.unnamed


async def test_groups_members_and_offsets(older: Older) -> None:
    async with older.started() as state:
        groups = dict(state.groups.every_group())
        assert {f"{org}/{name}" for org, name in groups} == older.answers["groups"].keys()
        for (org, name), kept in groups.items():
            answered = older.answers["groups"][f"{org}/{name}"]
            offsets = {
                f"{topic}-{partition}": [at.offset, at.leader_epoch, at.metadata, at.at_ms]
                for (topic, partition), at in kept.offsets.items()
            }
            assert offsets == answered["offsets"]
            group = kept.group
            assert isinstance(group, ClassicGroup)
            assert group.state.name == answered["state"]
            assert group.generation == answered["generation"]
            assert sorted(group.members) == answered["members"]


async def test_producers_and_their_sequences(older: Older) -> None:
    async with older.started() as state:
        partitions = partitions_of(state)
        for name, producers in older.answers["producers"].items():
            id_ = partitions[name].id
            found = {known.producer_id: known for known in state.producers.dump(id_)}
            assert found.keys() == {producer_id for producer_id, *_ in producers}
            for producer_id, epoch, batches in producers:
                known = found[producer_id]
                assert known.epoch == epoch
                assert [list(batch) for batch in known.batches] == batches[-REMEMBERED:]
                for first, last, _, offset in batches[-REMEMBERED:]:
                    again = next_batch(producer_id, epoch, first, last - first + 1)
                    copy = state.producers.duplicate_of(id_, again)
                    assert copy is not None
                    assert copy.offset == offset
                sequence = batches[-1][1] + 1
                come_next = next_batch(producer_id, epoch, sequence, 1)
                assert state.producers.duplicate_of(id_, come_next) is None
                early = next_batch(producer_id, epoch, sequence + 1, 1)
                with pytest.raises(SequenceError) as refused:
                    state.producers.duplicate_of(id_, early)
                assert refused.value.code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        assert any(older.answers["producers"].values())
        given = older.answers["producer_ids"]
        assert await state.producer_ids.allocate(1) > max(given), "no id is given twice"


async def test_it_goes_on_and_starts_again(older: Older) -> None:
    """New records follow the old ones; a second start, on what today's code wrote, has both."""
    name, answered = next(iter(older.answers["records"].items()))
    batch = build_batch([Record(0, 1_000, None, b"new", [])])
    async with older.started() as state:
        partition = partitions_of(state)[name]
        header = read_header(batch)
        (offset,) = await state.log.queue.append(partition, [(header, memoryview(batch))])
        assert offset == answered["high_watermark"]
        await state.log.checkpoint()
    async with older.started() as state:
        partition = partitions_of(state)[name]
        assert partition.high_watermark == answered["high_watermark"] + 1
        batches = await state.log.reader.read(partition, 0, EVERYTHING, at_least_one=True)
        assert [bytes(batch).hex() for batch in batches[:-1]] == answered["batches"]
        assert state.log.epochs.current == older.answers["epochs"][-1][0] + 1, "it was closed"
