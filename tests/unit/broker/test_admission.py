"""Batches are checked before they are stored; long checks delay neither the loop nor the order."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from quafka_broker.admission import queue as admissions
from quafka_broker.config.settings import BrokerConfig
from quafka_broker.ops import produce
from quafka_broker.state import BrokerState
from quafka_loop import clock, threads
from quafka_mesh_ops.ops.records import ProduceOp, ProduceOpResp, ProduceOps
from quafka_proto.compression import Codec, compress
from quafka_proto.errors import ErrorCode
from quafka_proto.record_codec import Record, build_batch, iter_records
from quafka_proto.records import (
    BATCH_HEADER_SIZE,
    DELETE_HORIZON,
    LOG_APPEND_TIME,
    PATCHED_SIZE,
    crc32c,
    read_header,
)
from tests.unit.broker.memory_disk import MemoryDisk
from tests.unit.broker.tools import ORG, batch_of, context, running_state, values_of
from tests.unit.proto.batches import resealed, with_body

NOW = 1_700_000_000_000
LONG = admissions.SHORT_RECORDS + 1


async def send(
    state: BrokerState, records: bytes, partition: int = 0, org: int = ORG
) -> ProduceOpResp:
    op = ProduceOps([ProduceOp("t", partition, records)])
    (answer,) = (await produce.handle(state, context(org), op)).partitions
    return answer


def long_batch(value: bytes = b"v", count: int = LONG, codec: int = Codec.NONE) -> bytes:
    return bytes(build_batch([Record(0, 1_000, None, value, [])] * count, codec=codec))


@pytest.mark.parametrize("count", [1, (1 << 31) - 1])
@pytest.mark.parametrize("codec", list(Codec))
async def test_a_batch_of_61_bytes_claims_records(count: int, codec: int) -> None:
    hollow = resealed(with_body(b""), attributes=codec)
    hollow = resealed(hollow, record_count=count, last_offset_delta=count - 1)
    assert len(hollow) == BATCH_HEADER_SIZE
    async with running_state(MemoryDisk()) as state:
        topic, _ = await state.topics.create(ORG, "t", 1)
        answer = await send(state, hollow)
        assert answer.error_code == ErrorCode.INVALID_RECORD
        assert state.log.partitions.get(topic.partition_id(0)).high_watermark == 0


@pytest.mark.parametrize("codec", list(Codec)[1:])
async def test_a_bomb_is_refused_and_little_memory_is_kept(codec: int) -> None:
    bomb = with_body(compress(codec, bytes(65 << 20)))
    bomb = resealed(bomb, attributes=codec)
    config = BrokerConfig(data=Path("unused"), message_max_bytes=8 << 20)
    async with running_state(MemoryDisk(), config) as state:
        await state.topics.create(ORG, "t", 1)
        answer = await send(state, bomb)
        assert answer.error_code == ErrorCode.MESSAGE_TOO_LARGE
        assert state.admissions.in_thread == 1
        assert (await send(state, batch_of(b"1"))).base_offset == 0


async def test_long_and_short_batches_keep_their_order() -> None:
    async with running_state(MemoryDisk()) as state:
        topic, _ = await state.topics.create(ORG, "t", 2)
        values = [b"%d" % n for n in range(12)]
        batches = [long_batch(v) if n % 3 == 0 else batch_of(v) for n, v in enumerate(values)]
        answers = await asyncio.gather(*[send(state, batch) for batch in batches])
        assert state.admissions.in_thread == 4
        assert [a.base_offset for a in answers] == sorted(a.base_offset for a in answers)
        found = await values_of(state.log, state.log.partitions.get(topic.partition_id(0)))
        assert list(dict.fromkeys(found)) == values
        assert state.admissions.is_clear([topic.partition_id(0)])


async def test_a_long_batch_delays_only_its_own_partition(monkeypatch: pytest.MonkeyPatch) -> None:
    go_on = threads.Event()
    monkeypatch.setattr(admissions, "_breathe", lambda: go_on.wait(10))
    async with running_state(MemoryDisk()) as state:
        await state.topics.create(ORG, "t", 2)
        long = asyncio.create_task(send(state, long_batch()))
        behind = asyncio.create_task(send(state, batch_of(b"behind")))
        beside = await send(state, batch_of(b"beside"), partition=1)
        assert beside.base_offset == 0
        assert not long.done()
        assert not behind.done()
        go_on.set()
        assert ((await long).base_offset, (await behind).base_offset) == (0, LONG)


async def test_a_caller_that_goes_away_lets_the_next_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    go_on = threads.Event()
    monkeypatch.setattr(admissions, "_breathe", lambda: go_on.wait(10))
    async with running_state(MemoryDisk()) as state:
        await state.topics.create(ORG, "t", 1)
        gone = asyncio.create_task(send(state, long_batch()))
        behind = asyncio.create_task(send(state, batch_of(b"behind")))
        await asyncio.sleep(0)
        gone.cancel()
        assert (await behind).base_offset == 0
        go_on.set()


async def test_orgs_take_turns_at_the_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    go_on = threads.Event()
    monkeypatch.setattr(admissions, "_breathe", lambda: go_on.wait(10))
    done: list[int] = []

    async def one(state: BrokerState, org: int) -> None:
        assert (await send(state, long_batch(), org=org)).error_code == 0
        done.append(org)

    async with running_state(MemoryDisk()) as state:
        for org in (1, 2):
            await state.topics.create(org, "t", 1)
        tasks = [asyncio.create_task(one(state, org)) for org in (1, 1, 1, 1, 2)]
        await asyncio.sleep(0)
        go_on.set()
        await asyncio.gather(*tasks)
    assert done.index(2) <= 2, "one of org 1's runs, and perhaps the next is on its way"


async def test_a_max_timestamp_that_is_not_the_newest_is_corrected() -> None:
    batch = bytearray(batch_of(b"a", timestamp=1_000))
    batch[35:43] = (NOW).to_bytes(8, "big")
    async with running_state(MemoryDisk()) as state:
        topic, _ = await state.topics.create(ORG, "t", 1)
        assert (await send(state, resealed(bytes(batch)))).error_code == 0
        partition = state.log.partitions.get(topic.partition_id(0))
        (stored,) = await state.log.reader.read(partition, 0, 1 << 20, at_least_one=True)
        assert read_header(stored).max_timestamp == 1_000
        assert [record.value for record in iter_records(stored)] == [b"a"]


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.ZSTD])
@pytest.mark.parametrize("count", [1, LONG])
@pytest.mark.parametrize("time", ["CreateTime", "LogAppendTime"])
async def test_a_producers_delete_horizon_is_cleared(time: str, count: int, codec: int) -> None:
    batch = resealed(long_batch(count=count, codec=codec), attributes=codec | DELETE_HORIZON)
    async with running_state(MemoryDisk()) as state:
        topic, _ = await state.topics.create(ORG, "t", 1, {"message.timestamp.type": time})
        assert (await send(state, batch)).error_code == 0
        assert state.admissions.in_thread == (count == LONG)
        partition = state.log.partitions.get(topic.partition_id(0))
        (stored,) = await state.log.reader.read(partition, 0, 1 << 20, at_least_one=True)
        header = read_header(stored)
        assert header.attributes == codec | (LOG_APPEND_TIME if time == "LogAppendTime" else 0)
        assert crc32c(stored[PATCHED_SIZE:]) == header.crc
        if time == "CreateTime":
            assert {each.timestamp for each in iter_records(stored)} == {1_000}


async def test_records_out_of_time_are_named() -> None:
    config = BrokerConfig(data=Path("unused"), log_message_timestamp_before_max_ms=1 << 40)
    ages = (0, -1, 1 << 41, 0, 1 << 42)
    async with running_state(MemoryDisk(), config) as state:
        await state.topics.create(ORG, "t", 1)
        now = clock.time_ns() // 1_000_000
        times = [-1 if age < 0 else now - age for age in ages]
        batch = bytes(build_batch([Record(0, time, None, b"v", []) for time in times]))
        answer = await send(state, batch)
        assert answer.error_code == ErrorCode.INVALID_TIMESTAMP
        assert answer.record_errors is not None
        assert [each.index for each in answer.record_errors] == [2, 4]
        without = bytes(build_batch([Record(0, time, None, b"v", []) for time in times[:2]]))
        assert (await send(state, without)).error_code == 0


async def test_a_thousand_partitions_in_one_op() -> None:
    async with running_state(MemoryDisk()) as state:
        await state.topics.create(ORG, "t", 1_000)
        parts = [ProduceOp("t", n, batch_of(os.urandom(8))) for n in range(1_000)]
        parts[500] = ProduceOp("t", 500, long_batch())
        parts[501] = ProduceOp("t", 501, b"?")
        answers = (await produce.handle(state, context(), ProduceOps(parts))).partitions
        wrong = [n for n, answer in enumerate(answers) if answer.error_code]
        assert wrong == [501]
        assert {answer.base_offset for answer in answers} == {0, -1}
