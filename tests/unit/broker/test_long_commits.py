"""Commits of many offsets: others have their turns, order is kept, and nobody sees half of one."""

from __future__ import annotations

import asyncio

import pytest

from quafka_broker.groups import journal
from quafka_broker.ops import offsets
from quafka_broker.state import BrokerState
from quafka_mesh_ops.ops.group_offsets import (
    CommitOffset,
    CommitOffsets,
    CommittedOffsets,
    CommittedQuestion,
)
from tests.unit.broker.memory_disk import MemoryDisk
from tests.unit.broker.tools import ORG, context, running_state

MANY = 5_000


async def commit(state: BrokerState, offset: int, count: int = MANY) -> None:
    op = CommitOffsets("g", -1, "", "", [CommitOffset("t", n, offset) for n in range(count)])
    answer = await offsets.commit(state, context(), op)
    assert set(answer.partitions) == {0}


async def values(state: BrokerState, *partitions: int) -> list[int]:
    """The committed offsets: of all partitions, or of these."""
    asked = [CommittedQuestion("t", list(partitions))] if partitions else None
    answer = await offsets.committed(state, context(), CommittedOffsets("g", asked))
    return [found.offset for found in answer.offsets]


async def test_others_have_their_turns_during_a_long_commit() -> None:
    turns = 0

    async def others() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    async with running_state(MemoryDisk(), lease_seconds=0) as state:
        await state.topics.create(ORG, "t", 4 * MANY)
        busy = asyncio.create_task(others())
        await commit(state, 1, 4 * MANY)
        during, turns = turns, 0
        await state.groups.journal.bookkeeping_done()
        busy.cancel()
        # A slice has 1 ms, and the commit takes far longer than this many.
        assert during > 20
        assert turns > 5


async def test_a_reader_sees_all_of_a_commit_or_nothing() -> None:
    async with running_state(MemoryDisk(), lease_seconds=0) as state:
        await state.topics.create(ORG, "t", MANY)
        await commit(state, 0)
        seen: set[int] = set()

        async def read(*partitions: int) -> None:
            while 6 not in seen:
                found = set(await values(state, *partitions))
                assert len(found) == 1
                seen.update(found)
                await asyncio.sleep(0)

        readers = [asyncio.create_task(read(*some)) for some in ((), range(MANY), (0, MANY - 1))]
        for number in range(1, 7):
            await commit(state, number)
        async with asyncio.timeout(20):
            await asyncio.gather(*readers)
        assert len(seen) > 1


async def test_commits_of_a_group_keep_their_order_however_long() -> None:
    disk = MemoryDisk()
    async with running_state(disk, lease_seconds=0) as state:
        await state.topics.create(ORG, "t", MANY)
        sizes = (MANY, 1, MANY // 2, 2, 1)
        await asyncio.gather(*(commit(state, n, size) for n, size in enumerate(sizes)))
        expected = [4, 3, *[2] * (MANY // 2 - 2), *[0] * (MANY // 2)]
        assert await values(state) == expected
    async with running_state(disk, lease_seconds=0) as state:
        assert await values(state) == expected


async def test_what_was_just_committed_survives_that_the_log_is_shortened() -> None:
    """While its places are not noted yet, the log start must not pass it."""
    disk = MemoryDisk()
    async with running_state(disk, lease_seconds=0) as state:
        await state.topics.create(ORG, "t", MANY)
        await commit(state, 1)
        assert state.groups.journal._unplaced
        await state.groups.journal._restate()
        await commit(state, 2)
        assert state.groups.journal._unplaced
        await state.log.checkpoint()
    async with running_state(disk, lease_seconds=0) as state:
        assert await values(state) == [2] * MANY


async def test_what_an_org_holds_is_exact_after_all() -> None:
    async with running_state(MemoryDisk(), lease_seconds=0) as state:
        await state.topics.create(ORG, "t", MANY)
        await commit(state, 1)
        await state.groups.journal.bookkeeping_done()
        held = state.groups.usage(ORG).offset_bytes
        for number in (2, 3):
            await commit(state, number)
        await state.groups.journal.bookkeeping_done()
        assert state.groups.usage(ORG).offset_bytes == held > 0
        await commit(state, 4)
        await state.groups.delete_group(ORG, "g")
        await state.groups.journal.bookkeeping_done()
        assert state.groups.usage(ORG).offset_bytes == 0


@pytest.fixture(autouse=True)
def _many_are_few(monkeypatch: pytest.MonkeyPatch) -> None:
    """Everything follows in slices, so that it is not done when the commit is answered."""
    monkeypatch.setattr(journal, "_AT_ONCE", 0)


async def test_a_short_answer_has_no_turn_for_commits(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process without a core may take longer than a slice for two offsets."""
    monkeypatch.setattr("quafka_loop.slices.SLICE_SECONDS", -1.0)
    async with running_state(MemoryDisk(), lease_seconds=0) as state:
        await state.topics.create(ORG, "t", 2)
        await commit(state, 1, 2)
        reading = asyncio.create_task(values(state, 0, 1))
        await asyncio.sleep(0)
        assert reading.done()
        assert await reading == [1, 1]
