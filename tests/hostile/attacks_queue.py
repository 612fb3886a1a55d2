"""Ops that fill a queue between gateway and broker: large ones, and those that stay parked."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import ExitStack

from quafka_proto.errors import ErrorCode
from quafka_proto.schema.fetch import FetchPartition, FetchRequest, FetchTopic
from quafka_proto.schema.groups import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
    SyncGroupRequest,
    SyncGroupRequestAssignment,
    SyncGroupResponse,
)
from quafka_proto.schema.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from quafka_proto.schema.offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from quafka_proto.schema.partitions import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
)
from tests.hostile.arena import Arena, run
from tests.hostile.catalogue import attack
from tests.support.raw_group import Connection, RawMember, members

_SECONDS = 12.0
"""Longer than the gateway waits for a broker's answer to a small op."""
_PARTITIONS = 100_000
_REBALANCE_MS = 600_000
_MB = 1_000_000


def _for_a_while(step: Callable[[], None]) -> None:
    """Once, and again until the time is over."""
    until = time.monotonic() + _SECONDS
    step()
    while time.monotonic() < until:
        step()


# --- small ops that are large -----------------------------------------------------------------


@attack("ListOffsets names 100,000 partitions of one topic, again and again", "33",
        part_of_tests=True)  # fmt: skip
def list_offsets(arena: Arena) -> None:
    parts = [ListOffsetsPartition(partition_index=at, timestamp=-1) for at in range(_PARTITIONS)]
    request = ListOffsetsRequest(topics=[ListOffsetsTopic(arena.topic(), parts)])
    with arena.connect() as client:

        def ask() -> None:
            answer = client.call(request, ListOffsetsResponse, 1)
            assert len(answer.topics[0].partitions) == _PARTITIONS

        _for_a_while(ask)


@attack("DeleteRecords names 100,000 partitions of one topic, again and again", "33")
def delete_records(arena: Arena) -> None:
    parts = [DeleteRecordsPartition(at, 0) for at in range(_PARTITIONS)]
    topics = [DeleteRecordsTopic(arena.topic(), parts)]
    request = DeleteRecordsRequest(topics=topics, timeout_ms=30_000)
    with arena.connect() as client:

        def ask() -> None:
            answer = client.call(request, DeleteRecordsResponse, 1)
            assert len(answer.topics[0].partitions) == _PARTITIONS

        _for_a_while(ask)


def _commit(megabytes: int) -> None:
    @attack(f"OffsetCommit has {megabytes} MB of metadata, again and again", "33",
            growth_mib=512, why="offsets that are accepted are held")  # fmt: skip
    def commit(arena: Arena) -> None:
        """Accepted, or refused; the refusal is none that clients retry."""
        count, metadata = megabytes * _MB // 4_000, "m" * 4_000
        parts = [
            OffsetCommitRequestPartition(
                partition_index=at, committed_offset=at, committed_metadata=metadata
            )
            for at in range(count)
        ]
        topics = [OffsetCommitRequestTopic(name=arena.topic(count), partitions=parts)]
        request = OffsetCommitRequest(group_id=arena.name("group"), topics=topics)
        errors: set[int] = set()
        with arena.connect() as client:

            def ask() -> None:
                answer = client.call(request, OffsetCommitResponse, 8)
                errors.update(part.error_code for part in answer.topics[0].partitions)

            _for_a_while(ask)
        assert not any(ErrorCode(each).retriable for each in errors), errors


for each in (17, 72):
    _commit(each)


@attack("SyncGroup has 18 MB of assignments, again and again", "33")
def sync_group(arena: Arena) -> None:
    async def syncs() -> None:
        (leader,) = await members(arena.address, [arena.name("group")])
        loop = asyncio.get_running_loop()
        until = loop.time() + _SECONDS
        errors: set[int] = set()
        async with asyncio.timeout(100):
            while loop.time() < until:
                assert await leader.join() == 0
                errors.add((await _sync(leader, 18 * _MB)).error_code)
            await leader.leave()
        leader.connection.close()
        assert not any(ErrorCode(each).retriable for each in errors), errors

    run(syncs())


async def _sync(member: RawMember, size: int) -> SyncGroupResponse:
    assignment = SyncGroupRequestAssignment(member_id=member.id, assignment=bytes(size))
    request = SyncGroupRequest(
        group_id=member.group,
        generation_id=member.generation,
        member_id=member.id,
        assignments=[assignment],
    )
    return await member.connection.call(request, SyncGroupResponse, 3)


# --- ops that stay parked ---------------------------------------------------------------------


async def _join(member: RawMember, metadata: bytes) -> JoinGroupResponse:
    request = JoinGroupRequest(
        group_id=member.group,
        session_timeout_ms=_REBALANCE_MS,
        rebalance_timeout_ms=_REBALANCE_MS,
        member_id=member.id,
        protocol_type="opaque",
        protocols=[JoinGroupRequestProtocol(name="range", metadata=metadata)],
    )
    return await member.connection.call(request, JoinGroupResponse, 5)


async def _enter(member: RawMember, metadata: bytes = b"") -> JoinGroupResponse:
    """Join with the id that the first answer has; parked while others do not join."""
    member.id = (await _join(member, b"")).member_id
    answer = await _join(member, metadata)
    member.generation = answer.generation_id
    return answer


