"""Committed offsets and groups in the log: what a restart knows, and that it stays short."""

from __future__ import annotations

import asyncio
import random
from dataclasses import replace

import pytest

from quafka_broker.groups import journal
from quafka_broker.groups.classic.group import ClassicGroup
from quafka_broker.groups.classic.states import ClassicState
from quafka_broker.journals.internal_topics import GROUPS
from quafka_broker.ops import groups, offsets
from quafka_broker.partitions.errors import StorageError
from quafka_broker.state import BrokerState
from quafka_broker.topics.replay import BadRegistryError
from quafka_mesh_ops.ops.group_offsets import (
    CommitOffset,
    CommitOffsets,
    CommittedOffsets,
    CommittedQuestion,
)
from quafka_mesh_ops.ops.groups import (
    Heartbeat,
    JoinGroup,
    JoinGroupResp,
    LeaveGroup,
    Leaver,
    SyncGroup,
)
from quafka_proto.errors import ErrorCode
from quafka_proto.schema.groups import JoinGroupRequestProtocol, SyncGroupRequestAssignment
from tests.support.suites import more
from tests.unit.broker.memory_disk import MemoryDisk
from tests.unit.broker.tools import ORG, checked, context, running_state

E = ErrorCode


async def commit(
    state: BrokerState, group: str, *rows: tuple[str, int, int], metadata: str = "", org: int = ORG
) -> list[int]:
    """Commit (topic, partition, offset)s from outside of the group."""
    op = CommitOffsets(group, -1, "", "", [CommitOffset(*row, metadata=metadata) for row in rows])
    return (await offsets.commit(state, context(org), op)).partitions


async def committed(state: BrokerState, group: str, org: int = ORG) -> dict[tuple[str, int], int]:
    answer = await offsets.committed(state, context(org), CommittedOffsets(group))
    assert answer.error_code == 0
    return {(found.topic, found.partition): found.offset for found in answer.offsets}


async def join(state: BrokerState, group: str, member_id: str = "") -> JoinGroupResp:
    op = JoinGroup(
        group, member_id, "", "consumer", [JoinGroupRequestProtocol("range", b"m")], 10_000, 10_000
    )
    return await groups.join(state, context(), op)


async def stable(state: BrokerState, group: str) -> str:
    """A group of one member."""
    state.groups.limits = replace(state.groups.limits, initial_delay=0.0)
    member = (await join(state, group)).member_id
    op = SyncGroup(group, 1, member, "", [SyncGroupRequestAssignment(member, b"all")])
    assert (await groups.sync(state, context(), op)).assignment == b"all"
    return member


async def test_commits_survive_a_restart() -> None:
    disk = MemoryDisk()
    async with running_state(disk, lease_seconds=0) as state:
        topic, _ = await state.topics.create(ORG, "t", 2)
        assert await commit(state, "g", ("t", 0, 5), ("t", 1, 7), metadata="é") == [0, 0]
        assert await commit(state, "g", ("t", 0, 6)) == [0]
    async with running_state(disk, lease_seconds=0) as state:
        assert await committed(state, "g") == {("t", 0): 6, ("t", 1): 7}
        question = CommittedQuestion("", [1, 0, 9], topic.uuid)
        op = CommittedOffsets("g", [question, CommittedQuestion("nowhere", [3])])
        found = (await offsets.committed(state, context(), op)).offsets
        assert [(o.topic, o.partition, o.offset, o.metadata, o.error_code) for o in found] == [
            ("t", 1, 7, "é", 0), ("t", 0, 6, "", 0), ("t", 9, -1, "", 0), ("nowhere", 3, -1, "", 0),
        ]  # fmt: skip


async def test_orgs_do_not_see_each_other() -> None:
    async with running_state(MemoryDisk()) as state:
        for org in (1, 2):
            await state.topics.create(org, "t", 1)
            assert await commit(state, "g", ("t", 0, org), org=org) == [0]
        assert await committed(state, "g", 2) == {("t", 0): 2}
        assert await committed(state, "g", 3) == {}


async def test_what_is_not_committed() -> None:
    async with running_state(MemoryDisk()) as state:
        topic, _ = await state.topics.create(ORG, "t", 1)
        rows = (("t", 0, 1), ("t", 1, 1), ("u", 0, 1))
        unknown = E.UNKNOWN_TOPIC_OR_PARTITION
        assert await commit(state, "g", *rows) == [0, unknown, unknown]
        long = "x" * (state.configs.broker.offset_metadata_max_bytes + 1)
        assert await commit(state, "g", ("t", 0, 2), metadata=long) == [E.OFFSET_METADATA_TOO_LARGE]
        assert await commit(state, "", ("t", 0, 2)) == [E.INVALID_GROUP_ID]
        by_id = CommitOffset("", 0, 3, topic_id=topic.uuid)
        wrong = CommitOffset("", 0, 3, topic_id=b"?" * 16)
        op = CommitOffsets("g", -1, "", "", [by_id, wrong])
        assert (await offsets.commit(state, context(), op)).partitions == [0, E.UNKNOWN_TOPIC_ID]
        assert await committed(state, "g") == {("t", 0): 3}
        member = CommitOffsets("new", 4, "somebody", "", [by_id])
        answer = await offsets.commit(state, context(), member)
        assert answer.partitions == [E.ILLEGAL_GENERATION]
        answer = await offsets.commit(state, context(), replace(member, knows_member_epochs=True))
        assert answer.partitions == [E.GROUP_ID_NOT_FOUND], "as OffsetCommit 9 has it"


