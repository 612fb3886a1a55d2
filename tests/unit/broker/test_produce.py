"""Op 0x02: what is stored, what is refused, and that one partition never spoils another."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from quafka_broker.config.settings import BrokerConfig
from quafka_broker.ops import produce
from quafka_broker.state import BrokerState
from quafka_mesh_ops.ops.records import ProduceOp, ProduceOpResp, ProduceOps
from quafka_proto.errors import ErrorCode
from tests.unit.broker.memory_disk import MemoryDisk
from tests.unit.broker.tools import ORG, batch_of, context, running_state, values_of


async def send(state: BrokerState, *parts: ProduceOp, org: int = ORG) -> list[ProduceOpResp]:
    return (await produce.handle(state, context(org), ProduceOps(list(parts)))).partitions


def idempotent(*values: bytes, sequence: int) -> ProduceOp:
    return ProduceOp("t", 0, batch_of(*values, producer=(1, 0, sequence)))


async def test_errors_stay_with_their_partition() -> None:
    config = BrokerConfig(data=Path("unused"), message_max_bytes=200)
    async with running_state(MemoryDisk(), config) as state:
        topic, _ = await state.topics.create(ORG, "t", 2)
        good = batch_of(b"1")
        torn = good[:-1] + bytes([good[-1] ^ 1])
        old = good[:16] + b"\1" + good[17:]
        answers = await send(
            state,
            ProduceOp("t", 0, good),
            ProduceOp("t", 0, torn),
            ProduceOp("t", 0, old),
            ProduceOp("t", 0, b""),
            ProduceOp("t", 0, good[:40]),
            ProduceOp("t", 0, good + good),
            ProduceOp("t", 0, batch_of(b"x" * 200)),
            ProduceOp("t", 2, good),
            ProduceOp("t", -1, good),
            ProduceOp("missing", 0, good),
            ProduceOp("", 0, good, b"?" * 16),
            ProduceOp("", 1, good, topic.uuid),
            ProduceOp("t", 0, batch_of(b"x", producer=(1, -1, -1))),
            ProduceOp("t", 0, good),
        )
        assert [ErrorCode(a.error_code) for a in answers] == [
            ErrorCode.NONE,
            ErrorCode.CORRUPT_MESSAGE,
            ErrorCode.INVALID_RECORD,
            ErrorCode.INVALID_RECORD,
            ErrorCode.INVALID_RECORD,
            ErrorCode.INVALID_RECORD,
            ErrorCode.MESSAGE_TOO_LARGE,
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            ErrorCode.UNKNOWN_TOPIC_ID,
            ErrorCode.NONE,
            ErrorCode.INVALID_RECORD,
            ErrorCode.NONE,
        ]
        assert [a.base_offset for a in answers if not a.error_code] == [0, 0, 1]


async def test_orgs_do_not_see_each_other() -> None:
    async with running_state(MemoryDisk()) as state:
        await state.topics.create(ORG, "t", 1)
        (answer,) = await send(state, ProduceOp("t", 0, batch_of(b"1")), org=2)
        assert answer.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        await state.topics.create(2, "t", 1)
        (answer,) = await send(state, ProduceOp("t", 0, batch_of(b"1")), org=2)
        assert answer.base_offset == 0


async def test_a_repeat_is_stored_once_also_over_a_restart() -> None:
    disk = MemoryDisk()
    async with running_state(disk) as state:
        topic, _ = await state.topics.create(ORG, "t", 1)
        first, again = await send(
            state, idempotent(b"a", b"b", sequence=0), idempotent(b"a", b"b", sequence=0)
        )
        assert (first.base_offset, again.base_offset) == (0, 0)
        (gap,) = await send(state, idempotent(b"z", sequence=9))
        assert gap.error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    async with running_state(disk.copy()) as state:
        (again,) = await send(state, idempotent(b"a", b"b", sequence=0))
        (following,) = await send(state, idempotent(b"c", sequence=2))
        assert (again.base_offset, following.base_offset) == (0, 2)
        assert await values_of(state.log, state.log.partitions.get(topic.partition_id(0))) == [
            b"a",
            b"b",
            b"c",
        ]


@pytest.mark.parametrize("saved", [False, True])
async def test_an_evicted_producers_repeat_is_not_stored_also_over_a_restart(saved: bool) -> None:
    """Whether the eviction is known from the checkpoint, or happens again while the log is read."""
    disk = MemoryDisk()
    config = BrokerConfig(data=Path("unused"), max_producers_per_org=3)

    def first(producer: int, epoch: int = 0) -> ProduceOp:
        return ProduceOp("t", 0, batch_of(b"%d" % producer, producer=(producer, epoch, 0)))

    async with running_state(disk, config) as state:
        await state.topics.create(ORG, "t", 1)
        await send(state, *[first(producer) for producer in range(1, 6)])
        (again,) = await send(state, first(1))
        assert again.error_code == ErrorCode.UNKNOWN_PRODUCER_ID
        assert again.log_start_offset == 0, "Java begins no epoch without it"
        if saved:
            await state.log.checkpoint()
        crashed = disk.copy()
    async with running_state(crashed, config) as state:
        (again,) = await send(state, first(1))
        assert again.error_code == ErrorCode.UNKNOWN_PRODUCER_ID
        known, bumped, new = await send(state, first(5), first(1, epoch=1), first(9))
        assert (known.base_offset, bumped.base_offset, new.base_offset) == (4, 5, 6)


async def test_ops_reach_the_log_in_the_order_in_which_they_were_started() -> None:
    async with running_state(MemoryDisk()) as state:
        topic, _ = await state.topics.create(ORG, "t", 1)
        answers = await asyncio.gather(
            *[send(state, idempotent(b"%d" % n, sequence=n)) for n in range(30)]
        )
        assert [a.base_offset for (a,) in answers] == list(range(30))
        found = await values_of(state.log, state.log.partitions.get(topic.partition_id(0)))
        assert found == [b"%d" % n for n in range(30)]


async def test_another_org_appends_between_the_batches_of_a_large_op() -> None:
    """All of them in one commit would take as long as the disk needs for all of them."""
    batch = batch_of(b"x" * 600_000)
    async with running_state(MemoryDisk()) as state:
        topic, _ = await state.topics.create(ORG, "t", 40)
        await state.topics.create(2, "t", 1)
        await send(state, ProduceOp("t", 0, batch_of(b"1")))
        await send(state, ProduceOp("t", 0, batch_of(b"1")), org=2)  # now the log is shared
        large = asyncio.create_task(
            send(state, *(ProduceOp("t", at, batch) for at in range(1, 40)))
        )

        def stored() -> int:
            partitions = [state.log.partitions.get(topic.partition_id(at)) for at in range(1, 40)]
            return sum(partition.high_watermark for partition in partitions)

        while not stored():
            await asyncio.sleep(0)
        (answer,) = await send(state, ProduceOp("t", 0, batch_of(b"2")), org=2)
        assert answer.base_offset == 1
        assert stored() < 6
        assert {answer.error_code for answer in await large} == {ErrorCode.NONE}
        assert stored() == 39


async def test_an_op_of_many_small_batches_is_few_commits_also_beside_another_org() -> None:
    batch = batch_of(b"x")
    async with running_state(MemoryDisk()) as state:
        await state.topics.create(ORG, "t", 200)
        await state.topics.create(2, "t", 1)
        await send(state, ProduceOp("t", 0, batch))
        await send(state, ProduceOp("t", 0, batch), org=2)
        before = state.log.stats.groups
        answers = await send(state, *(ProduceOp("t", at, batch) for at in range(200)))
        assert {answer.error_code for answer in answers} == {ErrorCode.NONE}
        assert state.log.stats.groups - before < 6


async def test_a_full_disk_keeps_the_order_of_an_idempotent_producer() -> None:
    disk = MemoryDisk()
    async with running_state(disk) as state:
        topic, _ = await state.topics.create(ORG, "t", 1)
        disk.room = 0
        failed = await asyncio.gather(
            *[send(state, idempotent(b"%d" % n, sequence=n)) for n in range(3)]
        )
        assert {a.error_code for (a,) in failed} == {ErrorCode.KAFKA_STORAGE_ERROR}
        disk.room = None
        (overtaking,) = await send(state, idempotent(b"1", sequence=1))
        assert overtaking.error_code == ErrorCode.KAFKA_STORAGE_ERROR
        for n in range(3):
            (answer,) = await send(state, idempotent(b"%d" % n, sequence=n))
            assert (answer.error_code, answer.base_offset) == (0, n)
        found = await values_of(state.log, state.log.partitions.get(topic.partition_id(0)))
        assert found == [b"0", b"1", b"2"]


@pytest.mark.parametrize("found_again", [False, True])
async def test_what_a_failed_sync_leaves_in_doubt_is_stored_once(found_again: bool) -> None:
    disk = MemoryDisk()
    async with running_state(disk) as state:
        await state.topics.create(ORG, "t", 1)
        await send(state, idempotent(b"0", sequence=0))
        disk.sync_fails, disk.truncate_fails = True, found_again
        await send(state, idempotent(b"1", sequence=1))
        disk.sync_fails = disk.truncate_fails = False
        for _ in range(2):
            (doubted,) = await send(state, idempotent(b"1", sequence=1))
            assert doubted.error_code == ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
            (refused,) = await send(state, idempotent(b"2", sequence=2))
            assert refused.error_code == ErrorCode.KAFKA_STORAGE_ERROR
        (gap,) = await send(state, idempotent(b"3", sequence=3))
        assert gap.error_code == ErrorCode.KAFKA_STORAGE_ERROR
    async with running_state(disk.copy()) as state:
        (topic,) = state.registry.topics(ORG)
        partition = state.log.partitions.get(topic.partition_id(0))
        assert partition.high_watermark == (2 if found_again else 1)
        for n in (1, 2):
            (answer,) = await send(state, idempotent(b"%d" % n, sequence=n))
            assert (answer.error_code, answer.base_offset) == (0, n)
        assert await values_of(state.log, partition) == [b"0", b"1", b"2"]


async def test_a_caller_that_goes_away_takes_nothing_back() -> None:
    async with running_state(MemoryDisk()) as state:
        topic, _ = await state.topics.create(ORG, "t", 1)
        caller = asyncio.create_task(send(state, idempotent(b"a", sequence=0)))
        await asyncio.sleep(0)
        caller.cancel()
        (again,) = await send(state, idempotent(b"a", sequence=0))
        assert (again.error_code, again.base_offset) == (0, 0)
        assert await values_of(state.log, state.log.partitions.get(topic.partition_id(0))) == [b"a"]
