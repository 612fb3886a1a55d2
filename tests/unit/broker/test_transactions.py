"""Transactions over a broker's state: what is visible when, who is fenced, what survives."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from quafka_broker.config.settings import BrokerConfig
from quafka_broker.ops import produce
from quafka_broker.partitions.errors import StorageError
from quafka_broker.state import BrokerState
from quafka_broker.transactions.states import TransactionalIdState
from quafka_mesh_ops.ops.admin import PartitionsByTopic
from quafka_mesh_ops.ops.group_offsets import CommitOffset, CommitOffsets
from quafka_mesh_ops.ops.groups import DeleteGroups
from quafka_mesh_ops.ops.offsets import ListOffsetsOp, ListOffsetsOps
from quafka_mesh_ops.ops.records import FetchOp, FetchOps, ProduceOp, ProduceOps
from quafka_mesh_ops.ops.topics import DeleteTopic
from quafka_mesh_ops.ops.transactions import (
    AddOffsets,
    CommitTxnOffsets,
    DescribeTransactions,
    EndTransaction,
    EndTransactionResp,
    ListTransactions,
    WriteMarkers,
)
from quafka_proto.errors import ErrorCode
from quafka_proto.record_codec import MarkerType, TransactionMarker, build_marker
from tests.unit.broker.memory_disk import MemoryDisk
from tests.unit.broker.tools import ORG, batch_of, context, running_state
from tests.unit.broker.transactional import (
    GROUP,
    Sender,
    call,
    committed_offset,
    create,
    fetch,
    read,
)

both = pytest.mark.parametrize("implicit", [False, True], ids=["TV1", "TV2"])


@both
async def test_a_commit_shows_all_records_at_once_and_an_abort_none(implicit: bool) -> None:
    disk = MemoryDisk()
    async with running_state(disk) as state:
        await create(state)
        sender = Sender(state, implicit=implicit)
        assert not await sender.init()
        for number in range(3):
            await sender.write("t", number, b"a", b"b")
        assert await read(state) == []
        assert not await sender.end()
        assert [await read(state, partition=n) for n in range(3)] == [[b"a", b"b"]] * 3
        await sender.write("t", 0, b"no")
        assert not await sender.end(commit=False)
        await sender.write("t", 0, b"c")
        assert await read(state) == [b"a", b"b"]
        assert not await sender.end()
        assert await read(state) == [b"a", b"b", b"c"]
        answer = await fetch(state, committed=False)
        assert (answer.high_watermark, answer.last_stable_offset) == (7, 7)
    for _ in range(2):
        async with running_state(disk) as state:
            assert await read(state) == [b"a", b"b", b"c"]
            assert await read(state, offset=3) == [b"c"]


@both
async def test_offsets_are_invisible_until_the_commit(implicit: bool) -> None:
    disk = MemoryDisk()
    async with running_state(disk) as state:
        await create(state)
        sender = Sender(state, implicit=implicit)
        await sender.init()
        await sender.write("t", 0, b"a")
        assert await sender.offsets(7) == 0
        assert await committed_offset(state) == (-1, 0)
        assert (await committed_offset(state, stable=True))[1] == ErrorCode.UNSTABLE_OFFSET_COMMIT
        left = disk.crashed()
        assert not await sender.end()
        assert await committed_offset(state, stable=True) == (7, 0)
        assert await sender.offsets(9) == 0
        assert not await sender.end(commit=False)
        assert await committed_offset(state, stable=True) == (7, 0)
    async with running_state(disk) as state:
        assert await committed_offset(state, stable=True) == (7, 0)
    async with running_state(left) as state:
        sender.state = state
        assert (await committed_offset(state, stable=True))[1] == ErrorCode.UNSTABLE_OFFSET_COMMIT
        assert await sender.end_once() is not None


# --- faults that are known elsewhere ----------------------------------------------------------


async def test_the_aborted_list_is_not_empty_where_records_were_aborted() -> None:
    async with running_state(MemoryDisk()) as state:
        await create(state)
        sender, other = Sender(state, "a"), Sender(state, "b")
        await sender.init()
        await other.init()
        await sender.write("t", 0, b"no", b"no")
        await other.write("t", 0, b"yes")
        await sender.end(commit=False)
        first = await fetch(state, committed=True)
        assert [a.first_offset for a in first.aborted_transactions or []] == [0]
        assert [a.last_offset for a in first.aborted_transactions or []] == [3]
        assert first.last_stable_offset == 2
        await other.end()
        assert await read(state) == [b"yes"]
        assert (await fetch(state, offset=4, committed=True)).aborted_transactions == []
        assert (await fetch(state, committed=False)).aborted_transactions is None


@both
async def test_an_offsets_only_transaction_ends_and_does_not_leak_into_the_next(
    implicit: bool,
) -> None:
    async with running_state(MemoryDisk()) as state:
        await create(state)
        sender = Sender(state, implicit=implicit)
        await sender.init()
        assert not await sender.offsets(5)
        assert not await sender.end(commit=False)
        assert await sender.end() == ErrorCode.INVALID_TXN_STATE
        await sender.write("t", 0, b"a")
        assert not await sender.end()
        assert await committed_offset(state, stable=True) == (-1, 0)
        assert not await sender.offsets(6)
        assert not await sender.end()
        assert await committed_offset(state, stable=True) == (6, 0)


@both
async def test_a_commit_of_nothing_is_refused(implicit: bool) -> None:
    async with running_state(MemoryDisk()) as state:
        await create(state)
        sender = Sender(state, implicit=implicit)
        await sender.init()
        empty_abort = ErrorCode.NONE if implicit else ErrorCode.INVALID_TXN_STATE
        for _ in range(2):
            assert await sender.end() == ErrorCode.INVALID_TXN_STATE
            assert await sender.end(commit=False) == empty_abort
        await sender.write("t", 0, b"a")
        assert not await sender.end()
        assert await sender.end() == (ErrorCode.INVALID_TXN_STATE if implicit else ErrorCode.NONE)
        assert await sender.end(commit=False) == empty_abort
        assert await read(state) == [b"a"]


async def test_an_abort_of_nothing_that_is_repeated_has_the_same_answer() -> None:
    async with running_state(MemoryDisk()) as state:
        sender = Sender(state, implicit=True)
        await sender.init()
        answers = [await sender.end_once(commit=False) for _ in range(2)]
        assert answers == [EndTransactionResp(sender.id, sender.epoch + 1)] * 2


@both
async def test_a_transaction_whose_writes_were_refused_is_not_committed(implicit: bool) -> None:
    async with running_state(MemoryDisk()) as state:
        await create(state)
        sender = Sender(state, implicit=implicit)
        await sender.init()
        if implicit:
            answer = await sender.send("t", 9, b"a")
            assert answer.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        else:
            unknown = [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
            assert await sender.add("t", 9) == await sender.add("none", 0) == unknown
        assert await sender.end() == ErrorCode.INVALID_TXN_STATE
        rows = [CommitOffset("t", 0, 1)]
        asked = CommitTxnOffsets(sender.producer, GROUP, 3, "nobody", "", rows, implicit)
        assert (await call(state, asked)).partitions == [ErrorCode.ILLEGAL_GENERATION]
        assert await sender.end() == ErrorCode.INVALID_TXN_STATE
        await sender.write("t", 0, b"a")
        assert not await sender.end()
        assert await read(state) == [b"a"]


async def test_a_commit_waits_for_the_batch_that_begins_its_transaction() -> None:
    async with running_state(MemoryDisk()) as state:
        await create(state)
        sender = Sender(state, implicit=True)
        await sender.init()
        batch = sender.batch("t", 0, b"a")
        sent = asyncio.ensure_future(sender.send_batch("t", 0, batch))
        await asyncio.sleep(0)
        assert not await sender.end()
        assert not (await sent).error_code
        assert await read(state) == [b"a"]


@pytest.mark.parametrize("implicit", [True, False])
async def test_a_commit_waits_for_all_of_a_large_op_beside_another_org(implicit: bool) -> None:
    """Others append between the batches of a large op, but not between those of a transaction."""
    partitions = range(1, 20)
    async with running_state(MemoryDisk()) as state:
        await create(state, partitions=20)
        await state.topics.create(2, "t", 1)
        for org in (ORG, 2):
            ops = ProduceOps([ProduceOp("t", 0, batch_of(b"1"))])
            await produce.handle(state, context(org), ops)
        sender = Sender(state, implicit=implicit)
        await sender.init()
        if not implicit:
            await sender.add("t", *partitions)
        values = [sender.batch("t", at, b"z" * 300_000) for at in partitions]
        parts = [ProduceOp("t", at, each) for at, each in zip(partitions, values, strict=True)]
        sent = asyncio.ensure_future(call(state, ProduceOps(parts, -1, sender.name, implicit, b"")))
        await asyncio.sleep(0)
        assert not await sender.end()
        assert {answer.error_code for answer in (await sent).partitions} == {ErrorCode.NONE}
        for at in partitions:
            assert len(await read(state, "t", at)) == 1


async def test_no_sequence_is_advanced_before_the_write_so_a_retry_is_stored() -> None:
    disk = MemoryDisk()
    async with running_state(disk) as state:
        await create(state)
        sender = Sender(state)
        await sender.init()
        await sender.add("t", 0)
        batch = sender.batch("t", 0, b"a")
        disk.room = 0
        answer = await sender.send_batch("t", 0, batch)
        disk.room = None
        assert answer.error_code == ErrorCode.KAFKA_STORAGE_ERROR
        answer = await sender.send_batch("t", 0, batch)
        assert (answer.error_code, answer.base_offset) == (0, 0)
        assert (await sender.send_batch("t", 0, batch)).base_offset == 0
        assert not await sender.end()
        assert await read(state) == [b"a"]


async def test_a_failed_end_leaves_the_transaction_open() -> None:
    disk = MemoryDisk()
    async with running_state(disk) as state:
        await create(state)
        sender = Sender(state, implicit=True)
        await sender.init()
        await sender.write("t", 0, b"a")
        await sender.offsets(3)
        disk.room = 0
        assert await sender.end() == ErrorCode.COORDINATOR_NOT_AVAILABLE
        disk.room = None
        assert await read(state) == []
        assert not await sender.end()
        assert await read(state) == [b"a"]
        assert await committed_offset(state, stable=True) == (3, 0)


async def test_equal_markers_are_not_duplicates_of_each_other() -> None:
    disk = MemoryDisk()
    async with running_state(disk) as state:
        await create(state)
        sender = Sender(state)
        await sender.init()
        for number in range(7):
            assert await sender.write("t", 0, b"%d" % number) == 2 * number
            assert not await sender.end()
        left = disk.crashed()
        assert len(await read(state)) == 7
    for each in (left, disk):
        async with running_state(each) as state:
            sender.state = state
            assert len(await read(state)) == 7
            last = sender.batch("t", 0, b"again")
            answer = await sender.send_batch("t", 0, last)
            assert answer.error_code == ErrorCode.TRANSACTION_ABORTABLE
            assert await sender.write("t", 0, b"7") == 14
            await sender.end()
            sender.sequences["t", 0] = 7


@both
async def test_after_an_id_has_expired_its_producer_goes_on_with_a_new_session(
    implicit: bool,
) -> None:
    disk = MemoryDisk()
    async with running_state(disk) as state:
        await create(state)
        clock = Clock(state)
        sender = Sender(state, implicit=implicit)
        await sender.init()
        await sender.write("t", 0, b"a")
        clock.now += 30 * 86_400_000
        await state.transactions.forget_unused()  # not while its transaction is open
        assert len(state.transactions.table) == 1
        await sender.end()
        clock.now += 7 * 86_400_000 + 1
        await state.transactions.forget_unused()
        assert not len(state.transactions.table)
        answer = await sender.send("t", 0, b"b")
        assert answer.error_code == ErrorCode.INVALID_PRODUCER_ID_MAPPING
        assert not await sender.init(recover=True)
        await sender.write("t", 0, b"b")
        assert not await sender.end()
        assert await read(state) == [b"a", b"b"]


# --- fencing and time -------------------------------------------------------------------------


class Clock:
    """The wall clock of a state's transactions."""

    def __init__(self, state: BrokerState) -> None:
        self.now = state.transactions.now_ms()
        state.transactions.now_ms = state.transactions.coordinator.now_ms = lambda: self.now


