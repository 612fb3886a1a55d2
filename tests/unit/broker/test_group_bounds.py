"""What the groups of one org may hold: refused is only what is too much, and only there."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from quafka_broker.config.settings import BrokerConfig
from quafka_broker.groups.deadlines import DeadlineHeap
from quafka_broker.groups.limits import GroupLimits
from quafka_broker.groups.org_usage import OrgUsage
from quafka_broker.ops import groups, offsets
from quafka_broker.state import BrokerState
from quafka_mesh_ops.ops.group_offsets import CommitOffset, CommitOffsets
from quafka_mesh_ops.ops.groups import JoinGroup, JoinGroupResp, LeaveGroup, Leaver
from quafka_proto.errors import ErrorCode
from quafka_proto.schema.groups import JoinGroupRequestProtocol
from tests.unit.broker.group_members import DELAY, Clocked
from tests.unit.broker.memory_disk import MemoryDisk
from tests.unit.broker.tools import ORG, context, running_state

E = ErrorCode


def config(**settings: Any) -> BrokerConfig:
    return BrokerConfig(data=Path("unused"), **settings)


async def first_join(state: BrokerState, group: str, /, org: int = ORG, **changes: Any) -> int:
    """The first join of a client of today, which is told to come again with an id."""
    return (await joined(state, group, org, **changes)).error_code


async def joined(
    state: BrokerState, group: str, /, org: int = ORG, **changes: Any
) -> JoinGroupResp:
    op = JoinGroup(
        group,
        "",
        "",
        "consumer",
        [JoinGroupRequestProtocol("range", b"m")],
        10_000,
        10_000,
        require_member_id=True,
    )
    return await groups.join(state, context(org), replace(op, **changes))


async def commit(state: BrokerState, group: str, *parts: CommitOffset, org: int = ORG) -> list[int]:
    op = CommitOffsets(group, -1, "", "", list(parts))
    return (await offsets.commit(state, context(org), op)).partitions


def held(state: BrokerState, org: int = ORG) -> OrgUsage:
    return state.groups.usage(org)


# --- groups ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"session_timeout_ms": 1}, E.INVALID_SESSION_TIMEOUT),
        ({"session_timeout_ms": 1 << 30}, E.INVALID_SESSION_TIMEOUT),
        ({"protocols": []}, E.INCONSISTENT_GROUP_PROTOCOL),
        ({"protocol_type": ""}, E.INCONSISTENT_GROUP_PROTOCOL),
        ({"member_id": "somebody"}, E.UNKNOWN_MEMBER_ID),
        ({"group": ""}, E.INVALID_GROUP_ID),
        (
            {"protocols": [JoinGroupRequestProtocol("range", bytes(2 << 20))]},
            E.GROUP_MAX_SIZE_REACHED,
        ),
    ],
)
async def test_a_refused_join_makes_no_group(changes: dict[str, Any], error: ErrorCode) -> None:
    async with running_state(MemoryDisk(), config(group_max_bytes=1 << 20)) as state:
        assert await first_join(state, "g", **changes) == error
        assert state.groups.groups(ORG) == []
        assert held(state) == OrgUsage()


async def test_groups_are_bounded_for_each_org() -> None:
    async with running_state(MemoryDisk(), config(group_max_groups=3)) as state:
        for org in (1, 2):
            await state.topics.create(org, "t", 1)
        for number in range(3):
            assert await commit(state, f"g{number}", CommitOffset("t", 0, 1)) == [0]
        assert await first_join(state, "new") == E.GROUP_MAX_SIZE_REACHED
        assert await commit(state, "new", CommitOffset("t", 0, 1)) == [E.POLICY_VIOLATION]
        assert await commit(state, "g0", CommitOffset("t", 0, 2)) == [0]
        assert await first_join(state, "g0") == E.MEMBER_ID_REQUIRED
        assert await commit(state, "new", CommitOffset("t", 0, 1), org=2) == [0]
        assert await state.groups.delete_group(ORG, "g1") == 0
        assert await first_join(state, "new") == E.MEMBER_ID_REQUIRED


async def test_ids_that_nobody_came_with_make_room_for_a_group() -> None:
    """As many joins as there may be groups keep nobody else out."""
    async with running_state(MemoryDisk(), config(group_max_groups=100)) as state:
        state.groups.limits = replace(state.groups.limits, initial_delay=0)
        for number in range(1_000):
            assert await first_join(state, f"g{number}") == E.MEMBER_ID_REQUIRED
        assert len(state.groups.groups(ORG)) == 100
        assert held(state).members == 100
        answer = await joined(state, "mine")
        again = await joined(state, "mine", member_id=answer.member_id)
        assert (again.error_code, again.generation) == (0, 1)
        for number in range(1_000):
            await first_join(state, f"h{number}")
        assert "mine" in {kept.group.name for kept in state.groups.groups(ORG)}


async def test_a_group_of_which_nothing_is_left_leaves_at_once() -> None:
    async with running_state(MemoryDisk()) as state:
        answer = await joined(state, "g")
        left = LeaveGroup("g", [Leaver(answer.member_id)])
        assert (await groups.leave(state, context(), left)).leavers == [0]
        assert state.groups.groups(ORG) == []
        state.groups.limits = replace(state.groups.limits, min_session=0.01)
        assert await first_join(state, "g", session_timeout_ms=20) == E.MEMBER_ID_REQUIRED
        async with asyncio.timeout(5):
            while state.groups.groups(ORG):
                await asyncio.sleep(0.01)
        assert held(state) == OrgUsage()


# --- members --------------------------------------------------------------------------------


def test_members_of_an_org_are_bounded() -> None:
    limits, usage = GroupLimits(org_members=3), OrgUsage()
    one, other = (Clocked(limits, usage=usage, first_id=10 * n) for n in range(2))
    ids = one.stable("", "")
    assert other.join(require_member_id=True).error == E.MEMBER_ID_REQUIRED
    assert usage.members == 3
    assert other.join().error == E.GROUP_MAX_SIZE_REACHED
    assert one.join(ids[1], protocols=(("range", b"again"),)).parked
    assert other.join("c-10").parked
    assert one.leave((ids[0], "")) == [0]
    assert usage.members == 2
    assert other.join().parked


def test_the_bytes_of_a_group_are_bounded() -> None:
    limits, usage = GroupLimits(max_bytes=100_000), OrgUsage()
    clocked = Clocked(limits, usage=usage)
    leader, follower = clocked.stable("", "")
    before = usage.member_bytes
    large = (("range", bytes(100_000)),)
    assert clocked.join(protocols=large).error == E.GROUP_MAX_SIZE_REACHED
    assert clocked.join(follower, protocols=large).error == E.GROUP_MAX_SIZE_REACHED
    assert usage.member_bytes == before
    assert clocked.heartbeat(follower) == E.NONE
    assert clocked.join(follower, protocols=(("range", bytes(60_000)),)).parked
    assert clocked.join(leader).answer.generation == 2
    assert usage.member_bytes == before + 60_000 - len(b"m")
    waits = clocked.sync(follower)
    told = clocked.sync(leader, {leader: b"", follower: bytes(60_000)})
    assert told.error == waits.error == E.GROUP_MAX_SIZE_REACHED
    for member in (leader, follower):
        clocked.join(member)
    clocked.pass_time(DELAY)
    clocked.sync(leader, {follower: bytes(60_000)})
    assert clocked.sync(follower).answer.assignment == bytes(60_000)


def test_the_bytes_of_an_org_are_bounded() -> None:
    limits, usage = GroupLimits(org_bytes=100_000), OrgUsage()
    one, other = (Clocked(limits, usage=usage, first_id=10 * n) for n in range(2))
    assert one.join(protocols=(("range", bytes(60_000)),)).parked
    large = (("range", bytes(60_000)),)
    assert other.join(protocols=large).error == E.GROUP_MAX_SIZE_REACHED
    one.leave(("c-0", ""))
    assert usage.member_bytes == 0
    assert other.join(protocols=large).parked


async def test_what_an_org_holds_is_known_again_after_a_restart() -> None:
    disk = MemoryDisk()
    async with running_state(disk, lease_seconds=0) as state:
        await state.topics.create(ORG, "t", 5)
        state.groups.limits = replace(state.groups.limits, initial_delay=0)
        assert (await joined(state, "g", require_member_id=False)).generation == 1
        parts = [CommitOffset("t", number, 1, metadata="é" * number) for number in range(5)]
        assert await commit(state, "other", *parts) == [0] * 5
        assert await commit(state, "other", *parts) == [0] * 5
        offset_bytes = held(state).offset_bytes
    async with running_state(disk, lease_seconds=0) as state:
        # The member's generation never was complete: it is not there any more.
        assert held(state) == OrgUsage(groups=1, offset_bytes=offset_bytes)
        await state.groups.delete_group(ORG, "other")
        assert held(state) == OrgUsage()


# --- offsets --------------------------------------------------------------------------------


async def test_the_offsets_of_an_org_are_bounded() -> None:
    async with running_state(MemoryDisk(), config(offsets_max_bytes=1 << 20)) as state:
        for org in (1, 2):
            await state.topics.create(org, "t", 3_000)
        parts = [CommitOffset("t", number, 1) for number in range(3_000)]
        assert set(await commit(state, "g", *parts)) == {E.POLICY_VIOLATION}
        assert set(await commit(state, "g", *parts[:1_000])) == {0}
        assert set(await commit(state, "h", *parts[:1_000])) == {E.POLICY_VIOLATION}
        assert set(await commit(state, "g", *parts[:1_000])) == {0}
        assert set(await commit(state, "h", *parts[:1_000], org=2)) == {0}
        await state.groups.offsets.delete(ORG, "g", [("t", number) for number in range(1_000)])
        assert set(await commit(state, "h", *parts[:1_000])) == {0}


async def test_a_commit_that_is_too_large_commits_nothing() -> None:
    """72 MB of metadata: more than was read at the next start, once."""
    disk = MemoryDisk()
    async with running_state(disk, lease_seconds=0) as state:
        await state.topics.create(ORG, "t", 18_000)
        parts = [CommitOffset("t", n, 1, metadata="x" * 4_000) for n in range(18_000)]
        too_long = replace(parts[0], metadata="x" * 5_000)
        errors = await commit(state, "g", too_long, *parts[1:])
        assert errors[0] == E.OFFSET_METADATA_TOO_LARGE
        assert set(errors[1:]) == {E.INVALID_COMMIT_OFFSET_SIZE}
        assert state.groups.find(ORG, "g") is None
        assert set(await commit(state, "g", *parts[:4_000])) == {0}
    async with running_state(disk, lease_seconds=0) as state:
        kept = state.groups.find(ORG, "g")
        assert kept is not None
        assert len(kept.offsets) == 4_000


# --- time -----------------------------------------------------------------------------------


def test_deadlines_that_were_forgotten_take_no_room() -> None:
    deadlines = DeadlineHeap[str]()
    deadlines.schedule("kept", 5.0)
    for number in range(10_000):
        deadlines.schedule(f"n{number}", 1.0)
        deadlines.cancel(f"n{number}")
    assert len(deadlines._heap) < 200
    assert deadlines.pop(9.0) == "kept"
    assert deadlines.pop(9.0) is None
