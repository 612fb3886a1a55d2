"""How far behind a group is: in records, in seconds, and until it will have caught up."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest
from aiokafka.coordinator.protocol import ConsumerProtocolMemberAssignment
from hypothesis import given
from hypothesis import strategies as st

from quafka_broker.groups.classic.states import ClassicState
from quafka_broker.ops import group_lag, groups, offsets
from quafka_broker.partitions import time_search
from quafka_broker.partitions.errors import StorageError
from quafka_broker.state import BrokerState
from quafka_broker.topics.topic import Topic
from quafka_mesh_ops.ops.group_offsets import CommitOffset, CommitOffsets
from quafka_mesh_ops.ops.groups import (
    JoinGroup,
    LeaveGroup,
    Leaver,
    SyncGroup,
)
from quafka_mesh_ops.ops.lag import GroupLag, LagOfGroup, PartitionLag
from quafka_proto.errors import ErrorCode
from quafka_proto.record_codec import Record, build_batch
from quafka_proto.records import split_batches
from quafka_proto.schema.groups import JoinGroupRequestProtocol, SyncGroupRequestAssignment
from tests.support.suites import examples
from tests.unit.broker.memory_disk import MemoryDisk
from tests.unit.broker.tools import ORG, context, running_state

NOW = 1_700_000_000_000


class Clock:
    """The wall clock of a broker's groups, whose members wait for no others."""

    def __init__(self, state: BrokerState) -> None:
        self.now_ms = NOW
        state.groups.now_ms = lambda: self.now_ms
        state.groups.limits = replace(state.groups.limits, initial_delay=0.0)


async def produce(state: BrokerState, topic: Topic, partition: int, *ages: int) -> None:
    """One batch; ages in seconds."""
    batch = build_batch([Record(0, NOW - 1_000 * age, None, b"v", []) for age in ages])
    grown = state.log.partitions.get(topic.partition_id(partition))
    await state.log.queue.append(grown, split_batches(batch))


async def commit(state: BrokerState, *rows: tuple[str, int, int], group: str = "g") -> None:
    op = CommitOffsets(group, -1, "", "", [CommitOffset(*row) for row in rows])
    assert set((await offsets.commit(state, context(), op)).partitions) == {0}


async def ask(state: BrokerState, group: str = "g", org: int = ORG) -> LagOfGroup:
    answer = await group_lag.handle(state, context(org), GroupLag([group]))
    assert answer.now_ms == state.groups.now_ms()
    return answer.groups[0]


async def one(state: BrokerState) -> PartitionLag:
    (found,) = (await ask(state)).partitions or []
    return found


async def test_records_and_seconds() -> None:
    async with running_state(MemoryDisk()) as state:
        Clock(state)
        topic, _ = await state.topics.create(ORG, "t", 4)
        await produce(state, topic, 0, 50, 40, 30)
        await produce(state, topic, 0, 20)
        await produce(state, topic, 1, 9)
        await commit(state, ("t", 0, 1), ("t", 1, 1), ("t", 2, 0))
        found = await ask(state)
        assert (found.error_code, found.state, found.members) == (0, ClassicState.EMPTY, [])
        assert found.partitions == [
            PartitionLag("t", 0, 0, 4, 1, 3, 40_000, -1),
            PartitionLag("t", 1, 0, 1, 1, 0, 0, 0),
            PartitionLag("t", 2, 0, 0, 0, 0, 0, 0),
        ]


async def test_a_group_that_is_not_there_and_one_of_another_org() -> None:
    async with running_state(MemoryDisk()) as state:
        await state.topics.create(ORG, "t", 1)
        await commit(state, ("t", 0, 0))
        assert await ask(state, "h") == LagOfGroup(
            "h", ErrorCode.GROUP_ID_NOT_FOUND, ClassicState.DEAD
        )
        assert (await ask(state, "g", ORG + 1)).error_code == ErrorCode.GROUP_ID_NOT_FOUND
        assert (await ask(state, "")).error_code == ErrorCode.INVALID_GROUP_ID