@both
async def test_a_new_session_aborts_the_old_one_and_fences_it(implicit: bool) -> None:
    async with running_state(MemoryDisk()) as state:
        await create(state)
        old, new = Sender(state, implicit=implicit), Sender(state, implicit=implicit)
        await old.init()
        await old.write("t", 0, b"old")
        await old.offsets(4)
        await new.init()
        assert (new.id, new.epoch) == (old.id, old.epoch + 1)
        assert await read(state) == []
        answer = await old.send("t", 0, b"late")
        assert answer.error_code == ErrorCode.INVALID_PRODUCER_EPOCH
        assert await old.add("t", 1) == [ErrorCode.PRODUCER_FENCED]
        assert await old.end() == ErrorCode.PRODUCER_FENCED
        assert await old.offsets(5) == ErrorCode.PRODUCER_FENCED
        assert await old.init(recover=True) == ErrorCode.PRODUCER_FENCED
        await new.write("t", 0, b"new")
        assert not await new.end()
        assert await read(state) == [b"new"]
        assert await committed_offset(state, stable=True) == (-1, 0)


async def begun(send: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
    """A request that has begun; its writes are not in the log yet."""
    task = asyncio.ensure_future(send)
    await asyncio.sleep(0)
    return task


@pytest.mark.parametrize("before", [[], [0]], ids=["the first batch", "a later batch"])
async def test_a_session_that_begins_beside_a_batch_aborts_all_of_the_last_one(
    before: list[int],
) -> None:
    """With KIP-890 batches join outside of the turns: also while the next session begins."""
    disk = MemoryDisk()
    async with running_state(disk) as state:
        await create(state)
        old, new = Sender(state, implicit=True), Sender(state, implicit=True)
        await old.init()
        for partition in before:
            await old.write("t", partition, b"old")
        late = await begun(old.send("t", 1, b"late"))
        init = await begun(new.init())
        later = await begun(old.send("t", 2, b"later"))
        assert not await init
        await late
        await later
        for partition in range(3):
            answer = await fetch(state, partition=partition, committed=True)
            assert answer.last_stable_offset == answer.high_watermark
            await new.write("t", partition, b"new")
        assert not await new.end()
        assert [await read(state, partition=n) for n in range(3)] == [[b"new"]] * 3
    async with running_state(disk) as state:
        assert [await read(state, partition=n) for n in range(3)] == [[b"new"]] * 3


async def test_a_batch_behind_a_session_that_begins_is_refused_or_aborted() -> None:
    disk = MemoryDisk()
    async with running_state(disk) as state:
        await create(state)
        old, new = Sender(state, implicit=True), Sender(state, implicit=True)
        await old.init()
        init = await begun(new.init())
        late = [await begun(old.send("t", 0, b"zombie")) for _ in range(6)]
        assert not await init
        await asyncio.gather(*late)
        answer = await fetch(state, committed=True)
        assert answer.last_stable_offset == answer.high_watermark
        await new.write("t", 0, b"new")
        assert not await new.end()
        assert await read(state) == [b"new"]


@both
async def test_a_transaction_that_is_open_for_too_long_is_aborted(implicit: bool) -> None:
    disk = MemoryDisk()
    async with running_state(disk) as state:
        await create(state)
        clock = Clock(state)
        sender = Sender(state, implicit=implicit)
        await sender.init(timeout_ms=10_000)
        await sender.write("t", 0, b"a")
        clock.now += 5_000
        await state.transactions.abort_overdue()
        assert state.transactions.timed_out == 0
    async with running_state(disk) as state:
        later = clock.now + 60_000
        clock = Clock(state)
        clock.now = later
        sender.state = state
        await state.transactions.abort_overdue()
        assert state.transactions.timed_out == 1
        answer = await fetch(state, committed=True)
        assert answer.last_stable_offset == answer.high_watermark == 2
        assert await sender.end() == ErrorCode.PRODUCER_FENCED
        if implicit:
            assert not await sender.end(commit=False)  # KIP-588: it learns its next epoch
        else:
            assert not await sender.init(recover=True)
        await sender.write("t", 0, b"b")
        assert not await sender.end()
        assert await read(state) == [b"b"]


async def test_the_last_epoch_is_followed_by_a_new_producer_id() -> None:
    async with running_state(MemoryDisk()) as state:
        await create(state)
        sender = Sender(state, implicit=True)
        await sender.init()
        found = state.transactions.table.entries[1, "tx"]
        found.epoch = sender.epoch = 0x7FFD
        before = sender.id
        await sender.write("t", 0, b"a")
        assert not await sender.end()
        assert (sender.id, sender.epoch) == (before, 0x7FFE)
        await sender.write("t", 0, b"b")
        again = await sender.end_once()
        assert again.producer_id != before
        assert again.producer_epoch == 0
        assert await sender.end_once() == again
        sender.id, sender.epoch = again.producer_id, again.producer_epoch
        sender.sequences.clear()
        await sender.write("t", 0, b"c")
        assert not await sender.end()
        assert await read(state) == [b"a", b"b", b"c"]


@both
async def test_a_repeated_end_is_answered_the_same(implicit: bool) -> None:
    async with running_state(MemoryDisk()) as state:
        await create(state)
        sender = Sender(state, implicit=implicit)
        await sender.init()
        await sender.write("t", 0, b"a")
        first = await sender.end_once()
        assert await sender.end_once() == first
        wrong = (await sender.end_once(commit=False)).error_code
        assert wrong == ErrorCode.INVALID_TXN_STATE


async def test_requests_on_a_connection_that_the_producer_has_left_are_refused() -> None:
    async with running_state(MemoryDisk()) as state:
        await create(state)
        sender = Sender(state, connection=1)
        await sender.init()
        await sender.write("t", 0, b"a")
        delayed_end, delayed_batch = sender.producer, sender.batch("t", 0, b"late")
        sender.connection = 2
        assert not await sender.end()
        await sender.write("t", 0, b"b")
        late = await call(state, EndTransaction(delayed_end, True))
        assert late.error_code == ErrorCode.NOT_COORDINATOR
        assert await read(state) == [b"a"]
        sender.connection = 1
        answer = await sender.send_batch("t", 0, delayed_batch)
        assert answer.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        sender.connection = 2
        assert not await sender.end(commit=False)
        assert await read(state) == [b"a"]


@pytest.mark.parametrize("restarted", [False, True])
async def test_a_late_session_fences_nobody(*, restarted: bool) -> None:
    """The producer gave up a connection on which its first InitProducerId was still on its way."""
    disk = MemoryDisk()
    async with running_state(disk) as state:
        await create(state)
        sender = Sender(state, connection=2)
        assert not await sender.init()
        left = disk.crashed()
        if not restarted:
            await _late_session(state, sender)
    if restarted:
        async with running_state(left) as state:
            sender.state = state
            await _late_session(state, sender)


async def _late_session(state: BrokerState, sender: Sender) -> None:
    assert await Sender(state, connection=1).init() == ErrorCode.NOT_COORDINATOR
    await sender.write("t", 0, b"a")
    assert not await sender.end()
    assert await read(state) == [b"a"]
    assert not await Sender(state, connection=3).init()


@pytest.mark.parametrize("kept", ["log", "checkpoint", "restated"])
async def test_they_are_refused_after_a_restart_of_the_broker_too(kept: str) -> None:
    disk = MemoryDisk()
    async with running_state(disk) as state:
        await create(state)
        sender = Sender(state, connection=1)
        await sender.init()
        await sender.write("t", 0, b"a")
        await sender.offsets(1)
        delayed = sender.producer
        sender.connection = 2
        await sender.offsets(1)
        assert not await sender.end()
        await sender.write("t", 0, b"b")
        if kept == "restated":
            await state.transactions.coordinator.restate((1, "tx"))
        elif kept == "checkpoint":
            await state.log.checkpoint()
        left = disk.crashed()
    async with running_state(left) as state:
        late = await call(state, EndTransaction(delayed, True))
        assert late.error_code == ErrorCode.NOT_COORDINATOR
        rows = [CommitOffset("t", 0, 99)]
        late_ = await call(state, CommitTxnOffsets(delayed, "g", -1, "", "", rows, False))
        assert late_.partitions == [ErrorCode.NOT_COORDINATOR]
        assert await read(state) == [b"a"]
        sender.state = state
        assert not await sender.end(commit=False)
        assert await read(state) == [b"a"]


async def test_batches_outside_of_a_transaction_are_refused() -> None:
    async with running_state(MemoryDisk()) as state:
        await create(state)
        sender = Sender(state)
        await sender.init()
        answer = await sender.send("t", 0, b"a")
        assert answer.error_code == ErrorCode.TRANSACTION_ABORTABLE
        rows = [CommitOffset("t", 0, 1)]
        offsets = CommitTxnOffsets(sender.producer, GROUP, -1, "", "", rows, False)
        assert (await call(state, offsets)).partitions == [ErrorCode.TRANSACTION_ABORTABLE]
        assert not (await call(state, AddOffsets(sender.producer, ""))).error_code, "as in Kafka"
        await sender.write("t", 0, b"a")
        plain = batch_of(b"no", producer=(sender.id, sender.epoch, 1))
        (answer,) = (await call(state, ProduceOps([ProduceOp("t", 0, plain)]))).partitions
        assert answer.error_code == ErrorCode.INVALID_TXN_STATE
        answer = await sender.send("t", 1, b"a")
        assert answer.error_code == ErrorCode.TRANSACTION_ABORTABLE
        unnamed = ProduceOps([ProduceOp("t", 0, sender.batch("t", 0, b"x"))])
        (answer,) = (await call(state, unnamed)).partitions
        assert answer.error_code == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        marker = build_marker(
            TransactionMarker(MarkerType.COMMIT, 0), 0, 1, sender.id, sender.epoch
        )
        assert (await sender.send_batch("t", 0, bytes(marker))).error_code == (
            ErrorCode.INVALID_RECORD
        )
        assert await sender.add("t", 1, verify=True) == [ErrorCode.TRANSACTION_ABORTABLE]
        assert await sender.add("t", 0, verify=True) == [0]
        assert await sender.add("t", 7) == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]


