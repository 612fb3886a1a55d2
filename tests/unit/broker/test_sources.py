"""Partitions that do not come from the log: slow, failing, with gaps, read only."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from quafka_broker.ops import (
    configs,
    delete_records,
    epoch_ends,
    fetch,
    list_offsets,
    partitions,
    produce,
    topics,
)
from quafka_broker.partitions.errors import StorageError
from quafka_broker.partitions.partition import PartitionId
from quafka_broker.sources.source import FoundBatches, Reading, RecordsRefusedError, Unready
from quafka_broker.sources.wal import WalPartition
from quafka_broker.state import BrokerState
from quafka_broker.topics.topic import Topic
from quafka_broker.wal.runs import Room
from quafka_mesh_ops.ops.admin import AlterTopicConfigs, CreatePartitions
from quafka_mesh_ops.ops.offsets import EpochEndOp, EpochEndOps, ListOffsetsOp, ListOffsetsOps
from quafka_mesh_ops.ops.records import (
    DeleteRecordsOp,
    DeleteRecordsOps,
    FetchOp,
    FetchOpResp,
    FetchOps,
    ProduceOp,
    ProduceOps,
)
from quafka_mesh_ops.ops.topics import DeleteTopic, DescribeTopics
from quafka_proto.errors import ErrorCode
from quafka_proto.schema.configs import IncrementalAlterableConfig as Change
from tests.unit.broker.memory_disk import MemoryDisk
from tests.unit.broker.tools import EVERYTHING, ORG, batch_of, checked, context, running_state


class Remote(WalPartition):
    """A partition of the log that answers only when the test says so."""

    def __init__(self, near: WalPartition) -> None:
        super().__init__(near._wal, near._partition, near._topic)
        self.state: Unready | None = asyncio.get_running_loop().create_future()
        self.deletes_records = False
        self.expected = 0
        self.failing = False
        self.known = False

    def unready(self, offset: int = -1) -> Unready | None:  # type: ignore[override]
        return self.state

    def expect_growth(self) -> None:
        self.expected += 1

    @property
    def high_watermark(self) -> int:
        return super().high_watermark if self.state is None or self.known else -1

    async def read(self, offset: int, room: Room, reading: Reading) -> FoundBatches:
        if self.failing:
            raise StorageError("the connection was lost")
        return await super().read(offset, room, reading)

    def append(
        self, batch: object, writes: object, request: object = None
    ) -> asyncio.Future[list[int]]:
        raise RecordsRefusedError(ErrorCode.POLICY_VIOLATION, "read only")


class Kind:
    """One remote partition for each of the topic's."""

    def __init__(self, state: BrokerState) -> None:
        self._state = state
        self.partitions: dict[PartitionId, Remote] = {}

    leader_epoch = -1

    def unchangeable(self, topic: Topic) -> str:
        return "it is far away"

    def partition(self, topic: Topic, number: int) -> Remote:
        id_ = topic.partition_id(number)
        if id_ not in self.partitions:
            near = self._state.sources.partition(replace(topic, source=""), number)
            assert isinstance(near, WalPartition)
            self.partitions[id_] = Remote(near)
        return self.partitions[id_]

    def bounds(self, topic: Topic, number: int) -> tuple[int, int]:
        found = self.partition(topic, number)
        return max(0, found.log_start), max(0, found.high_watermark)

    def settle(self, remote: Remote, state: Unready | None) -> None:
        before, remote.state = remote.state, state
        if isinstance(before, asyncio.Future):
            before.set_result(None)
        self._state.parked_fetches.wake((remote.id,))


async def two_topics(state: BrokerState) -> tuple[Kind, Remote, Topic]:
    """`far` comes from a source, with two records in it; `near` is ours."""
    kind = Kind(state)
    state.sources.add("test", kind)
    near, _ = await state.topics.create(ORG, "near", 1)
    far, _ = await state.topics.create(ORG, "far", 1)
    await state.log.queue.append(state.log.partitions.get(far.partition_id(0)), checked(b"0", b"1"))
    far = replace(far, source="test")
    state.registry._put(far)
    return kind, kind.partition(far, 0), near


async def get(
    state: BrokerState, *topics: str, wait: int = 20_000, offset: int = 0, least: int = 1
) -> list[FetchOpResp]:
    parts = [FetchOp(topic, 0, offset, EVERYTHING) for topic in topics]
    op = FetchOps(parts, max_wait_ms=wait, min_bytes=least, max_bytes=EVERYTHING)
    return (await fetch.handle(state, context(), op)).partitions


async def test_a_fetch_parks_until_the_source_is_ready() -> None:
    async with running_state(MemoryDisk()) as state:
        kind, far, _ = await two_topics(state)
        waiting = asyncio.create_task(get(state, "far"))
        await asyncio.sleep(0.01)
        assert not waiting.done()
        assert far.expected == 1
        assert state.parked_fetches.waits_for(far.id)
        kind.settle(far, None)
        (answer,) = await asyncio.wait_for(waiting, 30)
        assert (answer.error_code, answer.high_watermark, len(answer.records)) == (0, 2, 1)
        assert not state.parked_fetches.waits_for(far.id)


