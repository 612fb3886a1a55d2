# pyright: reportPrivateUsage=false
"""Ops 0x80 to 0x85: acquiring, acknowledging and releasing records; what a restart knows."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from dataclasses import replace
from typing import Any

import pytest

from quafka_broker.journals.internal_topics import SHARES
from quafka_broker.ops import delete_records, shares
from quafka_broker.shares import shares as shares_module
from quafka_broker.shares.acquiring import Acquiring
from quafka_broker.shares.states import Acknowledge, Acknowledgement, OffsetSpan
from quafka_broker.state import BrokerState
from quafka_mesh_ops.errors import OpFailedError
from quafka_mesh_ops.ops.records import DeleteRecordsOp, DeleteRecordsOps
from quafka_mesh_ops.ops.shares import (
    EARLIEST,
    EVERY_PARTITION,
    LATEST,
    AcknowledgedBatch,
    AcknowledgeRecords,
    AcquiredPartition,
    AcquireRecords,
    AlterShareOffsets,
    DeleteShareOffsets,
    DescribeShareOffsets,
    NewShareOffset,
    PartitionAcknowledgements,
    ReleasePartition,
    ReleaseRecords,
    ShareConfigs,
    ShareOffset,
    SharePlace,
)
from quafka_proto.errors import ErrorCode
from tests.unit.broker.memory_disk import MemoryDisk
from tests.unit.broker.test_fetch import put
from tests.unit.broker.tools import ORG, context, running_state
from tests.unit.broker.transactional import Sender

ACCEPT, RELEASE, REJECT, RENEW = 1, 2, 3, 4
GROUP = "g"
CONFIGS = ShareConfigs(reset=EARLIEST)


async def acquire(
    state: BrokerState, member: str = "m", partition: int = 0, **options: Any
) -> AcquiredPartition:
    op = AcquireRecords(GROUP, member, [SharePlace("t", partition)], configs=CONFIGS)
    for name, value in options.items():
        object.__setattr__(op, name, value)
    return (await shares.acquire(state, context(), op)).partitions[0]


def ranges(answer: AcquiredPartition) -> list[tuple[int, int, int]]:
    return [(part.first_offset, part.last_offset, part.delivery_count) for part in answer.acquired]


async def acknowledge(state: BrokerState, *batches: tuple[int, int, int], member: str = "m") -> int:
    some = [AcknowledgedBatch(first, last, bytes([kind])) for first, last, kind in batches]
    op = AcknowledgeRecords(GROUP, member, [PartitionAcknowledgements("t", 0, some)], CONFIGS)
    return (await shares.acknowledge(state, context(), op)).partitions[0]


async def described(state: BrokerState) -> list[ShareOffset]:
    return (await shares.describe(state, context(), DescribeShareOffsets(GROUP))).partitions


async def test_members_share_a_partition() -> None:
    async with running_state(MemoryDisk()) as state:
        topic, _ = await state.topics.create(ORG, "t", 1)
        for _ in range(3):
            await put(state, topic, b"1", b"2", b"3")
        first = await acquire(state, "a", max_records=4)
        assert ranges(first) == [(0, 5, 1)], "whole batches"
        assert [(span.first, span.last) for span in first.batches] == [(0, 5)]
        second = await acquire(state, "b", max_records=2, exact=True)
        assert ranges(second) == [(6, 7, 1)]
        assert await acknowledge(state, (0, 2, ACCEPT), (3, 3, RELEASE), member="a") == 0
        assert await acknowledge(state, (6, 6, ACCEPT), member="a") == (
            ErrorCode.INVALID_RECORD_STATE
        )
        assert ranges(await acquire(state, "b")) == [(3, 3, 2), (8, 8, 1)]
        assert state.shares.acknowledged == {ACCEPT: 3, RELEASE: 1}
        (offset,) = await described(state)
        assert (offset.start, offset.lag, offset.in_flight, offset.acquired) == (3, 6, 6, 6)


@pytest.mark.parametrize("reset", [LATEST, 1])
async def test_a_partition_that_is_new_to_the_group_is_read_from_its_start(reset: int) -> None:
    """With any reset, and also if another partition was read first; others begin by the reset."""
    async with running_state(MemoryDisk()) as state:
        topic, _ = await state.topics.create(ORG, "t", 3)
        for partition in range(3):
            await put(state, topic, b"1", b"2", partition=partition)
        await asyncio.sleep(60)
        configs = replace(CONFIGS, reset=reset)
        op = AcquireRecords("g", "m", [SharePlace("t", 0)], configs=configs)
        for places in (
            [SharePlace("t", 0)],
            [SharePlace("t", 1, is_new=True), SharePlace("t", 2)],
            [SharePlace("t", 0, is_new=True)],  # it has begun
        ):
            answer = await shares.acquire(state, context(), replace(op, partitions=places))
            expected = [[(0, 1, 1)] if each.is_new and each.partition else [] for each in places]
            assert [ranges(each) for each in answer.partitions] == expected


async def test_acknowledgements_that_do_not_fit_are_refused_as_a_whole() -> None:
    """Past what was acquired they are not valid; below that, the member does not have them."""
    async with running_state(MemoryDisk()) as state:
        topic, _ = await state.topics.create(ORG, "t", 1)
        await put(state, topic, b"0", b"1", b"2", b"3")
        assert ranges(await acquire(state)) == [(0, 3, 1)]
        for batches, error in (
            ([(2, 4, ACCEPT)], ErrorCode.INVALID_REQUEST),
            ([(9, 9, ACCEPT)], ErrorCode.INVALID_REQUEST),
            ([(0, 2, ACCEPT), (1, 3, ACCEPT)], ErrorCode.INVALID_REQUEST),
            ([(0, 2, ACCEPT), (2, 3, ACCEPT)], ErrorCode.INVALID_RECORD_STATE),
        ):
            assert await acknowledge(state, *batches) == error, batches
        assert await acknowledge(state, (0, 3, ACCEPT)) == 0
        assert await acknowledge(state, (3, 4, ACCEPT)) == ErrorCode.INVALID_RECORD_STATE


MANY = 1_000
"""Acknowledgements that take several turns of the event loop."""


@pytest.mark.parametrize("trouble", ["release", "cancel", "delete", "alter"])
async def test_a_long_request_acknowledges_everything_or_nothing(
    trouble: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Something happens between its slices."""
    monkeypatch.setattr(shares_module, "_BATCHES_PER_SLICE", 5)
    disk = MemoryDisk()
    async with running_state(disk) as state:
        topic, _ = await state.topics.create(ORG, "t", 1)
        await put(state, topic, *[b"1"] * 2 * MANY)
        whole: dict[str, Any] = {
            "max_records": 2 * MANY,
            "configs": replace(CONFIGS, most_in_flight=2 * MANY),
        }
        assert ranges(await acquire(state, session=b"s", **whole)) == [(0, 2 * MANY - 1, 1)]
        batches = [(at, at, REJECT if at % 4 else RENEW) for at in range(0, 2 * MANY, 2)]
        asked = asyncio.create_task(acknowledge(state, *batches))
        (share,) = state.shares.table
        while not any(each.pending for each in share.window.ranges()):
            await asyncio.sleep(0)
        if trouble == "cancel":
            asked.cancel()
            with pytest.raises(asyncio.CancelledError):
                await asked
        else:
            if trouble == "release":
                last = ReleasePartition("t", 0, 2 * MANY - 2)
                op = ReleaseRecords(GROUP, "m", [last], b"s")
                assert (await shares.release(state, context(), op)).released == 2
            elif trouble == "delete":
                await shares.delete(state, context(), DeleteShareOffsets(GROUP, []))
            else:
                new = [NewShareOffset("t", 0, 0)]
                await shares.alter(state, context(), AlterShareOffsets(GROUP, new))
            assert await asked == ErrorCode.INVALID_RECORD_STATE
        assert not state.shares.acknowledged
        if trouble in ("release", "cancel"):
            held = share.window.acquired
            assert held == (2 * MANY if trouble == "cancel" else 2 * MANY - 2)
            assert await acknowledge(state, *batches[:-1]) == 0
            assert share.window.acquired == held - (MANY // 2 - 1), "the rejected ones"
    async with running_state(disk) as state:
        found = ranges(await acquire(state, **whole))
        if trouble in ("delete", "alter"):
            assert found == [(0, 2 * MANY - 1, 1)]
        else:
            assert sum(last - first + 1 for first, last, _ in found) == 2 * MANY - (MANY // 2 - 1)


async def test_locks_that_end_during_a_refused_request_are_given_back() -> None:
    configs = replace(CONFIGS, most_in_flight=2 * MANY, lock_ms=1_000)
    async with running_state(MemoryDisk()) as state:
        topic, _ = await state.topics.create(ORG, "t", 1)
        await put(state, topic, *[b"1"] * MANY)
        await acquire(state, max_records=MANY, configs=configs)
        (share,) = state.shares.table
        changes = share.window.acknowledge("m", [Acknowledgement(0, 10, [ACCEPT])], 5)
        await asyncio.sleep(60)
        assert [(each.first, each.end) for each in share.window.ranges() if each.pending] == [
            (0, 10)
        ]
        assert ranges(await acquire(state, "other", configs=configs)) == [(10, MANY - 1, 2)]
        share.window.undo(changes)
        assert ranges(await acquire(state, "other", configs=configs)) == [(0, 9, 2)]


async def test_the_end_of_a_session_releases_only_what_was_acquired_in_it() -> None:
    """A member moves to another gateway, and its old connection ends later."""
    async with running_state(MemoryDisk()) as state:
        topic, _ = await state.topics.create(ORG, "t", 1)
        await put(state, topic, *[b"1"] * 6)
        assert ranges(await acquire(state, session=b"old", max_records=4, exact=True)) == [
            (0, 3, 1)
        ]
        assert ranges(await acquire(state, session=b"new")) == [(4, 5, 1)]
        renewed = PartitionAcknowledgements("t", 0, [AcknowledgedBatch(0, 0, bytes([RENEW]))])
        op = AcknowledgeRecords(GROUP, "m", [renewed], CONFIGS, b"new")
        assert (await shares.acknowledge(state, context(), op)).partitions == [0]
        assert await acknowledge(state, (1, 1, ACCEPT)) == 0, "in whichever session"
        await shares.release(
            state,
            context(),
            ReleaseRecords(GROUP, "m", [ReleasePartition("t", 0, 0, 4)], b"other"),
        )
        ended = await shares.release(state, context(), ReleaseRecords(GROUP, "m", [], b"old"))
        assert ended.released == 2
        assert ranges(await acquire(state, "other")) == [(2, 3, 2)]
        assert await acknowledge(state, (0, 0, ACCEPT), (4, 5, ACCEPT)) == 0


async def test_the_end_of_a_session_abandons_only_its_own_ops() -> None:
    async with running_state(MemoryDisk()) as state:
        topic, _ = await state.topics.create(ORG, "t", 1)
        old, new = [
            asyncio.create_task(acquire(state, session=session, max_wait_ms=20_000))
            for session in (b"old", b"new")
        ]
        while len(state.parked_fetches) < 2:
            await asyncio.sleep(0)
        await shares.release(state, context(), ReleaseRecords(GROUP, "m", [], b"old"))
        await put(state, topic, b"1")
        assert ranges(await new) == [(0, 0, 1)]
        assert ranges(await old) == []


async def test_a_batch_that_the_log_start_cuts_is_read_from_there() -> None:
    async with running_state(MemoryDisk()) as state:
        topic, _ = await state.topics.create(ORG, "t", 1)
        await put(state, topic, b"0", b"1", b"2", b"3")
        await put(state, topic, b"4", b"5")
        cut = DeleteRecordsOps([DeleteRecordsOp("t", 0, 2)])
        assert (await delete_records.handle(state, context(), cut)).partitions[0].error_code == 0
        found = await acquire(state)
        assert ranges(found) == [(2, 5, 1)]
        assert [(span.first, span.last) for span in found.batches] == [(2, 5)]


async def test_a_record_that_kills_its_consumers_takes_no_other_with_it() -> None:
    """Whoever has record 1 is lost with all that it has; the limit is 5 deliveries."""
    async with running_state(MemoryDisk()) as state:
        topic, _ = await state.topics.create(ORG, "t", 1)
        await put(state, topic, b"0", b"1", b"2", b"3")
        seen: list[list[tuple[int, int, int]]] = []
        for number in range(20):
            member = f"m{number}"
            found = ranges(await acquire(state, member))
            if not found:
                break
            seen.append(found)
            if any(first <= 1 <= last for first, last, _ in found):
                await shares.release(state, context(), ReleaseRecords(GROUP, member, []))
            else:
                batches = [(first, last, ACCEPT) for first, last, _ in found]
                assert await acknowledge(state, *batches, member=member) == 0
        assert seen == [
            [(0, 3, 1)], [(0, 3, 2)], [(0, 3, 3)], [(0, 1, 4)],
            [(0, 0, 5)], [(1, 1, 5)], [(2, 2, 4)], [(3, 3, 4)],
        ]  # fmt: skip
        assert state.shares.exhausted == 1
        assert state.shares.acknowledged[Acknowledge.ACCEPT] == 3


async def test_what_is_given_back_meanwhile_is_for_the_next_op(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Clients may acknowledge in the order of the answer, which is that of the offsets."""
    async with running_state(MemoryDisk()) as state:
        topic, _ = await state.topics.create(ORG, "t", 1)
        for _ in range(30):
            await put(state, topic, b"1")
        assert ranges(await acquire(state, "a", max_records=1)) == [(0, 0, 1)]
        read, reads = Acquiring._spans, list[int]()

        async def release_meanwhile(self: Acquiring, *arguments: Any) -> list[OffsetSpan]:
            reads.append(len(reads))
            if len(reads) == 2:
                await shares.release(state, context(), ReleaseRecords(GROUP, "a", []))
            return await read(self, *arguments)

        with monkeypatch.context() as patch:
            patch.setattr(Acquiring, "_spans", release_meanwhile)
            found = await acquire(state, "b")
        assert len(reads) == 2
        ((first, last, deliveries),) = ranges(found)
        assert (first, deliveries) == (1, 1)
        assert [(each.first, each.last) for each in found.batches] == [(1, last)]
        assert ranges(await acquire(state, "c"))[0] == (0, 0, 2)


async def test_many_small_batches_are_one_range() -> None:
    async with running_state(MemoryDisk()) as state:
        topic, _ = await state.topics.create(ORG, "t", 1)
        for _ in range(90):
            await put(state, topic, b"1")
        found = await acquire(state, max_records=80)
        assert ranges(found) == [(0, 79, 1)]
        (batches,) = found.batches
        assert (batches.first, batches.last) == (0, 79)


async def test_an_acquire_waits_for_records_and_for_releases() -> None:
    async with running_state(MemoryDisk()) as state:
        topic, _ = await state.topics.create(ORG, "t", 1)
        waiting = asyncio.create_task(acquire(state, "a", max_wait_ms=20_000))
        while not len(state.parked_fetches):
            await asyncio.sleep(0)
        await put(state, topic, b"1", b"2")
        assert ranges(await waiting) == [(0, 1, 1)]
        waiting = asyncio.create_task(acquire(state, "b", max_wait_ms=20_000))
        while not len(state.parked_fetches):
            await asyncio.sleep(0)
        assert await acknowledge(state, (1, 1, RELEASE), member="a") == 0
        assert ranges(await waiting) == [(1, 1, 2)]
        op = ReleaseRecords(GROUP, "a", [])
        assert (await shares.release(state, context(), op)).released == 1
        assert ranges(await acquire(state, "c")) == [(0, 0, 2)]
        part = ReleasePartition("t", 0, 0, 0)
        await shares.release(state, context(), ReleaseRecords(GROUP, "c", [part]))
        assert ranges(await acquire(state, "d", max_bytes=1)) == [(0, 0, 2)], "c had seen none"
        assert ranges(await acquire(state, "d", max_wait_ms=1)) == []


async def waiting(state: BrokerState, count: int, **options: int) -> list[asyncio.Task[Any]]:
    """Members that wait for records."""
    options = {"max_wait_ms": 20_000, **options}
    before = len(state.parked_fetches)
    found = [asyncio.create_task(acquire(state, f"m{n}", **options)) for n in range(count)]
    while len(state.parked_fetches) < before + count:
        await asyncio.sleep(0)
    return found


async def test_a_record_wakes_one_of_many_waiting_members(monkeypatch: pytest.MonkeyPatch) -> None:
    looks: list[str] = []
    really = Acquiring._try

    def counted(self: Acquiring, *, last: bool) -> Awaitable[bool]:
        looks.append(self._op.member_id)
        return really(self, last=last)

    async with running_state(MemoryDisk()) as state:
        topic, _ = await state.topics.create(ORG, "t", 1)
        members = await waiting(state, 20)
        monkeypatch.setattr(Acquiring, "_try", counted)
        await put(state, topic, b"1")
        assert ranges(await members[0]) == [(0, 0, 1)]
        assert looks == ["m0"]
        members[1].cancel()
        for _ in range(3):
            await put(state, topic, b"2", b"3")
        for first, member in zip((1, 3, 5), members[2:5], strict=True):
            assert ranges(await member) == [(first, first + 1, 1)]
        assert set(looks) <= {"m0", "m2", "m3", "m4"}
        # One that has too little passes its turn on; one that is cancelled in its turn, too.
        wants = await waiting(state, 2, min_bytes=1_000)
        op = ReleaseRecords(GROUP, "m2", [])
        await shares.release(state, context(), op)
        assert ranges(await members[5]) == [(1, 2, 2)]
        for member in (*members[6:], *wants):
            member.cancel()
        await asyncio.gather(*members, *wants, return_exceptions=True)
        (found,) = state.shares.table
        assert (found.waiting, found.turn, len(state.parked_fetches)) == ({}, None, 0)


async def test_a_member_that_is_gone_takes_nothing_more() -> None:
    """Its release may arrive before its acquire is withdrawn: QUIC's streams have no order."""
    async with running_state(MemoryDisk()) as state:
        topic, _ = await state.topics.create(ORG, "t", 1)
        (member,) = await waiting(state, 1)
        await shares.release(state, context(), ReleaseRecords(GROUP, "m0", []))
        await put(state, topic, b"1")
        assert ranges(await member) == []
        assert ranges(await acquire(state, "m0")) == [(0, 0, 1)]


async def test_locks_end_and_poison_records_are_archived() -> None:
    configs = ShareConfigs(lock_ms=1, most_deliveries=2, reset=EARLIEST)
    async with running_state(MemoryDisk()) as state:
        state.shares.limits = state.shares.limits.__class__(least_lock=0.001)
        topic, _ = await state.topics.create(ORG, "t", 1)
        await put(state, topic, b"poison")
        for deliveries in (1, 2):
            found = await acquire(state, "a", max_wait_ms=20_000, configs=configs)
            assert ranges(found) == [(0, 0, deliveries)]
        await put(state, topic, b"next")
        configs = ShareConfigs(most_deliveries=2, reset=EARLIEST)
        found = await acquire(state, "b", max_wait_ms=20_000, configs=configs)
        assert ranges(found) == [(1, 1, 1)]
        while (await described(state))[0].start == 0:
            await asyncio.sleep(0.001)
        assert (state.shares.expired, state.shares.exhausted) == (2, 1)
        assert await acknowledge(state, (1, 1, RENEW), member="b") == 0


async def test_a_window_is_bounded() -> None:
    configs = ShareConfigs(most_in_flight=10, reset=EARLIEST)
    async with running_state(MemoryDisk()) as state:
        topic, _ = await state.topics.create(ORG, "t", 1)
        await put(state, topic, *[b"1"] * 30)
        assert ranges(await acquire(state, "a", configs=configs)) == [(0, 9, 1)]
        assert ranges(await acquire(state, "b", configs=configs)) == []
        waiting = asyncio.create_task(acquire(state, "b", configs=configs, max_wait_ms=20_000))
        while not len(state.parked_fetches):
            await asyncio.sleep(0)
        assert await acknowledge(state, (0, 4, ACCEPT), member="a") == 0
        assert ranges(await waiting) == [(10, 14, 1)]
        assert state.shares.table.usage(ORG).in_flight == 10
        await state.topics.delete(topic)
        assert state.shares.table.usage(ORG).in_flight == len(state.shares.table) == 0
        assert (await acquire(state)).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@pytest.mark.parametrize("checkpoint", [False, True])
async def test_a_restart_knows_what_was_acknowledged(checkpoint: bool) -> None:
    disk = MemoryDisk()
    async with running_state(disk) as state:
        topic, _ = await state.topics.create(ORG, "t", 2)
        await put(state, topic, *[b"1"] * 10)
        await acquire(state)
        assert await acknowledge(state, (0, 1, ACCEPT), (4, 4, ACCEPT), (6, 6, RELEASE)) == 0
        assert ranges(await acquire(state, partition=1, configs=ShareConfigs())) == []
        if checkpoint:
            await state.log.checkpoint()
        assert await acknowledge(state, (7, 7, REJECT)) == 0
    async with running_state(disk) as state:
        await put(state, topic, b"later", partition=1)
        assert ranges(await acquire(state, partition=1)) == [(0, 0, 1)], "it began before"
        assert ranges(await acquire(state, "other")) == [(2, 3, 2), (5, 6, 2), (8, 9, 2)]


async def test_the_journal_is_shortened() -> None:
    disk = MemoryDisk()
    async with running_state(disk) as state:
        topic, _ = await state.topics.create(ORG, "t", 1)
        await put(state, topic, *[b"1"] * 100)
        await acquire(state)
        state.shares.journal.events_kept = 10
        for offset in range(0, 60, 2):
            assert await acknowledge(state, (offset, offset, ACCEPT)) == 0
        journal = state.shares.journal
        assert journal.is_long
        await journal.shorten()
        assert [journal.is_long] == [False]
        assert state.log.partitions.get(SHARES).log_start > 20
        assert await acknowledge(state, (1, 1, ACCEPT)) == 0
    async with running_state(disk) as state:
        found = ranges(await acquire(state))
        assert found[:2] == [(3, 3, 2), (5, 5, 2)]
        assert found[-1] == (59, 99, 2)


async def test_aborted_and_undecided_records_are_not_delivered() -> None:
    committed = ShareConfigs(reset=EARLIEST, committed=True)
    async with running_state(MemoryDisk()) as state:
        topic, _ = await state.topics.create(ORG, "t", 1)
        sender = Sender(state)
        await sender.init()
        for commit in (True, False):
            await sender.add("t", 0)
            await sender.send("t", 0, b"1", b"2")
            await sender.end(commit=commit)
        await put(state, topic, b"6")
        await sender.add("t", 0)
        await sender.send("t", 0, b"undecided")
        assert ranges(await acquire(state, configs=committed)) == [(0, 1, 1), (6, 6, 1)]
        assert await acknowledge(state, (0, 1, ACCEPT), (6, 6, ACCEPT)) == 0
        assert (await described(state))[0].start == 7, "what nobody may have is dealt with"
        waiting = asyncio.create_task(acquire(state, configs=committed, max_wait_ms=20_000))
        while not len(state.parked_fetches):
            await asyncio.sleep(0)
        await sender.end()
        assert ranges(await waiting) == [(7, 7, 1)]
        assert ranges(await acquire(state)) == [], "nor markers"


async def test_offsets_are_altered_and_deleted() -> None:
    disk = MemoryDisk()
    async with running_state(disk) as state:
        topic, _ = await state.topics.create(ORG, "t", 1)
        await put(state, topic, *[b"1"] * 10)
        new = [NewShareOffset("t", 0, 7), NewShareOffset("u", 0, 7), NewShareOffset("t", 0, -2)]
        answer = await shares.alter(state, context(), AlterShareOffsets(GROUP, new))
        unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert answer.partitions == [0, unknown, ErrorCode.INVALID_REQUEST]
        assert [(at.topic, at.start, at.lag) for at in await described(state)] == [("t", 7, 3)]
        await state.topics.delete_records({topic: {0: 8}})
        assert (await described(state))[0].start == 8
        assert ranges(await acquire(state)) == [(8, 9, 1)]
        op = DeleteShareOffsets(GROUP, [SharePlace("t", EVERY_PARTITION)])
        assert (await shares.delete(state, context(), op)).partitions == [0]
        assert await described(state) == []
        assert ranges(await acquire(state)) == [(8, 9, 1)]
        await shares.delete(state, context(), DeleteShareOffsets(GROUP, []))
    async with running_state(disk) as state:
        assert await described(state) == []
        with pytest.raises(OpFailedError):
            await shares.acquire(state, context(), AcquireRecords("", "m", []))


async def test_an_org_has_a_limited_number_of_share_partitions() -> None:
    async with running_state(MemoryDisk()) as state:
        state.shares.limits = state.shares.limits.__class__(org_partitions=1)
        await state.topics.create(ORG, "t", 2)
        assert not (await acquire(state)).error_code
        assert (await acquire(state, partition=1)).error_code == ErrorCode.POLICY_VIOLATION
