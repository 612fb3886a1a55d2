"""Whatever happens to an open transaction, it ends, and read_committed consumers go on."""

from __future__ import annotations

import pytest

from quafka_broker.partitions.errors import StorageError
from quafka_broker.state import BrokerState
from quafka_mesh_ops.ops.records import DeleteRecordsOp, DeleteRecordsOps
from quafka_mesh_ops.ops.topics import DeleteTopic
from quafka_proto.errors import ErrorCode
from tests.unit.broker.memory_disk import MemoryDisk
from tests.unit.broker.tools import running_state
from tests.unit.broker.transactional import Sender, call, create, fetch, read

TIMEOUT_MS = 10_000
both = pytest.mark.parametrize("implicit", [False, True], ids=["TV1", "TV2"])


async def expect_stable(state: BrokerState, *expected: bytes, partition: int = 0) -> None:
    """Readers see all of the partition that is left, which is this."""
    start = await fetch(state, partition=partition, committed=False)
    answer = await fetch(state, partition=partition, offset=start.log_start_offset, committed=True)
    assert not answer.error_code
    assert answer.last_stable_offset == answer.high_watermark
    assert await read(state, partition=partition, offset=answer.log_start_offset) == [*expected]


async def is_held(state: BrokerState) -> bool:
    answer = await fetch(state, committed=True)
    return answer.last_stable_offset < answer.high_watermark


def pass_timeout(state: BrokerState) -> None:
    """The clock of a state's transactions passes every timeout."""
    later = state.transactions.now_ms() + 2 * TIMEOUT_MS
    state.transactions.now_ms = state.transactions.coordinator.now_ms = lambda: later


@both
async def test_after_a_client_has_died_and_the_broker_too(implicit: bool) -> None:
    disk = MemoryDisk()
    async with running_state(disk) as state:
        await create(state)
        dead, living = Sender(state, "dead", implicit=implicit), Sender(state, "living")
        await dead.init(TIMEOUT_MS)
        await living.init()
        await dead.write("t", 0, b"dead")
        await living.write("t", 0, b"committed")
        assert not await living.end()
        assert await is_held(state)
        left = disk.crashed()
    for each in (disk, left):
        async with running_state(each) as state:
            assert await is_held(state)
            pass_timeout(state)
            await state.transactions.abort_overdue()
            await expect_stable(state, b"committed")


@both
async def test_after_a_topic_was_deleted_and_created_again(implicit: bool) -> None:
    disk = MemoryDisk()
    async with running_state(disk) as state:
        await create(state)
        sender, other = Sender(state, implicit=implicit), Sender(state, "other")
        await sender.init(TIMEOUT_MS)
        await other.init()
        await sender.write("t", 0, b"gone")
        await call(state, DeleteTopic("t"))
        assert not await create(state)
        await expect_stable(state)
        await other.write("t", 0, b"other")
        assert not await other.end()
        await expect_stable(state, b"other")
        left = disk.crashed()
        sender.sequences.clear()
        await sender.write("t", 0, b"both")
        assert await is_held(state)
        assert not await sender.end()
        await expect_stable(state, b"other", b"both")
    async with running_state(disk) as state:
        await expect_stable(state, b"other", b"both")
    async with running_state(left) as state:
        pass_timeout(state)
        await state.transactions.abort_overdue()
        await expect_stable(state, b"other")
        assert not state.transactions.table.open


@both
@pytest.mark.parametrize("upto", [2, 3, -1])
async def test_after_records_of_an_open_transaction_were_deleted(implicit: bool, upto: int) -> None:
    disk, left_over = MemoryDisk(), [b"c"] if upto == 2 else []
    async with running_state(disk) as state:
        await create(state)
        sender, other = Sender(state, implicit=implicit), Sender(state, "other")
        await sender.init(TIMEOUT_MS)
        await other.init()
        await sender.write("t", 0, b"a", b"b")
        await sender.write("t", 0, b"c")
        await call(state, DeleteRecordsOps([DeleteRecordsOp("t", 0, upto)]))
        left = disk.crashed()
        await other.write("t", 0, b"other")
        assert not await other.end()
        assert await is_held(state)
        assert not await sender.end()
        await expect_stable(state, *left_over, b"other")
    async with running_state(disk) as state:
        await expect_stable(state, *left_over, b"other")
    async with running_state(left) as state:
        pass_timeout(state)
        await state.transactions.abort_overdue()
        await expect_stable(state)


@both
async def test_after_the_disk_was_full_at_the_timeout(implicit: bool) -> None:
    disk = MemoryDisk()
    async with running_state(disk) as state:
        await create(state)
        dead, other = Sender(state, "dead", implicit=implicit), Sender(state, "other")
        await dead.init(TIMEOUT_MS)
        await other.init()
        await dead.write("t", 0, b"dead")
        await other.write("t", 0, b"other")
        assert not await other.end()
        pass_timeout(state)
        disk.room = 0
        for _ in range(3):
            with pytest.raises(StorageError):
                await state.transactions.abort_overdue()
            assert await is_held(state)
            assert await dead.end() in (
                ErrorCode.COORDINATOR_NOT_AVAILABLE,
                ErrorCode.KAFKA_STORAGE_ERROR,
            )
        disk.room = None
        await state.transactions.abort_overdue()
        await expect_stable(state, b"other")


@both
async def test_after_the_disk_was_full_while_a_session_began(implicit: bool) -> None:
    disk = MemoryDisk()
    async with running_state(disk) as state:
        await create(state)
        old, new = Sender(state, implicit=implicit), Sender(state, implicit=implicit)
        await old.init(TIMEOUT_MS)
        await old.write("t", 0, b"old")
        disk.room = 0
        assert await new.init()
        assert await is_held(state)
        disk.room = None
        assert not await new.init()
        await expect_stable(state)
        await new.write("t", 0, b"new")
        assert not await new.end()
        await expect_stable(state, b"new")