async def test_bounds_of_an_org_and_of_a_transaction(tmp_path: Path) -> None:
    config = BrokerConfig(
        data=tmp_path, transaction_max_ids_per_org=2, transaction_max_partitions=2
    )
    async with running_state(MemoryDisk(), config) as state:
        await create(state, partitions=5)
        senders = [Sender(state, f"tx{n}", implicit=True) for n in range(3)]
        errors = [await sender.init() for sender in senders]
        assert errors == [0, 0, ErrorCode.POLICY_VIOLATION]
        await senders[0].write("t", 0, b"a")
        await senders[0].write("t", 1, b"a")
        refused = await senders[0].send("t", 2, b"a")
        assert refused.error_code == ErrorCode.POLICY_VIOLATION
        assert await senders[0].offsets(1) == ErrorCode.POLICY_VIOLATION
        assert await senders[1].add("t", 0, 1, 2) == [ErrorCode.POLICY_VIOLATION] * 3
        late = Sender(state, "tx0")
        assert await late.init(timeout_ms=900_001) == ErrorCode.INVALID_TRANSACTION_TIMEOUT


async def test_a_read_committed_fetch_is_woken_by_the_end_of_a_transaction() -> None:
    async with running_state(MemoryDisk()) as state:
        await create(state)
        sender = Sender(state)
        await sender.init()
        await sender.write("t", 0, b"a")
        op = FetchOps([FetchOp("t", 0, 0, 1 << 20)], 10_000, 1, isolation_level=1)
        waiting = asyncio.create_task(call(state, op))
        await asyncio.sleep(0.05)
        assert not waiting.done()
        assert not await sender.end()
        (answer,) = (await asyncio.wait_for(waiting, 30)).partitions
        assert len(answer.records) == 2
        latest = ListOffsetsOps([ListOffsetsOp("t", 0, -1)], 1)
        await sender.write("t", 0, b"b")
        assert (await call(state, latest)).partitions[0].offset == 2


