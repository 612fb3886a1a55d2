"""Consumer groups: large ops, refused joins, storms, and what the journal must be able to read."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

from quafka_proto.errors import ErrorCode
from quafka_proto.schema.groups import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
    SyncGroupRequest,
    SyncGroupRequestAssignment,
    SyncGroupResponse,
)
from quafka_proto.schema.offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchResponse,
)
from tests.hostile.arena import Arena, run
from tests.hostile.catalogue import attack
from tests.support.raw_group import (
    LOADING,
    MEMBER_ID_REQUIRED,
    MOVED,
    NOT_THERE,
    Connection,
    RawMember,
    members,
)

_AGAIN = (MEMBER_ID_REQUIRED, LOADING, NOT_THERE, MOVED)
_BEAT = 0.05
_TABLE = 100_864
"""Refused joins that once filled the table of groups."""


async def _join(member: RawMember, metadata: bytes) -> JoinGroupResponse:
    """Join with this subscription, as often as it takes."""
    while True:
        request = JoinGroupRequest(
            group_id=member.group,
            session_timeout_ms=30_000,
            rebalance_timeout_ms=60_000,
            member_id=member.id,
            protocol_type="opaque",
            protocols=[JoinGroupRequestProtocol(name="range", metadata=metadata)],
        )
        answer = await member.connection.call(request, JoinGroupResponse, 5)
        member.id = answer.member_id or member.id
        if answer.error_code == ErrorCode.UNKNOWN_MEMBER_ID:
            member.id = ""  # a first generation of few went on without it
        elif answer.error_code not in _AGAIN:
            member.generation = answer.generation_id
            return answer


async def _join_whole(
    member: RawMember, metadata: bytes, count: int, whole: asyncio.Future[JoinGroupResponse]
) -> None:
    """Join, again for each member that comes later, until the leader's answer names all."""
    while not whole.done():
        answer = await _join(member, metadata)
        assert answer.error_code in (0, ErrorCode.REBALANCE_IN_PROGRESS)
        if answer.member_id == answer.leader and len(answer.members) == count:
            whole.set_result(answer)
        error = answer.error_code
        while not error and not whole.done():
            await asyncio.sleep(_BEAT)
            error = await member.heartbeat()
        if error == ErrorCode.UNKNOWN_MEMBER_ID:
            member.id = ""


async def _sync(member: RawMember, others: list[str], assignment: bytes) -> SyncGroupResponse:
    request = SyncGroupRequest(
        group_id=member.group,
        generation_id=member.generation,
        member_id=member.id,
        assignments=[
            SyncGroupRequestAssignment(member_id=other, assignment=assignment) for other in others
        ],
    )
    return await member.connection.call(request, SyncGroupResponse, 3)


async def _form(arena: Arena, count: int, metadata: bytes, assignment: bytes) -> str:
    """A group in which every member has joined and has its assignment; its name."""
    group = arena.name("group")
    joining = await members(arena.address, [group] * count)
    whole: asyncio.Future[JoinGroupResponse] = asyncio.get_running_loop().create_future()
    async with asyncio.timeout(100):
        await asyncio.gather(*(_join_whole(one, metadata, count, whole) for one in joining))
        lead = whole.result()
        names = [one.member_id for one in lead.members]
        synced = await asyncio.gather(
            *(_sync(one, names if one.id == lead.leader else [], assignment) for one in joining)
        )
    assert {one.error_code for one in synced} == {0}
    assert {one.assignment for one in synced} == {assignment}
    for one in joining:
        await one.leave()
        one.connection.close()
    return group


def _one_member(size: int) -> None:
    name = f"a group's op has {size >> 10} KiB"

    @attack(name, "1", part_of_tests=size <= 1 << 20)
    def grow(arena: Arena) -> None:
        run(_form(arena, 1, bytes(size), bytes(size)))


for each in (2 << 10, 64 << 10, 70 << 10, 1 << 20, 4 << 20):
    _one_member(each)


@attack("ten members with 7 KB of subscription each form a group", "1", part_of_tests=True)
def ten_subscriptions(arena: Arena) -> None:
    run(_form(arena, 10, bytes(7_000), b"assignment"))


