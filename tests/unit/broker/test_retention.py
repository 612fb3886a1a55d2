"""Records that are deleted: by retention, by DeleteRecords, with their topic."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from quafka_broker.config.settings import BrokerConfig
from quafka_broker.journals.internal_topics import REGISTRY
from quafka_broker.ops import delete_records, fetch, produce
from quafka_broker.partitions.partition import Partition
from quafka_broker.state import BrokerState
from quafka_broker.topics.events import snapshot_parts
from quafka_mesh_ops.ops.records import (
    DeleteRecordsOp,
    DeleteRecordsOps,
    FetchOp,
    FetchOpResp,
    FetchOps,
    ProduceOp,
    ProduceOps,
)
from quafka_proto.errors import ErrorCode
from tests.unit.broker.memory_disk import MemoryDisk
from tests.unit.broker.tools import ORG, batch_of, context, running_state, values_of

FOREVER = {"retention.ms": "-1"}


async def put(state: BrokerState, *batches: tuple[int, int], topic: str = "t") -> Partition:
    """Batches of (timestamp, records), valued by their offsets."""
    known = state.registry.by_name(ORG, topic)
    assert known is not None
    partition = state.log.partitions.get(known.partition_id(0))
    for timestamp, count in batches:
        start = partition.high_watermark
        values = [b"%d" % offset for offset in range(start, start + count)]
        ops = ProduceOps([ProduceOp(topic, 0, batch_of(*values, timestamp=timestamp))])
        (answer,) = (await produce.handle(state, context(), ops)).partitions
        assert answer.error_code == 0
    return partition


async def delete(state: BrokerState, *offsets: int) -> list[tuple[int, int]]:
    parts = [DeleteRecordsOp("t", 0, offset) for offset in offsets]
    answer = await delete_records.handle(state, context(), DeleteRecordsOps(parts))
    return [(part.low_watermark, part.error_code) for part in answer.partitions]


async def get(state: BrokerState, offset: int, wait_ms: int = 0) -> FetchOpResp:
    ops = FetchOps([FetchOp("t", 0, offset, 1 << 20)], wait_ms, 1)
    return (await fetch.handle(state, context(), ops)).partitions[0]


async def test_delete_records() -> None:
    disk = MemoryDisk()
    async with running_state(disk) as state:
        await state.topics.create(ORG, "t", 1)
        partition = await put(state, (1, 3), (1, 3))
        assert await delete(state, 0) == [(0, 0)]
        assert await delete(state, 4) == [(4, 0)]
        assert await delete(state, 2, 7, -2, 5) == [
            (5, 0),
            (-1, ErrorCode.OFFSET_OUT_OF_RANGE),
            (-1, ErrorCode.OFFSET_OUT_OF_RANGE),
            (5, 0),
        ]
        parts = [DeleteRecordsOp("t", 1, 0), DeleteRecordsOp("u", 0, 0)]
        answer = await delete_records.handle(state, context(), DeleteRecordsOps(parts))
        assert {p.error_code for p in answer.partitions} == {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
        assert await values_of(state.log, partition, 5) == [b"5"]
    async with running_state(disk.copy()) as state:
        partition = await put(state, (1, 2))
        assert (partition.log_start, partition.high_watermark) == (5, 8)
        assert await delete(state, -1) == [(8, 0)]
        disk = disk.copy()
    async with running_state(disk) as state:
        topic = state.registry.by_name(ORG, "t")
        assert topic is not None
        assert await values_of(state.log, state.log.partitions.get(topic.partition_id(0)), 5) == [
            b"5"
        ]


async def test_an_emptied_partition_goes_on_where_it_was() -> None:
    disk = MemoryDisk()
    async with running_state(disk) as state:
        await state.topics.create(ORG, "t", 1)
        await put(state, (1, 3))
        assert await delete(state, -1) == [(3, 0)]
    async with running_state(disk.copy()) as state:
        partition = await put(state, (1, 1))
        assert (partition.log_start, partition.high_watermark) == (3, 4)
        assert await values_of(state.log, partition, 3) == [b"3"]


async def test_a_parked_fetch_below_the_new_start_is_told() -> None:
    async with running_state(MemoryDisk()) as state:
        await state.topics.create(ORG, "t", 1)
        await put(state, (1, 3))
        parked = asyncio.create_task(get(state, 3, wait_ms=20_000))
        await asyncio.sleep(0.01)
        await put(state, (1, 1))
        assert (await parked).error_code == 0
        ops = FetchOps([FetchOp("t", 0, 2, 1 << 20)], 20_000, 1 << 20)
        parked_below = asyncio.create_task(fetch.handle(state, context(), ops))
        await asyncio.sleep(0.01)
        await delete(state, 3)
        async with asyncio.timeout(5):
            (answer,) = (await parked_below).partitions
        assert (answer.error_code, answer.log_start_offset, answer.high_watermark) == (
            ErrorCode.OFFSET_OUT_OF_RANGE, 3, 4,
        )  # fmt: skip


async def test_a_full_disk_deletes_nothing() -> None:
    disk = MemoryDisk()
    async with running_state(disk) as state:
        await state.topics.create(ORG, "t", 1)
        partition = await put(state, (1, 3))
        disk.room = 0
        assert await delete(state, 2) == [(-1, ErrorCode.KAFKA_STORAGE_ERROR)]
        assert partition.log_start == 0


@pytest.mark.parametrize(
    ("batches", "start"),
    [
        ([], 0),
        ([(900, 2)], 0),
        ([(899, 2)], 2),
        ([(100, 1), (100, 2), (950, 1), (100, 1)], 3),
        ([(950, 1), (100, 1)], 0),
        ([(-1, 1), (100, 1), (-1, 2), (950, 1)], 2),
        ([(-1, 1), (-1, 1)], 0),
        ([(100, 1)] * 150 + [(950, 1)], 150),
        ([(100, 1)] * 150, 150),
    ],
)
async def test_by_time(batches: list[tuple[int, int]], start: int) -> None:
    disk = MemoryDisk()
    async with running_state(disk) as state:
        await state.topics.create(ORG, "t", 1, {"retention.ms": "100"})
        partition = await put(state, *batches)
        retention = state.retention(lambda: 1_000)
        assert await retention.sweep() == (start > 0)
        assert partition.log_start == start
        disk.cached, disk.unreadable = False, True
        assert await retention.sweep() == 0, "and without reading anything"
        disk.unreadable = False
        end = partition.high_watermark
    async with running_state(disk.copy()) as state:
        topic = state.registry.by_name(ORG, "t")
        assert topic is not None
        again = state.log.partitions.get(topic.partition_id(0))
        assert (again.log_start, again.high_watermark) == (start, end)


@pytest.mark.parametrize("count", [3, 64, 65, 200])
@pytest.mark.parametrize("kept", [0, 1, 2, 3])
async def test_by_size(count: int, kept: int) -> None:
    size = len(batch_of(b"000"))
    async with running_state(MemoryDisk()) as state:
        configs = {**FOREVER, "retention.bytes": str(kept * size)}
        await state.topics.create(ORG, "t", 1, configs)
        known = state.registry.by_name(ORG, "t")
        assert known is not None
        partition = state.log.partitions.get(known.partition_id(0))
        for n in range(count):
            ops = ProduceOps([ProduceOp("t", 0, batch_of(b"%03d" % n))])
            await produce.handle(state, context(), ops)
        retention = state.retention()
        await retention.sweep()
        assert partition.high_watermark - partition.log_start == kept
        for n in range(3):
            ops = ProduceOps([ProduceOp("t", 0, batch_of(b"%03d" % n))])
            await produce.handle(state, context(), ops)
            await retention.sweep()
            assert partition.high_watermark - partition.log_start == kept


async def test_size_keeps_at_least_the_limit() -> None:
    size = len(batch_of(b"0"))
    async with running_state(MemoryDisk()) as state:
        configs = {**FOREVER, "retention.bytes": str(2 * size + 1)}
        await state.topics.create(ORG, "t", 1, configs)
        partition = await put(state, *[(1, 1)] * 9)
        await state.retention().sweep()
        assert partition.high_watermark - partition.log_start == 3


async def test_an_unreadable_partition_keeps_its_records_and_no_others() -> None:
    disk = MemoryDisk()
    async with running_state(disk) as state:
        for name in ("t", "u"):
            await state.topics.create(ORG, name, 1, {"retention.ms": "100"})
        bad = await put(state, (100, 1), (950, 1))
        good = await put(state, (100, 1), topic="u")
        disk.cached, disk.unreadable = False, True
        assert await state.retention(lambda: 1_000).sweep() == 1
        assert (bad.log_start, good.log_start) == (0, 1)


async def test_silent_producers_are_forgotten_by_the_sweep() -> None:
    config = BrokerConfig(data=Path("unused"), producer_id_expiration_ms=1)
    async with running_state(MemoryDisk(), config) as state:
        await state.topics.create(ORG, "t", 1)
        ops = ProduceOps([ProduceOp("t", 0, batch_of(b"a", producer=(5, 0, 0)))])
        await produce.handle(state, context(), ops)
        await asyncio.sleep(0.01)
        assert len(state.producers) == 1
        await state.retention().sweep()
        assert len(state.producers) == 0
        ops = ProduceOps([ProduceOp("t", 0, batch_of(b"a", producer=(5, 0, 7)))])
        (answer,) = (await produce.handle(state, context(), ops)).partitions
        assert (answer.error_code, answer.base_offset) == (0, 1)


async def test_a_repeat_of_a_deleted_batch_has_its_offset() -> None:
    async with running_state(MemoryDisk()) as state:
        await state.topics.create(ORG, "t", 1)
        ops = ProduceOps([ProduceOp("t", 0, batch_of(b"a", b"b", producer=(5, 0, 0)))])
        await produce.handle(state, context(), ops)
        assert await delete(state, -1) == [(2, 0)]
        (answer,) = (await produce.handle(state, context(), ops)).partitions
        assert (answer.error_code, answer.base_offset, answer.log_start_offset) == (0, 0, 2)


async def test_the_registry_is_restated_before_it_grows_long() -> None:
    disk = MemoryDisk()
    async with running_state(disk) as state:
        state.journal.events_kept = 20
        for n in range(30):
            made, _ = await state.topics.create(ORG, f"gone-{n}", 1)
            await state.topics.delete(made)
            await state.topics.create(ORG, f"kept-{n}", 2, FOREVER)
            await put(state, (1, 2), topic=f"kept-{n}")
            await state.topics.delete_records({state.registry.topics(ORG)[0]: {0: n // 15}})
        registry = state.log.partitions.get(REGISTRY)
        assert registry.log_start > 0
        assert registry.high_watermark - registry.log_start < 130
        expected = state.registry.topics(ORG)
        ids = state.registry.producer_ids_up_to
    for again_disk in (disk.copy(), disk.copy()):
        async with running_state(again_disk) as state:
            assert state.registry.topics(ORG) == expected
            assert state.registry.producer_ids_up_to == ids
            assert state.log.partitions.get(REGISTRY).log_start == registry.log_start
            assert state.log.partitions.get(expected[0].partition_id(0)).log_start == 1
            again, _ = await state.topics.create(ORG, "gone-0", 1)
            assert again.generation > 0


@pytest.mark.parametrize("part", [0, 1, 2])
async def test_half_a_snapshot_is_nothing(part: int) -> None:
    """What a crash leaves when it comes between the parts."""
    disk = MemoryDisk()
    async with running_state(disk) as state:
        made, _ = await state.topics.create(ORG, "t", 1)
        parts = snapshot_parts(state.registry.restate(), per_part=1)
        await state.topics.delete(made)
        await state.journal._append(parts[: part + 1])
    disk = disk.copy()
    async with running_state(disk) as state:
        assert state.registry.every_topic() == []
        await state.topics.create(ORG, "u", 1)
    async with running_state(disk.copy()) as state:
        assert [topic.name for topic in state.registry.every_topic()] == ["u"]