async def test_a_commit_that_the_log_refuses_is_not_there() -> None:
    disk = MemoryDisk()
    async with running_state(disk, lease_seconds=0) as state:
        await state.topics.create(ORG, "t", 1)
        assert await commit(state, "g", ("t", 0, 1)) == [0]
        disk.room = 0
        assert await commit(state, "g", ("t", 0, 2)) == [E.COORDINATOR_NOT_AVAILABLE]
        assert await committed(state, "g") == {("t", 0): 1}
        disk.room = None
        assert await commit(state, "g", ("t", 0, 3)) == [0]


async def test_members_go_on_after_a_restart() -> None:
    disk = MemoryDisk()
    async with running_state(disk, lease_seconds=0) as state:
        member = await stable(state, "g")
    async with running_state(disk, lease_seconds=0) as state:
        alive = await groups.heartbeat(state, context(), Heartbeat("g", 1, member))
        assert alive.error_code == 0
        again = await groups.sync(state, context(), SyncGroup("g", 1, member, "", []))
        assert again.assignment == b"all"
        left = await groups.leave(state, context(), LeaveGroup("g", [Leaver(member)]))
        assert left.leavers == [0]
    async with running_state(disk, lease_seconds=0) as state:
        kept = state.groups.find(ORG, "g")
        assert kept is not None
        assert isinstance(kept.group, ClassicGroup)
        assert (kept.group.state, kept.group.generation) == (ClassicState.EMPTY, 2)


async def test_a_caller_that_goes_away_leaves_its_session_behind() -> None:
    async with running_state(MemoryDisk()) as state:
        waits = asyncio.create_task(join(state, "g"))
        await asyncio.sleep(0)
        kept = state.groups.find(ORG, "g")
        assert kept is not None
        assert isinstance(kept.group, ClassicGroup)
        (member,) = kept.group.members.values()
        assert member.joining is not None
        waits.cancel()
        await asyncio.wait([waits])
        assert [each.joining for each in kept.group.members.values()] == [None]


async def test_draining_answers_and_parks_no_more() -> None:
    async with running_state(MemoryDisk()) as state:
        waits = asyncio.create_task(join(state, "g"))
        await asyncio.sleep(0)
        state.groups.drain()
        assert (await waits).error_code == E.NOT_COORDINATOR
        assert (await join(state, "g")).error_code == E.NOT_COORDINATOR


async def test_timers_run() -> None:
    async with running_state(MemoryDisk()) as state:
        state.groups.limits = replace(state.groups.limits, initial_delay=0.05)
        assert (await join(state, "g")).generation == 1


# --- topics and time ------------------------------------------------------------------------


async def test_offsets_go_with_their_topic() -> None:
    disk = MemoryDisk()
    async with running_state(disk, lease_seconds=0) as state:
        topic, _ = await state.topics.create(ORG, "t", 1)
        await state.topics.create(ORG, "u", 1)
        assert await commit(state, "g", ("t", 0, 1), ("u", 0, 2)) == [0, 0]
        await state.topics.delete(topic)
        assert await committed(state, "g") == {("u", 0): 2}
        await state.topics.create(ORG, "t", 1)
        assert await committed(state, "g") == {("u", 0): 2}
    async with running_state(disk, lease_seconds=0) as state:
        assert await committed(state, "g") == {("u", 0): 2}


async def test_offsets_of_groups_without_members_expire() -> None:
    disk = MemoryDisk()
    async with running_state(disk, lease_seconds=0) as state:
        await state.topics.create(ORG, "t", 2)
        now = 1_000
        state.groups.now_ms = lambda: now
        member = await stable(state, "members")
        part = [CommitOffset("t", 0, 1)]
        op = CommitOffsets("members", 1, member, "", part)
        assert (await offsets.commit(state, context(), op)).partitions == [0]
        await commit(state, "simple", ("t", 0, 1))
        now = 2_000
        await commit(state, "simple", ("t", 1, 2))
        assert await state.groups.expire(500) == 1
        assert await committed(state, "simple") == {("t", 1): 2}
        now = 9_000
        await groups.leave(state, context(), LeaveGroup("members", [Leaver(member)]))
        await commit(state, "other", ("t", 0, 1))  # it is in the log behind the leaving
        assert await state.groups.expire(500) == 1
        assert state.groups.find(ORG, "simple") is None
        assert await committed(state, "members") == {("t", 0): 1}
        now = 9_600
        assert await state.groups.expire(500) == 2
        assert state.groups.groups(ORG) == []
    async with running_state(disk, lease_seconds=0) as state:
        assert state.groups.groups(ORG) == []


