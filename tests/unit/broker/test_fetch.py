"""Op 0x03: limits, errors, and the long poll."""

from __future__ import annotations

import asyncio

import pytest

from quafka_broker.ops import fetch
from quafka_broker.partitions.partition import Partition
from quafka_broker.state import BrokerState
from quafka_broker.topics.topic import Topic
from quafka_loop import clock
from quafka_loop.slices import Slices
from quafka_mesh_ops.ops.records import MOST_BATCHES, FetchOp, FetchOpResp, FetchOps
from quafka_proto.errors import ErrorCode
from quafka_proto.records import read_header
from tests.unit.broker.memory_disk import MemoryDisk
from tests.unit.broker.tools import EVERYTHING, ORG, checked, context, running_state

LONG = 20_000


async def put(state: BrokerState, topic: Topic, *values: bytes, partition: int = 0) -> int:
    grown = state.log.partitions.get(topic.partition_id(partition))
    return (await state.log.queue.append(grown, checked(*values)))[0]


async def get(
    state: BrokerState,
    *parts: FetchOp,
    wait: int = 0,
    min_bytes: int = 1,
    max_bytes: int = EVERYTHING,
) -> list[FetchOpResp]:
    op = FetchOps(list(parts), max_wait_ms=wait, min_bytes=min_bytes, max_bytes=max_bytes)
    return (await fetch.handle(state, context(), op)).partitions


def part(
    partition: int = 0, offset: int = 0, max_bytes: int = EVERYTHING, topic: str = "t"
) -> FetchOp:
    return FetchOp(topic, partition, offset, max_bytes)


def offsets(answer: FetchOpResp) -> list[int]:
    return [read_header(batch).base_offset for batch in answer.records]


async def test_batches_are_whole_and_start_with_the_one_that_holds_the_offset() -> None:
    async with running_state(MemoryDisk()) as state:
        topic, _ = await state.topics.create(ORG, "t", 1)
        await put(state, topic, b"0", b"1", b"2")
        await put(state, topic, b"3")
        (answer,) = await get(state, part(offset=2))
        assert offsets(answer) == [0, 3]
        assert (answer.high_watermark, answer.last_stable_offset) == (4, 4)
        assert (answer.log_start_offset, answer.error_code) == (0, 0)


async def test_limits() -> None:
    async with running_state(MemoryDisk()) as state:
        topic, _ = await state.topics.create(ORG, "t", 3)
        for partition in (1, 2):
            for _ in range(3):
                await put(state, topic, b"x" * 100, partition=partition)
        size = len(checked(b"x" * 100)[0][1])

        async def counts(first: int, second: int, whole: int) -> list[int]:
            answers = await get(
                state, part(0), part(1, 0, first), part(2, 0, second), max_bytes=whole
            )
            return [len(answer.records) for answer in answers]

        assert await counts(1, 1, EVERYTHING) == [0, 1, 0], "the first with any, however large"
        assert await counts(1, size, EVERYTHING) == [0, 1, 1]
        assert await counts(2 * size, 2 * size, EVERYTHING) == [0, 2, 2]
        assert await counts(EVERYTHING, EVERYTHING, 4 * size) == [0, 3, 1]
        assert await counts(EVERYTHING, EVERYTHING, 1) == [0, 1, 0]
        assert await counts(-1, -1, EVERYTHING) == [0, 1, 0]


async def test_errors_are_answered_at_once_and_stay_with_their_partition() -> None:
    async with running_state(MemoryDisk()) as state:
        topic, _ = await state.topics.create(ORG, "t", 1)
        await put(state, topic, b"0")
        start = clock.monotonic()
        answers = await get(
            state,
            part(offset=2),
            part(offset=-1),
            part(1),
            part(topic="missing"),
            FetchOp("", 0, 0, EVERYTHING, b"?" * 16),
            FetchOp("", 0, 0, EVERYTHING, topic.uuid),
            FetchOp("t", 0, 0, EVERYTHING, current_leader_epoch=1),
            FetchOp("t", 0, 0, EVERYTHING, current_leader_epoch=0),
            wait=LONG,
            min_bytes=EVERYTHING,
        )
        assert clock.monotonic() - start < 5
        assert [ErrorCode(a.error_code) for a in answers] == [
            ErrorCode.OFFSET_OUT_OF_RANGE,
            ErrorCode.OFFSET_OUT_OF_RANGE,
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            ErrorCode.UNKNOWN_TOPIC_ID,
            ErrorCode.NONE,
            ErrorCode.UNKNOWN_LEADER_EPOCH,
            ErrorCode.NONE,
        ]
        assert [(a.log_start_offset, a.high_watermark) for a in answers[:2]] == [(0, 1)] * 2
        assert [len(a.records) for a in answers] == [0, 0, 0, 0, 0, 1, 0, 1]


