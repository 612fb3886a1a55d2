"""Answers to appends: all state first, then the answers in order, then parked fetches."""

from __future__ import annotations

import asyncio
from collections.abc import Set
from contextlib import suppress
from functools import partial

import pytest

from quafka_broker.partitions.errors import StorageError
from quafka_broker.partitions.outcome import Outcome
from quafka_broker.partitions.partition import PartitionId
from quafka_broker.wal.fsync import FsyncPolicy
from quafka_broker.wal.log import Log
from quafka_loop import clock
from quafka_loop.eager_task import EagerTask
from tests.unit.broker.memory_disk import MemoryDisk
from tests.unit.broker.tools import checked, open_log, topic_id

seen: list[str] = []


@pytest.fixture(autouse=True)
def nothing_seen() -> None:
    seen.clear()


def settled(name: str, _outcome: Outcome) -> None:
    seen.append(f"{name} settled")


async def produce(log: Log, name: str, topic: str = "t") -> int:
    """An op that waits for its append, and then looks at the partition."""
    partition = log.partitions.get(topic_id(topic))
    pending = log.queue.append(partition, checked(b"x"), settle=partial(settled, name))
    (offset,) = await pending
    seen.append(f"{name} answered at {partition.high_watermark}")
    return offset


async def test_all_state_is_in_order_before_the_first_answer_and_fetches_wake_last() -> None:
    def grew(grown: Set[PartitionId]) -> None:
        seen.append(f"{len(grown)} grew")

    async with open_log(MemoryDisk(), on_commit=grew) as log:
        ops = [EagerTask(produce(log, name)) for name in "abc"]
        assert await asyncio.gather(*ops) == [0, 1, 2]
    assert seen == [
        "a settled", "b settled", "c settled",
        "a answered at 3", "b answered at 3", "c answered at 3",
        "1 grew",
    ]  # fmt: skip


async def test_a_cancelled_append_is_settled_all_the_same() -> None:
    async with open_log(MemoryDisk()) as log:
        gone = EagerTask(produce(log, "gone"))
        gone.cancel()
        other = EagerTask(produce(log, "other"))
        assert await other == 1
        assert gone.cancelled()
    assert seen == ["gone settled", "other settled", "other answered at 2"]


async def test_a_failing_caller_costs_the_others_nothing() -> None:
    def broken(_outcome: Outcome) -> None:
        raise RuntimeError("a bug")

    async with open_log(MemoryDisk()) as log:
        partition = log.partitions.get(topic_id())
        first = log.queue.append(partition, checked(b"x"), settle=broken)
        first.add_direct_callback(partial(broken, [0]))
        second = log.queue.append(partition, checked(b"x"))
        assert (await first, await second) == ([0], [1])
        assert log.failure is None
        assert await log.queue.append(partition, checked(b"x")) == [2]


async def test_an_op_may_append_again_while_it_is_answered() -> None:
    async def twice(log: Log, name: str) -> None:
        await produce(log, name)
        await produce(log, name)

    async with open_log(MemoryDisk()) as log:
        await asyncio.gather(*[EagerTask(twice(log, name)) for name in "ab"])
        assert log.partitions.get(topic_id()).high_watermark == 4
    assert [each for each in seen if "answered" in each] == [
        "a answered at 2", "b answered at 2", "a answered at 4", "b answered at 4"
    ]  # fmt: skip


@pytest.mark.parametrize("fails", [False, True])
async def test_many_answers_are_given_in_slices(fails: bool) -> None:
    """Each op takes long to answer; the loop gets its turns in between."""
    turns = 0

    def turn() -> None:
        nonlocal turns
        turns += 1
        asyncio.get_running_loop().call_soon(turn)

    async def slow(log: Log, number: int) -> None:
        with suppress(StorageError):
            await log.queue.append(log.partitions.get(topic_id()), checked(b"x"))
        seen.append(f"{number} at {turns}")
        clock.sleep(0.001)

    disk = MemoryDisk()
    async with open_log(disk, FsyncPolicy(0.0)) as log:
        disk.room = 0 if fails else None
        turn()
        await asyncio.gather(*[EagerTask(slow(log, number)) for number in range(40)])
        disk.room = None
    assert [int(each.split()[0]) for each in seen] == list(range(40))
    at = [int(each.split()[-1]) for each in seen]
    assert max(map(at.count, at)) <= 5


async def test_a_closed_log_refuses_in_a_later_turn() -> None:
    async with open_log(MemoryDisk()) as log:
        pass
    pending = log.queue.append(
        log.partitions.get(topic_id()), checked(b"x"), settle=partial(settled, "late")
    )
    assert not seen
    with pytest.raises(StorageError):
        await pending
    assert seen == ["late settled"]