@attack("a hundred thousand joins are refused", "11")
def refused_joins(arena: Arena) -> None:
    """The groups that they name must not come to be; a new group is made at once afterwards."""
    run(_refused(arena, _TABLE))
    run(_form(arena, 2, b"metadata", b"assignment"))


@attack("a thousand joins are refused", "11", part_of_tests=True)
def some_refused_joins(arena: Arena) -> None:
    run(_refused(arena, 1_000))


async def _refused(arena: Arena, count: int) -> None:
    async def some(numbers: Iterator[int]) -> None:
        connection = await Connection.open(arena.address)
        for number in numbers:
            request = JoinGroupRequest(
                group_id=f"refused-{number}",
                session_timeout_ms=1,
                rebalance_timeout_ms=1,
                protocol_type="consumer",
                protocols=[JoinGroupRequestProtocol(name="range", metadata=b"\0\0\0\0\0\0")],
            )
            answer = await connection.call(request, JoinGroupResponse, 5)
            assert answer.error_code == ErrorCode.INVALID_SESSION_TIMEOUT
        connection.close()

    numbers = iter(range(count))
    async with asyncio.timeout(200):
        await asyncio.gather(*(some(numbers) for _ in range(32)))


@attack("two hundred members come and go in one group, five times", part_of_tests=False)
def storm(arena: Arena) -> None:
    for _ in range(5):
        run(_form(arena, 200, b"metadata", b"assignment"))


@attack(
    "two thousand members have 16 KB each; then the broker starts again", "2",
    growth_mib=512, why="the group exists and is held: 2 x 32 MB, and as it is written",
)  # fmt: skip
def large_group(arena: Arena) -> None:
    run(_form(arena, 2_000, bytes(16_000), bytes(16_000)))
    arena.restart_broker()


@attack(
    "one OffsetCommit has 72 MB of metadata; then the broker starts again", "2",
    growth_mib=512, why="what is accepted is held: 72 MB of offsets, and as it is written",
)  # fmt: skip
def large_commit(arena: Arena) -> None:
    """Each offset is either refused or there afterwards."""
    topic, group = arena.topic(partitions=9_000), arena.name("group")
    topics = [topic, arena.topic(partitions=9_000)]
    request = OffsetCommitRequest(
        group_id=group,
        topics=[
            OffsetCommitRequestTopic(
                name=name,
                partitions=[
                    OffsetCommitRequestPartition(
                        partition_index=number,
                        committed_offset=number + 1,
                        committed_metadata="m" * 4_000,
                    )
                    for number in range(9_000)
                ],
            )
            for name in topics
        ],
    )
    for _ in range(10):
        with arena.connect(100) as client:
            answer = client.call(request, OffsetCommitResponse, 8)
        if not any(part.error_code in _AGAIN for one in answer.topics for part in one.partitions):
            break
    accepted = {
        (one.name, part.partition_index): part.partition_index + 1
        for one in answer.topics
        for part in one.partitions
        if part.error_code == 0
    }
    arena.restart_broker()
    wanted = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=group, topics=None)])
    with arena.connect(100) as client:
        (found,) = client.call(wanted, OffsetFetchResponse, 8).groups
    there = {
        (one.name, part.partition_index): part.committed_offset
        for one in found.topics
        for part in one.partitions
    }
    assert there == accepted


@attack("offsets are committed in 3,000 groups", part_of_tests=False)
def many_groups(arena: Arena) -> None:
    topic = arena.topic()
    run(_commit_in_many(arena, topic))


async def _commit_in_many(arena: Arena, topic: str) -> None:
    async def some(numbers: Iterator[int]) -> None:
        connection = await Connection.open(arena.address)
        for number in numbers:
            member = RawMember(connection, f"many-{number}")
            assert await member.commit(topic, [1]) == 0
        connection.close()

    numbers = iter(range(3_000))
    async with asyncio.timeout(100):
        await asyncio.gather(*(some(numbers) for _ in range(16)))
