"""Transactions after crashes and damage: ended ones stay ended, readers never wait for ever."""

from __future__ import annotations

import zlib
from typing import Any
from unittest.mock import patch

import pytest

from quafka_broker.journals.internal_topics import GROUPS, TRANSACTIONS
from quafka_broker.partitions.partition import PartitionId
from quafka_broker.state import BrokerState
from quafka_broker.transactions.events import Event
from quafka_broker.transactions.journal import SECTION
from quafka_broker.wal.segment import index_name, log_name
from quafka_proto.log_format import (
    ENTRY_HEADER_SIZE,
    FILE_HEADER_SIZE,
    INDEX_ROW_SIZE,
    IndexRow,
    decode_row,
)
from tests.unit.broker.memory_disk import MemoryDisk
from tests.unit.broker.tools import running_state, topic_id
from tests.unit.broker.transactional import Sender, committed_offset, create, fetch, read


def rows_of(disk: MemoryDisk, partition: PartitionId) -> list[IndexRow]:
    data = bytes(disk.files[index_name(0)].data)
    rows = [decode_row(data, at) for at in range(FILE_HEADER_SIZE, len(data), INDEX_ROW_SIZE)]
    return [row for row in rows if (row.org_id, row.topic_hash, row.partition) == partition[:3]]


def damage(disk: MemoryDisk, row: IndexRow) -> None:
    disk.files[log_name(0)].data[row.position + ENTRY_HEADER_SIZE + 50] ^= 1


def table_of(state: BrokerState) -> dict[Any, list[Event]]:
    return {key: list(found.restated()) for key, found in state.transactions.table.entries.items()}


def partitions_of(state: BrokerState) -> dict[PartitionId, Any]:
    found: dict[PartitionId, Any] = {}
    for id_ in state.log.partitions.ids():
        transactions = state.log.partitions.get(id_).transactions
        if transactions:
            found[id_] = transactions.dump()
    return found


async def some_work(state: BrokerState) -> None:
    """Open, committed and aborted transactions of both kinds of clients."""
    for number in range(4):
        sender = Sender(state, f"tx{number}", implicit=bool(number % 2))
        await sender.init()
        for turn in range(3):
            await sender.write("t", turn, b"%d" % number)
            await sender.offsets(turn, group=f"g{number}")
            if turn < 2:
                assert not await sender.end(commit=bool((number + turn) % 3))


@pytest.mark.parametrize("when", ["none", "before", "amid", "after"])
async def test_a_checkpoint_and_what_follows_it_equal_a_replay_of_everything(when: str) -> None:
    disk = MemoryDisk()
    async with running_state(disk) as state:
        await create(state)
        if when == "before":
            await state.log.checkpoint()
        await some_work(state)
        if when == "amid":
            await state.log.checkpoint()
        sender = Sender(state, "later", implicit=True)
        await sender.init()
        await sender.write("t", 0, b"x")
        await sender.end()
        if when == "after":
            await state.log.checkpoint()
        left, expected = disk.crashed(), (table_of(state), partitions_of(state))
        values = [await read(state, partition=n) for n in range(3)]
    async with running_state(left) as state:
        assert (table_of(state), partitions_of(state)) == expected
        assert [await read(state, partition=n) for n in range(3)] == values
        for number in range(4):
            sender = Sender(state, f"tx{number}")
            assert not await sender.init()
        for number in range(3):
            answer = await fetch(state, partition=number, committed=True)
            assert answer.last_stable_offset == answer.high_watermark