async def test_below_the_log_start_the_lag_counts_from_there() -> None:
    async with running_state(MemoryDisk()) as state:
        Clock(state)
        topic, _ = await state.topics.create(ORG, "t", 1)
        await produce(state, topic, 0, 50, 40, 30)
        await produce(state, topic, 0, 20)
        await commit(state, ("t", 0, 1))
        assert (await one(state)).behind_ms == 40_000
        await state.topics.delete_records({topic: {0: 3}})
        assert await one(state) == PartitionLag("t", 0, 3, 4, 1, 1, 20_000, -1)
        await state.topics.delete_records({topic: {0: 4}})
        assert await one(state) == PartitionLag("t", 0, 4, 4, 1, 0, 0, 0)


async def test_time_passes_for_a_group_that_has_stopped() -> None:
    async with running_state(MemoryDisk()) as state:
        clock = Clock(state)
        topic, _ = await state.topics.create(ORG, "t", 1)
        await produce(state, topic, 0, 10)
        await commit(state, ("t", 0, 0))
        assert (await one(state)).behind_ms == 10_000
        clock.now_ms += 86_400_000
        assert (await one(state)).behind_ms == 86_410_000
        await produce(state, topic, 0, 0)
        assert ((await one(state)).records, (await one(state)).behind_ms) == (2, 86_410_000)


