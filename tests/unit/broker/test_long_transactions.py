"""Offsets of a transaction that are stored in many pieces: others have their turns meanwhile, and
the transaction ends with all of them or none."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from quafka_broker.state import BrokerState
from quafka_broker.transactions import events
from quafka_mesh_ops.ops.group_offsets import CommitOffset, CommittedOffsets, CommittedQuestion
from quafka_mesh_ops.ops.transactions import CommitTxnOffsets
from tests.unit.broker.memory_disk import MemoryDisk
from tests.unit.broker.tools import ORG, running_state
from tests.unit.broker.transactional import GROUP, Sender, call, create

MANY, PIECE = 100, 10


@pytest.fixture(autouse=True)
def _pieces_are_small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events, "_OFFSETS_PER_EVENT", PIECE)


async def _begun(state: BrokerState) -> Sender:
    assert not await create(state, partitions=MANY)
    sender = Sender(state, implicit=True)
    assert not await sender.init()
    return sender


async def _store(sender: Sender, offset: int = 7) -> set[int]:
    rows = [CommitOffset("t", number, offset) for number in range(MANY)]
    op = CommitTxnOffsets(sender.producer, GROUP, -1, "", "", rows, implicit=True)
    return set((await call(sender.state, op)).partitions)


async def _committed(state: BrokerState) -> set[int]:
    asked = [CommittedQuestion("t", list(range(MANY)))]
    return {found.offset for found in (await call(state, CommittedOffsets(GROUP, asked))).offsets}


def _stored(state: BrokerState) -> int:
    """How many offsets of the transaction are in the log."""
    return sum(found.offsets for found in state.transactions.table.entries.values())


async def _growth(state: BrokerState, storing: asyncio.Task[set[int]]) -> AsyncIterator[int]:
    """How many are in the log, each time that it changes."""
    before = 0
    while not storing.done():
        await asyncio.sleep(0)
        if (now := _stored(state)) != before:
            before = now
            yield now


async def test_each_piece_has_a_turn_of_its_own() -> None:
    async with running_state(MemoryDisk()) as state:
        sender = await _begun(state)
        storing = asyncio.create_task(_store(sender))
        seen = [count async for count in _growth(state, storing)]
        assert seen == list(range(PIECE, MANY + 1, PIECE))
        assert await storing == {0}
        assert await _committed(state) == {-1}
        assert not await sender.end()
        assert await _committed(state) == {7}


async def test_an_end_waits_for_the_last_piece() -> None:
    async with running_state(MemoryDisk()) as state:
        sender = await _begun(state)
        storing = asyncio.create_task(_store(sender))
        async for _ in _growth(state, storing):
            break
        assert not storing.done()
        assert not await sender.end()
        assert await storing == {0}
        assert await _committed(state) == {7}


@pytest.mark.parametrize("commit", [True, False])
async def test_a_request_that_a_crash_cuts_off_is_repeated_or_aborted(commit: bool) -> None:
    disk = MemoryDisk()
    async with running_state(disk) as state:
        sender = await _begun(state)
        storing = asyncio.create_task(_store(sender))
        async for _ in _growth(state, storing):
            break
        left = disk.crashed()
        await storing
    async with running_state(left) as state:
        assert 0 < _stored(state) < MANY
        sender.state = state
        if commit:
            assert await _store(sender) == {0}
            assert _stored(state) == MANY
        assert not await sender.end(commit=commit)
        assert await _committed(state) == ({7} if commit else {-1})


async def test_nothing_is_stored_for_a_group_that_is_deleted_meanwhile() -> None:
    async with running_state(MemoryDisk()) as state:
        sender = await _begun(state)
        storing = asyncio.create_task(_store(sender))
        async for _ in _growth(state, storing):
            break
        await state.transactions.coordinator.drop_group(ORG, GROUP)
        assert await storing == {0}
        assert not await sender.end()
        assert await _committed(state) == {-1}
        assert not state.transactions.table.pending_cost(ORG)