@pytest.mark.parametrize("wait", [0, 20_000])
async def test_a_slow_source_delays_no_other_partition(wait: int) -> None:
    async with running_state(MemoryDisk()) as state:
        _, far, near = await two_topics(state)
        await state.log.queue.append(state.log.partitions.get(near.partition_id(0)), checked(b"x"))
        slow, ours = await asyncio.wait_for(get(state, "far", "near", wait=wait), 0.1)
        assert (ours.error_code, len(ours.records)) == (0, 1)
        assert (slow.error_code, slow.high_watermark) == (ErrorCode.KAFKA_STORAGE_ERROR, -1)
        far.known = True
        slow, _ = await asyncio.wait_for(get(state, "far", "near", wait=wait), 0.1)
        assert (slow.error_code, slow.high_watermark, slow.records) == (0, 2, [])


async def test_growth_of_another_partition_ends_the_wait_for_a_slow_source() -> None:
    async with running_state(MemoryDisk()) as state:
        _, _, near = await two_topics(state)
        waiting = asyncio.create_task(get(state, "far", "near"))
        await asyncio.sleep(0.01)
        await state.log.queue.append(state.log.partitions.get(near.partition_id(0)), checked(b"x"))
        _, ours = await asyncio.wait_for(waiting, 30)
        assert len(ours.records) == 1


@pytest.mark.parametrize("least", [0, 1])
async def test_a_fetch_that_must_not_wait_waits_shortly_for_the_bounds(least: int) -> None:
    async with running_state(MemoryDisk()) as state:
        kind, far, _ = await two_topics(state)
        (answer,) = await get(state, "far", wait=0, least=least)
        assert answer.error_code == ErrorCode.KAFKA_STORAGE_ERROR
        waiting = asyncio.create_task(get(state, "far", wait=0, least=least, offset=2))
        await asyncio.sleep(0.01)
        kind.settle(far, None)
        (answer,) = await asyncio.wait_for(waiting, 0.1)
        assert (answer.error_code, answer.high_watermark, answer.records) == (0, 2, [])


async def test_a_source_that_fails_answers_with_its_error() -> None:
    async with running_state(MemoryDisk()) as state:
        kind, far, _ = await two_topics(state)
        waiting = asyncio.create_task(get(state, "far"))
        await asyncio.sleep(0.01)
        kind.settle(far, ErrorCode.NOT_LEADER_OR_FOLLOWER)
        (answer,) = await asyncio.wait_for(waiting, 30)
        assert answer.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        kind.settle(far, None)
        far.failing = True
        (answer,) = await get(state, "far")
        assert (answer.error_code, answer.high_watermark) == (ErrorCode.KAFKA_STORAGE_ERROR, 2)


async def test_look_ups_wait_for_the_bounds() -> None:
    async with running_state(MemoryDisk()) as state:
        kind, far, _ = await two_topics(state)
        lists = ListOffsetsOps([ListOffsetsOp("far", 0, -1), ListOffsetsOp("near", 0, -1)])
        ends = EpochEndOps([EpochEndOp("far", 0, 0)])
        asked = asyncio.gather(
            list_offsets.handle(state, context(), lists), epoch_ends.handle(state, context(), ends)
        )
        await asyncio.sleep(0.01)
        assert not asked.done()
        kind.settle(far, None)
        found, epochs = await asyncio.wait_for(asked, 30)
        assert [each.offset for each in found.partitions] == [2, 0]
        assert epochs.partitions[0].end.end_offset == 2
        kind.settle(far, ErrorCode.KAFKA_STORAGE_ERROR)
        found = await list_offsets.handle(state, context(), lists)
        errors = [each.error_code for each in found.partitions]
        assert errors == [ErrorCode.KAFKA_STORAGE_ERROR, 0]


async def test_a_source_may_refuse_writes_and_deletions() -> None:
    async with running_state(MemoryDisk()) as state:
        await two_topics(state)
        parts = [ProduceOp(name, 0, batch_of(b"x")) for name in ("far", "near")]
        stored = (await produce.handle(state, context(), ProduceOps(parts))).partitions
        assert [each.error_code for each in stored] == [ErrorCode.POLICY_VIOLATION, 0]
        assert stored[0].error_message == "read only"
        op = DeleteRecordsOps([DeleteRecordsOp("far", 0, 1), DeleteRecordsOp("near", 0, 1)])
        deleted = (await delete_records.handle(state, context(), op)).partitions
        assert [each.error_code for each in deleted] == [ErrorCode.POLICY_VIOLATION, 0]


async def test_a_source_may_refuse_changes_of_its_topics() -> None:
    async with running_state(MemoryDisk()) as state:
        await two_topics(state)
        more = await partitions.create(state, context(), CreatePartitions("far", 5))
        assert (more.error_code, more.error_message) == (
            ErrorCode.POLICY_VIOLATION,
            "it is far away",
        )
        change = [Change("retention.ms", 0, "1")]
        op = AlterTopicConfigs("far", change)
        assert (await configs.alter(state, context(), op)).error_message == "it is far away"
        gone = await topics.delete(state, context(), DeleteTopic("far"))
        assert gone.error_code == ErrorCode.POLICY_VIOLATION
        described = await topics.describe(state, context(), DescribeTopics(["far", "near"]))
        assert [each.leader_epoch for each in described.topics] == [-1, 0]