async def test_deleting_topics_and_groups_with_open_transactions() -> None:
    disk = MemoryDisk()
    async with running_state(disk) as state:
        await create(state)
        await create(state, "u")
        sender = Sender(state, implicit=True)
        await sender.init()
        await sender.write("t", 0, b"a")
        await sender.write("u", 0, b"a")
        await sender.offsets(2, topic="u", group="gone")
        await sender.offsets(2, topic="t")
        await call(state, CommitOffsets("gone", -1, "", "", [CommitOffset("u", 0, 1)]))
        assert (await call(state, DeleteGroups(["gone"]))).groups == [0]
        await call(state, DeleteTopic("t"))
        assert not await sender.end()
        assert await read(state, "u") == [b"a"]
        assert await committed_offset(state, topic="u", group="gone") == (-1, 0)
    async with running_state(disk) as state:
        assert await read(state, "u") == [b"a"]
        assert await committed_offset(state, topic="u", group="gone") == (-1, 0)


async def test_an_administrator_ends_what_hangs() -> None:
    async with running_state(MemoryDisk()) as state:
        await create(state)
        sender = Sender(state)
        await sender.init()
        await sender.write("t", 0, b"a")
        await sender.write("t", 1, b"a")
        topics = [PartitionsByTopic("t", [0])]
        op = WriteMarkers(sender.id, sender.epoch, True, topics)
        assert (await call(state, op)).partitions == [ErrorCode.INVALID_TXN_STATE]
        found = (await call(state, ListTransactions([], []))).transactions
        assert [(each.transactional_id, each.state) for each in found] == [("tx", "Ongoing")]
        described = (await call(state, DescribeTransactions(["tx", "no"]))).transactions
        assert described[0].topics == [PartitionsByTopic("t", [0, 1])]
        assert described[1].error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
        op = WriteMarkers(sender.id, sender.epoch, False, topics)
        assert (await call(state, op)).partitions == [0]
        for partition in (0, 1):  # the transaction is not torn
            answer = await fetch(state, partition=partition, committed=True)
            assert answer.last_stable_offset == answer.high_watermark == 2
        assert await sender.end() == ErrorCode.PRODUCER_FENCED


