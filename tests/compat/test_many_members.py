"""A group of a thousand members, and two hundred groups on one topic."""

from __future__ import annotations

import asyncio

import pytest

from quafka_proto.schema.fetch import FetchResponse
from tests.support.cluster import Cluster
from tests.support.group_members import PARTITIONS, fill
from tests.support.kafka_calls import VERSION, fetch_request, values
from tests.support.raw_group import REBALANCE, RawMember, members

pytestmark = pytest.mark.long

MEMBERS, GROUPS = 1_000, 200
RECORDS = 40


async def test_a_thousand_members_rebalance(group_cluster: Cluster) -> None:
    many = await members(group_cluster.address, ["thousand"] * MEMBERS)
    async with asyncio.timeout(60):
        await asyncio.gather(*(member.settle() for member in many))
    assert settled(many) == MEMBERS
    generation = many[0].generation
    assert set(await asyncio.gather(*(member.heartbeat() for member in many))) == {0}
    # One comes and one goes: everybody hears of it, joins again, and nobody is left out.
    *stay, leaves = many
    await leaves.leave()
    assert set(await asyncio.gather(*(member.heartbeat() for member in stay))) == {REBALANCE}
    async with asyncio.timeout(60):
        await asyncio.gather(*(member.settle() for member in stay))
    assert settled(stay) == MEMBERS - 1
    assert stay[0].generation == generation + 1
    for member in many:
        member.connection.close()


def settled(many: list[RawMember]) -> int:
    """How many are in the one generation, each with an assignment of its own."""
    assert len({member.generation for member in many}) == 1
    return len({int(member.assignment) for member in many})


async def test_two_hundred_groups_on_one_topic(group_cluster: Cluster) -> None:
    produced = set(fill(group_cluster, "shared", RECORDS))
    many = await members(group_cluster.address, [f"of-many-{n}" for n in range(GROUPS)])

    async def consume(member: RawMember) -> None:
        await member.settle()
        found: set[bytes] = set()
        ends: list[int] = []
        for partition in range(PARTITIONS):
            request = fetch_request("shared", 0)
            request.topics[0].partitions[0].partition = partition
            answer = await member.connection.call(request, FetchResponse, VERSION["fetch"])
            (data,) = answer.responses[0].partitions
            found.update(values(data))
            ends.append(data.high_watermark)
        assert found == produced
        assert await member.commit("shared", ends) == 0
        await member.leave()

    async with asyncio.timeout(60):
        await asyncio.gather(*map(consume, many))
        for member in many:
            offsets = await member.committed()
            assert offsets == {("shared", p): RECORDS // PARTITIONS for p in range(PARTITIONS)}
            member.connection.close()