async def test_a_record_of_the_future_or_without_a_time() -> None:
    async with running_state(MemoryDisk()) as state:
        Clock(state)
        topic, _ = await state.topics.create(ORG, "t", 2)
        await produce(state, topic, 0, -60)
        await produce(state, topic, 1, (NOW + 1) // 1_000 + 1)  # before 1970: none
        await commit(state, ("t", 0, 0), ("t", 1, 0))
        found = (await ask(state)).partitions or []
        assert [(each.records, each.behind_ms) for each in found] == [(1, 0), (1, -1)]


async def test_a_topic_that_was_deleted_is_not_lagged_behind() -> None:
    async with running_state(MemoryDisk(), lease_seconds=0) as state:
        topic, _ = await state.topics.create(ORG, "t", 1)
        await produce(state, topic, 0, 10)
        await commit(state, ("t", 0, 0))
        await state.topics.delete(topic)
        await state.topics.create(ORG, "t", 1)
        assert (await ask(state)).partitions == []


async def test_the_log_cannot_be_read(monkeypatch: pytest.MonkeyPatch) -> None:
    async with running_state(MemoryDisk()) as state:
        Clock(state)
        topic, _ = await state.topics.create(ORG, "t", 1)
        await produce(state, topic, 0, 10)
        await commit(state, ("t", 0, 0))

        async def broken(*_args: object, **_named: object) -> None:
            raise StorageError("input/output error")

        with monkeypatch.context() as patched:
            patched.setattr(time_search, "timestamp_of", broken)
            assert await one(state) == PartitionLag("t", 0, 0, 1, 0, 1, -1, -1)
        assert (await one(state)).behind_ms == 10_000


async def join(state: BrokerState, *partitions: int) -> str:
    """A member that is assigned these of "t"; its id."""
    op = JoinGroup(
        "g",
        "",
        "",
        "consumer",
        [JoinGroupRequestProtocol("range", b"m")],
        10_000,
        10_000,
        "c",
        "/h",
    )
    member = (await groups.join(state, context(), op)).member_id
    assigned = ConsumerProtocolMemberAssignment(0, [("t", list(partitions))], b"").encode()
    await groups.sync(
        state,
        context(),
        SyncGroup("g", 1, member, "", [SyncGroupRequestAssignment(member, assigned)]),
    )
    return member


async def test_the_owner_is_told_also_of_what_was_never_committed() -> None:
    async with running_state(MemoryDisk()) as state:
        Clock(state)
        topic, _ = await state.topics.create(ORG, "t", 3)
        await produce(state, topic, 1, 5)
        await commit(state, ("t", 0, 0))
        member = await join(state, 1, 0, 9)
        found = await ask(state)
        assert (found.state, found.protocol_type, found.protocol) == ("Stable", "consumer", "range")
        assert [(m.member_id, m.client_id, m.client_host) for m in found.members or []] == [
            (member, "c", "/h")
        ]
        assert found.partitions == [
            PartitionLag("t", 0, 0, 0, 0, 0, 0, 0, member),
            PartitionLag("t", 1, 0, 1, -1, -1, -1, -1, member),
        ]
        leave = LeaveGroup("g", [Leaver(member)])
        await groups.leave(state, context(), leave)
        assert await one(state) == PartitionLag("t", 0, 0, 0, 0, 0, 0, 0)


async def test_the_time_to_catch_up() -> None:
    async with running_state(MemoryDisk()) as state:
        clock = Clock(state)
        topic, _ = await state.topics.create(ORG, "t", 1)
        await produce(state, topic, 0, *[100] * 1_000)
        member = await join(state, 0)
        for offset in (0, 100, 200):
            op = CommitOffsets("g", 1, member, "", [CommitOffset("t", 0, offset)])
            assert (await offsets.commit(state, context(), op)).partitions == [0]
            clock.now_ms += 5_000
            await produce(state, topic, 0, *[0] * 50)
        # 20 records a second are read, and 10 are written.
        assert (await one(state)).records == 950
        assert (await one(state)).catch_up_ms == pytest.approx(95_000)
        await groups.leave(state, context(), LeaveGroup("g", [Leaver(member)]))
        assert (await one(state)).catch_up_ms == -1, "nobody reads"
        await commit(state, ("t", 0, 900))
        clock.now_ms += 2_000
        await commit(state, ("t", 0, 901))
        assert (await one(state)).catch_up_ms == -1, "it was moved by hand"


async def test_all_groups_for_metrics() -> None:
    async with running_state(MemoryDisk()) as state:
        Clock(state)
        for org in (ORG, 2):
            topic, _ = await state.topics.create(org, "t", 1)
            await produce(state, topic, 0, 50, 40)
        await commit(state, ("t", 0, 0))
        op = CommitOffsets("h", -1, "", "", [CommitOffset("t", 0, 1)])
        await offsets.commit(state, context(2), op)
        found = {
            (org, group.name): [(each.records, each.seconds) for each in lags]
            async for org, group, lags in state.groups.lags.of_every_group(
                state.groups.every_group(), state.groups.now_ms
            )
        }
        # To the batch: that of its newest record.
        assert found == {(ORG, "g"): [(2, 40.0)], (2, "h"): [(1, 40.0)]}
        assert (await one(state)).behind_ms == 50_000, "asked for exactly, it is exact"


@given(
    st.lists(st.lists(st.integers(0, 99), min_size=1, max_size=5), min_size=1, max_size=90),
    st.floats(0, 1),
    st.floats(0, 1),
)
@examples(30)
def test_against_looking_at_every_record(
    written: list[list[int]], start: float, position: float
) -> None:
    ages = [age for batch in written for age in batch]
    log_start, committed = round(start * len(ages)), round(position * len(ages))

    async def check() -> None:
        async with running_state(MemoryDisk()) as state:
            Clock(state)
            topic, _ = await state.topics.create(ORG, "t", 1)
            for batch in written:
                await produce(state, topic, 0, *batch)
            await commit(state, ("t", 0, committed))
            state.log.partitions.get(topic.partition_id(0)).advance_log_start(log_start)
            left = ages[max(committed, log_start) :]
            found = await one(state)
            assert found.records == len(left)
            assert found.behind_ms == (left[0] * 1_000 if left else 0)

    asyncio.run(check())