@both
async def test_the_start_of_a_transaction_that_has_ended_is_known(implicit: bool) -> None:
    """Until the next session, through restarts, and once the id's state is restated."""
    disk = MemoryDisk()

    async def start_ms() -> int:
        (found,) = (await call(state, DescribeTransactions(["tx"]))).transactions
        return found.start_ms

    async with running_state(disk) as state:
        await create(state)
        sender = Sender(state, implicit=implicit)
        await sender.init()
        assert await start_ms() == -1
        await sender.write("t", 0, b"a")
        began = await start_ms()
        await asyncio.sleep(5)
        assert not await sender.end()
        assert await start_ms() == began > 0
    async with running_state(disk) as state:
        assert await start_ms() == began
        await state.transactions.coordinator.restate((1, "tx"))
        assert await start_ms() == began
        await state.transactions.coordinator.restate((1, "tx"))
    async with running_state(disk) as state:
        assert await start_ms() == began
        sender.state = state
        await sender.init()
        assert await start_ms() == -1


# --- batches on their way -----------------------------------------------------------------------


async def test_a_partition_that_joins_while_its_transaction_is_aborted_hides_no_other() -> None:
    async with running_state(MemoryDisk()) as state:
        await create(state)
        sender = Sender(state, implicit=True)
        await sender.init()
        await sender.write("t", 0, b"a")
        await sender.offsets(5)
        sending = asyncio.ensure_future(sender.send("t", 1, b"b"))
        await asyncio.sleep(0)
        assert await state.transactions.coordinator.abort((1, "tx"), lambda _found: True)
        assert not (await sending).error_code
        for partition in range(2):
            answer = await fetch(state, partition=partition, committed=True)
            assert (answer.high_watermark, answer.last_stable_offset) == (2, 2)
            assert len(answer.aborted_transactions or ()) == 1
        assert await committed_offset(state, stable=True) == (-1, 0)