# --- a short log ----------------------------------------------------------------------------


def journal_length(state: BrokerState) -> int:
    partition = state.log.partitions.get(GROUPS)
    return partition.high_watermark - partition.log_start


async def test_the_log_does_not_grow_with_the_commits() -> None:
    disk = MemoryDisk()
    async with running_state(disk, lease_seconds=0) as state:
        await state.topics.create(ORG, "t", 3)
        state.groups.journal.facts_kept = 50
        member = await stable(state, "members")
        await commit(state, "idle", ("t", 2, 1))
        for number in range(1_000):
            await commit(state, "busy", ("t", number % 2, number))
        assert journal_length(state) < 200
        assert state.journal.deletions
    async with running_state(disk, lease_seconds=0) as state:
        assert await committed(state, "busy") == {("t", 0): 998, ("t", 1): 999}
        assert await committed(state, "idle") == {("t", 2): 1}
        alive = await groups.heartbeat(state, context(), Heartbeat("members", 1, member))
        assert alive.error_code == 0


@pytest.mark.parametrize("seed", [0, 1, *more(range(2, 6))])
async def test_nothing_is_lost_or_comes_back_while_the_log_is_shortened(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Commits, deletions and restarts at random, many at once, against a dictionary."""
    monkeypatch.setattr(journal, "_AT_ONCE", (200, 0)[seed % 2])  # 0: as if all were long
    chance = random.Random(seed)
    disk = MemoryDisk()
    model: dict[tuple[str, str, int], int] = {}
    number = 0
    for _ in range(6):
        async with running_state(disk, lease_seconds=0) as state:
            state.groups.journal.facts_kept = 10
            for name in ("t", "u"):
                await state.topics.create(ORG, name, 4)
            for group in ("a", "b", "c"):
                expected = {(t, p): o for (g, t, p), o in model.items() if g == group}
                assert await committed(state, group) == expected
            for _ in range(60):
                under_way: list[asyncio.Task[object]] = []
                for _ in range(chance.randrange(8)):
                    number += 1
                    group, topic = chance.choice("abc"), chance.choice("tu")
                    partition = chance.randrange(4)
                    work = commit(state, group, (topic, partition, number))
                    under_way.append(asyncio.ensure_future(work))
                    model[group, topic, partition] = number
                    if chance.random() < 0.3:
                        await asyncio.sleep(0)
                fate = chance.random()
                if fate < 0.05:
                    await asyncio.gather(*under_way)
                    await state.groups.delete_group(ORG, "a")
                    model = {key: o for key, o in model.items() if key[0] != "a"}
                elif fate < 0.1:
                    await asyncio.gather(*under_way)
                    await state.groups.offsets.delete(ORG, "b", [("t", 0)])
                    model.pop(("b", "t", 0), None)
                elif fate < 0.13:
                    await asyncio.gather(*under_way)
                    topic_t = state.registry.by_name(ORG, "t")
                    assert topic_t is not None
                    await state.topics.delete(topic_t)
                    await state.topics.create(ORG, "t", 4)
                    model = {key: o for key, o in model.items() if key[1] != "t"}
                await asyncio.gather(*under_way)
            assert journal_length(state) < 150


async def test_a_full_disk_leaves_the_log_as_it_is() -> None:
    disk = MemoryDisk()
    async with running_state(disk, lease_seconds=0) as state:
        await state.topics.create(ORG, "t", 1)
        state.groups.journal.facts_kept = 5
        for number in range(5):
            await commit(state, "g", ("t", 0, number))
        disk.room = 0
        assert await commit(state, "g", ("t", 0, 9)) == [E.COORDINATOR_NOT_AVAILABLE]
        with pytest.raises(StorageError):
            await state.groups.delete_group(ORG, "g")
        disk.room = None
        assert await commit(state, "g", ("t", 0, 10)) == [0]
    async with running_state(disk, lease_seconds=0) as state:
        assert await committed(state, "g") == {("t", 0): 10}


async def test_an_event_of_another_version_stops_the_start() -> None:
    disk = MemoryDisk()
    async with running_state(disk, lease_seconds=0) as state:
        event = b'{"event":"later","org":1,"group":"g"}'
        await state.log.queue.append(state.log.partitions.get(GROUPS), checked(event))
    with pytest.raises(BadRegistryError, match="later"):
        async with running_state(disk):
            pass