async def test_an_append_wakes_a_parked_fetch() -> None:
    async with running_state(MemoryDisk()) as state:
        topic, _ = await state.topics.create(ORG, "t", 2)
        parked = asyncio.create_task(get(state, part(0), part(1), wait=LONG))
        await asyncio.sleep(0.02)
        assert not parked.done()
        await put(state, topic, b"0", partition=1)
        empty, found = await asyncio.wait_for(parked, 30)
        assert (offsets(empty), offsets(found)) == ([], [0])


async def test_min_bytes_counts_over_all_partitions() -> None:
    async with running_state(MemoryDisk()) as state:
        topic, _ = await state.topics.create(ORG, "t", 2)
        size = len(checked(b"0")[0][1])
        parked = asyncio.create_task(get(state, part(0), part(1), wait=LONG, min_bytes=2 * size))
        await asyncio.sleep(0)
        await put(state, topic, b"0", partition=0)
        await asyncio.sleep(0.02)
        assert not parked.done()
        await put(state, topic, b"0", partition=1)
        answers = await asyncio.wait_for(parked, 30)
        assert [offsets(answer) for answer in answers] == [[0], [0]]


async def test_a_parked_fetch_ends_at_its_deadline_with_the_readable_records() -> None:
    async with running_state(MemoryDisk()) as state:
        topic, _ = await state.topics.create(ORG, "t", 1)
        await put(state, topic, b"0")
        start = clock.monotonic()
        (answer,) = await get(state, part(), wait=50, min_bytes=10_000)
        assert 0.04 < clock.monotonic() - start < 20
        assert offsets(answer) == [0]


async def test_deleting_the_topic_ends_a_parked_fetch() -> None:
    async with running_state(MemoryDisk()) as state:
        topic, _ = await state.topics.create(ORG, "t", 1)
        parked = asyncio.create_task(get(state, part(), wait=LONG))
        await asyncio.sleep(0)
        await state.topics.delete(topic)
        (answer,) = await asyncio.wait_for(parked, 30)
        assert answer.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def test_draining_answers_parked_fetches_and_a_cancelled_one_leaves_nothing() -> None:
    async with running_state(MemoryDisk()) as state:
        await state.topics.create(ORG, "t", 1)
        gone = asyncio.create_task(get(state, part(), wait=LONG))
        parked = asyncio.create_task(get(state, part(), wait=LONG))
        await asyncio.sleep(0)
        gone.cancel()
        await asyncio.sleep(0)
        state.parked_fetches.drain()
        (answer,) = await asyncio.wait_for(parked, 30)
        assert (answer.error_code, answer.records) == (0, [])
        assert len(state.parked_fetches) == 0


async def test_an_unreadable_batch_is_a_storage_error_of_its_partition() -> None:
    disk = MemoryDisk()
    async with running_state(disk) as state:
        topic, _ = await state.topics.create(ORG, "t", 2)
        await put(state, topic, b"0")
        disk.unreadable = True
        bad, good = await get(state, part(0), part(1), wait=LONG, min_bytes=5)
        disk.unreadable = False
        assert (bad.error_code, bad.high_watermark) == (ErrorCode.KAFKA_STORAGE_ERROR, 1)
        assert good.error_code == 0


async def test_an_op_without_partitions_is_answered_at_once() -> None:
    async with running_state(MemoryDisk()) as state:
        assert await asyncio.wait_for(get(state, wait=LONG), 30) == []


async def test_a_name_and_the_id_of_another_topic() -> None:
    async with running_state(MemoryDisk()) as state:
        old, _ = await state.topics.create(ORG, "t", 1)
        await state.topics.delete(old)
        new, _ = await state.topics.create(ORG, "t", 1)
        stale, right = await get(
            state,
            FetchOp("t", 0, 0, EVERYTHING, old.uuid),
            FetchOp("t", 0, 0, EVERYTHING, new.uuid),
        )
        assert stale.error_code == ErrorCode.INCONSISTENT_TOPIC_ID
        assert right.error_code == 0


async def test_the_aborted_list_travels_with_read_committed() -> None:
    async with running_state(MemoryDisk()) as state:
        await state.topics.create(ORG, "t", 1)
        for isolation, aborted in ((0, None), (1, [])):
            op = FetchOps([part()], isolation_level=isolation)
            (answer,) = (await fetch.handle(state, context(), op)).partitions
            assert answer.aborted_transactions == aborted