async def test_a_session_ends_the_transaction_that_a_batch_on_its_way_begins() -> None:
    async with running_state(MemoryDisk()) as state:
        await create(state)
        zombie, sender = (Sender(state, implicit=True) for _ in range(2))
        await zombie.init()
        for number in range(1, 3):  # the first transaction of the session, and one after another
            sending = asyncio.ensure_future(zombie.send("t", 0, b"a"))
            await asyncio.sleep(0)
            assert not await sender.init()
            assert not (await sending).error_code
            answer = await fetch(state, committed=True)
            assert (answer.high_watermark, answer.last_stable_offset) == (2 * number, 2 * number)
            assert len(answer.aborted_transactions or ()) == number
            zombie = sender
            sender = Sender(state, implicit=True)


async def test_an_end_that_fails_leaves_the_transaction_that_a_batch_has_begun() -> None:
    disk = MemoryDisk()
    async with running_state(disk) as state:
        await create(state)
        sender = Sender(state, implicit=True)
        await sender.init()
        sending = asyncio.ensure_future(sender.send("t", 0, b"a"))
        await asyncio.sleep(0)
        found = state.transactions.table.entries[1, "tx"]
        with patch.object(state.transactions.journal, "append", side_effect=StorageError("full")):
            assert await sender.end() == ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert not (await sending).error_code
        assert found.state is TransactionalIdState.ONGOING
        assert not await sender.end()
        assert await read(state) == [b"a"]


