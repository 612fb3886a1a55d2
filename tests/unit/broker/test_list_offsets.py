"""Op 0x04: which offset a time leads to, against looking at every record."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quafka_broker.config.settings import BrokerConfig
from quafka_broker.ops import list_offsets
from quafka_broker.partitions import time_search
from quafka_broker.partitions.partition import Partition
from quafka_broker.partitions.time_search import Stamp
from quafka_broker.state import BrokerState
from quafka_broker.wal.log import Log
from quafka_mesh_ops.ops.offsets import ListOffsetsOp, ListOffsetsOps
from quafka_proto.errors import ErrorCode
from quafka_proto.record_codec import Record, build_batch
from quafka_proto.records import split_batches
from tests.support.suites import examples
from tests.unit.broker.memory_disk import MemoryDisk
from tests.unit.broker.tools import ORG, context, open_log, running_state, topic_id

batches = st.lists(st.lists(st.integers(0, 30), min_size=1, max_size=4), max_size=200)


async def produce(log: Log, partition: Partition, *timestamps: int) -> None:
    batch = build_batch([Record(0, at, None, b"v", []) for at in timestamps])
    await log.queue.append(partition, split_batches(batch))


@given(batches, st.integers(0, 31), st.floats(0, 1), st.booleans())
@examples(60)
def test_the_first_record_at_or_after_a_time(
    written: list[list[int]], timestamp: int, start: float, cached: bool
) -> None:
    stamps = [Stamp(n, at) for n, at in enumerate(at for batch in written for at in batch)]
    log_start = round(start * len(stamps))
    left = stamps[log_start:]

    async def search() -> None:
        disk = MemoryDisk()
        disk.cached = cached
        async with open_log(disk) as log:
            partition = log.partitions.get(topic_id())
            other = log.partitions.get(topic_id("another"))
            writes = [produce(log, one, *batch) for batch in written for one in (partition, other)]
            await asyncio.gather(*writes)
            partition.advance_log_start(log_start)
            found = await time_search.first_from(log.reader, partition, timestamp)
            assert found == next((s for s in left if s.timestamp >= timestamp), None)
            latest = await time_search.latest(log.reader, partition)
            assert latest == max(left, key=lambda s: (s.timestamp, -s.offset), default=None)

    asyncio.run(search())


async def ask(state: BrokerState, timestamp: int, topic: str = "t") -> tuple[int, int, int]:
    op = ListOffsetsOps([ListOffsetsOp(topic, 0, timestamp)], isolation_level=1)
    (answer,) = (await list_offsets.handle(state, context(), op)).partitions
    return answer.offset, answer.timestamp, answer.error_code


async def test_named_places() -> None:
    async with running_state(MemoryDisk()) as state:
        topic, _ = await state.topics.create(ORG, "t", 1)
        partition = state.log.partitions.get(topic.partition_id(0))
        assert await ask(state, -3) == (-1, -1, 0), "an empty partition has no latest record"
        await produce(state.log, partition, 10, 40, 20)
        await produce(state.log, partition, 40, 30)
        partition.advance_log_start(1)
        assert await ask(state, -1) == (5, -1, 0)
        assert await ask(state, -2) == (1, -1, 0)
        assert await ask(state, -3) == (1, 40, 0)
        assert await ask(state, -4) == (1, -1, 0)
        assert await ask(state, -5) == (-1, -1, 0)
        assert await ask(state, -6) == (-1, -1, 0)
        assert await ask(state, -7) == (-1, -1, ErrorCode.UNSUPPORTED_VERSION)
        assert await ask(state, 0) == (1, 40, 0)
        assert await ask(state, 41) == (-1, -1, 0)
        op = ListOffsetsOps([ListOffsetsOp("t", 0, -1, current_leader_epoch=1)])
        (answer,) = (await list_offsets.handle(state, context(), op)).partitions
        assert (answer.offset, answer.error_code) == (-1, ErrorCode.UNKNOWN_LEADER_EPOCH)
        assert await ask(state, 0, "u") == (-1, -1, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        partition.advance_log_start(2)
        assert await ask(state, -3) == (3, 40, 0)


async def test_a_disk_that_cannot_be_read() -> None:
    disk = MemoryDisk()
    async with running_state(disk, BrokerConfig(data=Path("unused"))) as state:
        topic, _ = await state.topics.create(ORG, "t", 1)
        await produce(state.log, state.log.partitions.get(topic.partition_id(0)), 10)
        disk.cached, disk.unreadable = False, True
        assert await ask(state, 5) == (-1, -1, ErrorCode.KAFKA_STORAGE_ERROR)


@pytest.mark.parametrize("timestamp", [0, -3])
async def test_the_log_start_may_move_meanwhile(timestamp: int) -> None:
    async with running_state(MemoryDisk()) as state:
        topic, _ = await state.topics.create(ORG, "t", 1)
        partition = state.log.partitions.get(topic.partition_id(0))
        for at in range(200):
            await produce(state.log, partition, at)
        asking = asyncio.create_task(ask(state, timestamp))
        for start in range(0, 201, 10):
            await asyncio.sleep(0)
            partition.advance_log_start(start)
        offset, at, error = await asking
        assert error == 0
        assert offset == at