def _parked_joins(count: int, megabytes: int) -> None:
    @attack(f"{count} JoinGroups of {megabytes} MB wait for a rebalance of ten minutes", "33",
            part_of_tests=count > 5)  # fmt: skip
    def joins(arena: Arena) -> None:
        run(_wait_for_others(arena, count, bytes(megabytes * _MB)))


_parked_joins(5, 25)
_parked_joins(14, 9)


async def _wait_for_others(arena: Arena, count: int, metadata: bytes) -> None:
    """In each group a member stays away, and one waits for it; then all of them leave."""
    groups = [arena.name("group") for _ in range(count)]
    away = await members(arena.address, groups)
    waiting = await members(arena.address, groups)
    try:
        async with asyncio.timeout(200):
            for each in away:
                assert (await _enter(each)).error_code == 0
                assert await each.sync() == 0
            joining = [asyncio.ensure_future(_enter(each, metadata)) for each in waiting]
            try:
                await _hold(arena)
            finally:
                for each in away:
                    await each.leave()
                for each, answer in zip(waiting, await asyncio.gather(*joining), strict=True):
                    if not answer.error_code:
                        await each.leave()
    finally:
        for each in (*away, *waiting):
            each.connection.close()


async def _hold(arena: Arena) -> None:
    """Keep parked what is parked; others must be served meanwhile."""
    await asyncio.sleep(_SECONDS)
    await asyncio.to_thread(arena.others_are_served)


@attack("three SyncGroups of 9 MB wait for their leader", "33", part_of_tests=True)
def parked_syncs(arena: Arena) -> None:
    """Followers send assignments, too, as only leaders should."""
    run(_wait_for_leader(arena, 3, 9 * _MB))


async def _wait_for_leader(arena: Arena, count: int, size: int) -> None:
    leader, *followers = await members(arena.address, [arena.name("group")] * (1 + count))
    async with asyncio.timeout(200):
        assert (await _enter(leader)).error_code == 0
        joining = [asyncio.ensure_future(_enter(each)) for each in followers]
        while not all(each.done() for each in joining):
            await asyncio.sleep(1.0)
            answer = await _join(leader, b"")
            assert answer.error_code == 0
            leader.generation = answer.generation_id
        assert {each.generation for each in followers} == {leader.generation}
        syncing = [asyncio.ensure_future(_sync(each, size)) for each in followers]
        try:
            await _hold(arena)
        finally:
            leading = asyncio.ensure_future(_sync(leader, 1))
            await asyncio.wait([leading], timeout=_SECONDS)
            for each in (leader, *followers):
                each.connection.close()
        assert leading.done(), "the leader's own assignments wait behind its followers"
        await asyncio.gather(leading, *syncing, return_exceptions=True)


@attack("joins that wait, from three addresses, fill the memory for requests", "33",
        growth_mib=160, why="a group's members are held, up to 96 MiB")  # fmt: skip
def memory(arena: Arena) -> None:
    """More than `queued.max.request.bytes`, and less than its part for each address."""
    run(_fill(arena, ("127.0.0.2", "127.0.0.3", "127.0.0.4"), 8, 25 * _MB))


async def _fill(arena: Arena, sources: tuple[str, ...], each: int, size: int) -> None:
    group = arena.name("group")
    (away,) = await members(arena.address, [group])
    assert (await _enter(away)).error_code == 0
    assert await away.sync() == 0
    waiting: list[RawMember] = []
    for source in sources:
        for _ in range(each):
            streams = await asyncio.open_connection(*arena.address, local_addr=(source, 0))
            waiting.append(RawMember(Connection(*streams), group))
    joining = [asyncio.ensure_future(_enter(one, bytes(size))) for one in waiting]
    try:
        await _hold(arena)
    finally:
        for task in joining:
            task.cancel()
        for one in waiting:
            one.connection.close()
        async with asyncio.timeout(100):
            await asyncio.gather(*joining, return_exceptions=True)
            await away.leave()
        away.connection.close()


# --- fetches ----------------------------------------------------------------------------------

_WIDTH, _PARKED = 3_000, 160


@attack("160 fetches of 3,000 partitions each wait for records", "33",
        growth_mib=256, why="Python keeps arenas, and uses them again")  # fmt: skip
def parked_fetches(arena: Arena) -> None:
    """Twice, so that memory that is kept and not used again is seen."""
    topic = arena.topic(_WIDTH)
    for _ in range(2):
        _park(arena, topic)


def _park(arena: Arena, topic: str) -> None:
    """Each fetch is another one, so that none shares the op of another."""
    with ExitStack() as opened:
        for number in range(_PARKED):
            parts = [
                FetchPartition(partition=at, fetch_offset=0, partition_max_bytes=_MB + number)
                for at in range(_WIDTH)
            ]
            request = FetchRequest(
                max_wait_ms=60_000,
                min_bytes=1,
                session_epoch=-1,
                topics=[FetchTopic(topic=topic, partitions=parts)],
            )
            opened.enter_context(arena.connect()).send(request, 12)
        time.sleep(_SECONDS)
        arena.others_are_served()