async def test_an_offset_is_pending_while_any_transaction_has_it() -> None:
    async with running_state(MemoryDisk()) as state:
        await create(state)
        first, second = (Sender(state, name, implicit=True) for name in ("first", "second"))
        for sender in (first, second):
            await sender.init()
            assert [await sender.offsets(1), await sender.offsets(2)] == [0, 0]
        table, place = state.transactions.table, ("t", 0)
        assert table.is_pending((1, GROUP), place)
        assert not table.is_pending((1, GROUP), ("t", 1))
        await first.end()
        assert table.is_pending((1, GROUP), place)
        await second.end(commit=False)
        assert not table.is_pending((1, GROUP), place)
        assert table.pending_cost(1) == 0
        assert await committed_offset(state, stable=True) == (2, 0)


async def test_offsets_that_are_stored_again_count_once(tmp_path: Path) -> None:
    config = BrokerConfig(data=tmp_path, transaction_max_partitions=3)
    async with running_state(MemoryDisk(), config) as state:
        await create(state)
        sender = Sender(state, implicit=True)
        await sender.init()

        async def store(*partitions: int) -> set[int]:
            rows = [CommitOffset("t", number, 1) for number in partitions]
            op = CommitTxnOffsets(sender.producer, GROUP, -1, "", "", rows, implicit=True)
            return set((await call(state, op)).partitions)

        assert await store(0, 1, 2) == await store(0, 1, 2) == {0}
        config = BrokerConfig(data=tmp_path, transaction_max_partitions=2)
    async with running_state(MemoryDisk(), config) as state:
        await create(state)
        sender = Sender(state, implicit=True)
        await sender.init()
        assert await store(0, 1, 2) == {ErrorCode.POLICY_VIOLATION}
        assert await store(0, 1) == {0}
        assert await store(1, 2) == {ErrorCode.POLICY_VIOLATION}
        assert await store(1) == {0}


async def test_the_timeout_and_the_expiry_are_those_of_the_settings(tmp_path: Path) -> None:
    config = BrokerConfig(
        data=tmp_path, transaction_max_timeout_ms=5_000, transactional_id_expiration_ms=10_000
    )
    async with running_state(MemoryDisk(), config) as state:
        sender, transactions = Sender(state), state.transactions
        assert await sender.init(timeout_ms=5_001) == ErrorCode.INVALID_TRANSACTION_TIMEOUT
        assert not await sender.init(timeout_ms=5_000)
        began = transactions.now_ms()
        for later, known in ((9_000, 1), (12_000, 0)):
            with (
                patch.object(transactions, "now_ms", lambda later=later: began + later),
                patch.object(transactions.coordinator, "now_ms", lambda later=later: began + later),
            ):
                await transactions.forget_unused()
            assert len(transactions.table) == known