async def test_tiny_batches_are_answered_by_number() -> None:
    """As many batches as an answer may hold are enough for any min_bytes."""
    async with running_state(MemoryDisk()) as state:
        topic, _ = await state.topics.create(ORG, "t", 2)
        tiny = checked(b"")
        for partition in (0, 1):
            await state.log.queue.append(
                state.log.partitions.get(topic.partition_id(partition)), tiny * MOST_BATCHES
            )
        answers = await asyncio.wait_for(
            get(state, part(0, 100), part(1), wait=LONG, min_bytes=9 << 20), 5
        )
        counts = [len(answer.records) for answer in answers]
        assert counts == [MOST_BATCHES - 100, 100]
        (few,) = await get(state, part(1, MOST_BATCHES - 3), min_bytes=9 << 20)
        assert len(few.records) == 3


async def test_counted_bytes_are_not_counted_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """So a fetch for many bytes, of which few arrive at a time, costs no more than they do."""
    async with running_state(MemoryDisk()) as state:
        topic, _ = await state.topics.create(ORG, "t", 2)
        size = len(checked(b"0")[0][1])
        for _ in range(5):
            await put(state, topic, b"0")
        asked: list[tuple[int, int]] = []
        readable = state.log.reader.readable

        def count(partition: Partition, offset: int, enough: int, most: int) -> tuple[int, int]:
            asked.append((partition.id.partition, offset))
            return readable(partition, offset, enough, most)

        monkeypatch.setattr(state.log.reader, "readable", count)
        parked = asyncio.create_task(get(state, part(0), part(1), wait=LONG, min_bytes=8 * size))
        await asyncio.sleep(0)
        await put(state, topic, b"0")
        await put(state, topic, b"0", partition=1)
        await asyncio.sleep(0.02)
        assert not parked.done()
        await put(state, topic, b"0")
        answers = await asyncio.wait_for(parked, 30)
        assert [len(answer.records) for answer in answers] == [7, 1]
        assert asked == [(0, 0), (0, 5), (1, 0), (0, 6)]


async def test_a_partition_counts_for_no_more_than_may_be_returned_of_it() -> None:
    async with running_state(MemoryDisk()) as state:
        topic, _ = await state.topics.create(ORG, "t", 2)
        size = len(checked(b"0")[0][1])
        parked = asyncio.create_task(
            get(state, part(0, 0, size), part(1), wait=LONG, min_bytes=2 * size)
        )
        for _ in range(4):
            await asyncio.sleep(0)
            await put(state, topic, b"0")
        await asyncio.sleep(0.02)
        assert not parked.done()
        await put(state, topic, b"0", partition=1)
        answers = await asyncio.wait_for(parked, 30)
        assert [len(answer.records) for answer in answers] == [1, 1]


async def test_a_partition_named_twice_is_woken_and_answered_twice() -> None:
    async with running_state(MemoryDisk()) as state:
        topic, _ = await state.topics.create(ORG, "t", 1)
        parked = asyncio.create_task(get(state, part(), part(), wait=LONG))
        await asyncio.sleep(0)
        await put(state, topic, b"0")
        answers = await asyncio.wait_for(parked, 30)
        assert [offsets(answer) for answer in answers] == [[0], [0]]


async def test_a_fetch_of_many_partitions_lets_other_tasks_run_and_misses_nothing() -> None:
    async with running_state(MemoryDisk()) as state:
        topic, _ = await state.topics.create(ORG, "t", 2_000)
        asked = asyncio.create_task(get(state, *map(part, range(2_000)), wait=LONG))
        await asyncio.sleep(0)  # it has looked at the first ones
        await asyncio.sleep(0)
        assert not len(state.parked_fetches)
        began = clock.monotonic()
        await put(state, topic, b"0")
        answers = await asked
        assert offsets(answers[0]) == [0]
        assert clock.monotonic() - began < LONG / 2_000


@pytest.mark.parametrize("deletes", [False, True])
async def test_a_change_before_a_long_fetch_is_parked_is_noticed(
    monkeypatch: pytest.MonkeyPatch, deletes: bool
) -> None:
    async with running_state(MemoryDisk()) as state:
        topic, _ = await state.topics.create(ORG, "t", 300)

        class Late(Slices):
            """Changes a partition once the fetch has looked at all of them."""

            looked = 0

            async def done(self, count: int = 1) -> None:
                Late.looked += count
                if Late.looked == 300:
                    await (state.topics.delete(topic) if deletes else put(state, topic, b"0"))

        monkeypatch.setattr(fetch, "Slices", Late)
        answers = await asyncio.wait_for(get(state, *map(part, range(300)), wait=LONG), 30)
        if deletes:
            assert answers[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        else:
            assert offsets(answers[0]) == [0]
        assert len(state.parked_fetches) == 0