@pytest.mark.parametrize("size_survives", [False, True])
@pytest.mark.parametrize("commit", [False, True])
async def test_a_power_cut_at_any_write_leaves_a_transaction_whole(
    commit: bool, size_survives: bool
) -> None:
    disk = MemoryDisk(record=True)
    async with running_state(disk) as state:
        await create(state)
        sender = Sender(state, implicit=True)
        await sender.init()
        await sender.offsets(3)
        for number in range(3):
            await sender.write("t", number, b"a")
        began = len(disk.snapshots)
        await sender.end_once(commit=commit)
        ended = len(disk.snapshots)
    outcomes: set[bool] = set()
    for snapshot in disk.snapshots[began - 1 : ended + 1]:
        for share in (0.0, 0.3, 0.6, 0.9, 1.0):

            def survives(name: str, sector: int, share: float = share) -> bool:
                return zlib.crc32(f"{share} {name} {sector}".encode()) % 100 < 100 * share

            left = snapshot.after_power_cut(survives, size_survives)
            async with running_state(left) as state:
                seen = [await read(state, partition=n) for n in range(3)]
                offset, _ = await committed_offset(state)
                answers = [await fetch(state, partition=n, committed=True) for n in range(3)]
                stable = {a.last_stable_offset == a.high_watermark for a in answers}
                assert len(stable) == 1
                outcomes |= stable
                ended_here = stable == {True}
                shown = ended_here and commit
                assert seen == [[b"a"] if shown else []] * 3
                assert offset == (3 if shown else -1)
                sender.state = state
                answer = await sender.end_once(commit=commit)
                assert not answer.error_code
                assert await read(state) == ([b"a"] if commit else [])
    assert outcomes == {False, True}


@pytest.mark.parametrize("what", ["marker", "event", "all", "offsets"])
@pytest.mark.parametrize("commit", [False, True])
async def test_damage_to_the_end_of_a_transaction_never_holds_up_readers(
    what: str, commit: bool
) -> None:
    disk = MemoryDisk()
    async with running_state(disk) as state:
        await create(state)
        sender = Sender(state, implicit=True)
        await sender.init()
        await sender.offsets(3)
        for number in range(3):
            await sender.write("t", number, b"a")
        await sender.end(commit=commit)
        await sender.write("t", 1, b"b")
        await sender.end()
        left = disk.crashed()
    markers = [rows_of(left, topic_id(partition=n))[1] for n in range(3)]
    event = rows_of(left, TRANSACTIONS)[-3]
    damaged = {
        "marker": markers[1:2],
        "event": [event],
        "all": [event, *markers],
        "offsets": rows_of(left, GROUPS),
    }[what]
    for row in damaged:
        damage(left, row)
    for _ in range(2):
        async with running_state(left) as state:
            for number in range(3):
                answer = await fetch(state, partition=number, committed=True)
                assert answer.last_stable_offset == answer.high_watermark
            if what == "marker":
                answer = await fetch(state, partition=1, offset=2, committed=True)
                assert answer.records
            other = Sender(state, "other")
            assert not await other.init()
            await other.write("t", 2, b"after")
            assert not await other.end()
            assert (await read(state, partition=2, offset=2))[-1] == b"after"


async def test_the_journal_is_shortened_and_says_the_same() -> None:
    disk = MemoryDisk()
    async with running_state(disk) as state:
        await create(state)
        await some_work(state)
        state.transactions.events_kept = 10
        before = table_of(state)
        await state.transactions.shorten()
        partition = state.log.partitions.get(TRANSACTIONS)
        assert partition.log_start > 20
        assert table_of(state) == before
        left = disk.crashed()
    async with running_state(left) as state:
        assert state.log.partitions.get(TRANSACTIONS).log_start > 20
        assert table_of(state) == before


async def test_many_ids_are_restated_copied_and_forgotten_in_few_writes() -> None:
    disk = MemoryDisk()
    async with running_state(disk) as state:
        await create(state)
        for number in range(150):
            sender = Sender(state, f"tx-{number}", implicit=True)
            await sender.init()
            if number % 2:
                await sender.write("t", 0, b"a")
        transactions, stats = state.transactions, state.log.stats
        before, states = stats.groups, table_of(state)
        transactions.journal.written = 1 << 62
        await transactions.shorten()
        assert stats.groups - before < 10
        await state.log.checkpoint()
        assert table_of(state) == states
    async with running_state(disk) as state:
        assert table_of(state) == states
        assert len(state.log.sections.kept(SECTION)) < 5  # blocks
        transactions, before = state.transactions, state.log.stats.groups
        later = transactions.now_ms() + transactions.limits.expiration_ms + 1
        with (
            patch.object(transactions, "now_ms", lambda: later),
            patch.object(transactions.coordinator, "now_ms", lambda: later),
        ):
            await transactions.forget_unused()
        assert state.log.stats.groups - before < 20
        # The open ones have timed out meanwhile, and are known for as long again.
        assert len(transactions.table) == 75
        assert not transactions.table.open
