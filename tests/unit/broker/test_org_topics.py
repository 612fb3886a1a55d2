"""How much an org may have, and its topics in order."""

from __future__ import annotations

import asyncio
from pathlib import Path

from quafka_broker.config.settings import BrokerConfig
from quafka_broker.ops import partitions, topics
from quafka_broker.state import BrokerState
from quafka_broker.topics.identity import new_topic_identity
from quafka_broker.topics.org_topics import OrgTopics
from quafka_mesh_ops.ops.admin import CreatePartitions
from quafka_mesh_ops.ops.topics import CreateTopic, DescribeTopics
from quafka_proto.errors import ErrorCode as E
from tests.unit.broker.memory_disk import MemoryDisk
from tests.unit.broker.tools import ORG, context, running_state

CONFIG = BrokerConfig(data=Path("unused"), max_partitions_per_topic=6, max_partitions_per_org=10)


async def create(state: BrokerState, name: str, count: int, *, dry: bool = False) -> int:
    op = CreateTopic(name, count, dry)
    return (await topics.create(state, context(), op)).error_code


async def grow(state: BrokerState, name: str, count: int) -> int:
    return (await partitions.create(state, context(), CreatePartitions(name, count))).error_code


async def test_partitions_per_topic_and_per_org_are_bounded() -> None:
    disk = MemoryDisk()
    async with running_state(disk, CONFIG) as state:
        assert await create(state, "a", 7) == E.INVALID_PARTITIONS
        assert await create(state, "a", 6) == 0
        assert await create(state, "b", 5, dry=True) == E.POLICY_VIOLATION
        assert await create(state, "b", 5) == E.POLICY_VIOLATION
        assert await create(state, "b", 3) == 0
        assert await grow(state, "b", 7) == E.INVALID_PARTITIONS
        assert await grow(state, "b", 5) == E.POLICY_VIOLATION
        assert await grow(state, "b", 4) == 0
        await state.topics.create(2, "another-orgs", 5)
    async with running_state(disk.copy(), CONFIG) as state:
        op = DescribeTopics(["auto"], auto_create=True)
        found = (await topics.describe(state, context(), op)).topics[0]
        assert found.error_code == E.POLICY_VIOLATION
        topic = state.registry.by_name(ORG, "a")
        assert topic is not None
        await state.topics.delete(topic)
        assert await create(state, "c", 6) == 0


async def test_of_creations_at_once_no_more_succeed_than_fit() -> None:
    async with running_state(MemoryDisk(), CONFIG) as state:
        codes = await asyncio.gather(*(create(state, f"t{n}", 4) for n in range(5)))
        assert sorted(codes) == [0, 0] + [E.POLICY_VIOLATION] * 3


async def test_names_come_in_order_and_each_change_is_another_version() -> None:
    async with running_state(MemoryDisk()) as state:
        versions = {state.registry.org(ORG).version}
        for name in ("b", "d", "a"):
            await state.topics.create(ORG, name, 2)
            versions.add(state.registry.org(ORG).version)
        org = state.registry.org(ORG)
        assert org.after("", 2) == (["a", "b"], True)
        await state.topics.create(ORG, "c", 1)
        assert org.after("b", 2) == (["c", "d"], False)
        assert org.after("bb", 1) == (["c"], True)
        assert org.partitions == 7
        topic = state.registry.by_name(ORG, "d")
        assert topic is not None
        versions.add(org.version)
        await grow(state, "d", 5)
        versions.add(org.version)
        assert org.partitions == 10
        await state.topics.delete(topic)
        versions.add(org.version)
        assert org.after("b", 2) == (["c"], False)
        assert org.partitions == 5
        assert len(versions) == 7
        assert OrgTopics(b"").after("", 1) == ([], False)


async def described(state: BrokerState, name: str) -> int:
    """What Metadata that may create the topic gets."""
    op = DescribeTopics([name], auto_create=True)
    return (await topics.describe(state, context(), op)).topics[0].error_code


async def test_names_that_differ_only_in_dots_and_underscores_collide() -> None:
    disk = MemoryDisk()
    async with running_state(disk) as state:
        assert await create(state, "t.x_y", 1) == 0
        for name in ("t_x.y", "t.x.y", "t_x_y"):
            assert await create(state, name, 1, dry=True) == E.INVALID_TOPIC_EXCEPTION
            assert await create(state, name, 1) == E.INVALID_TOPIC_EXCEPTION
            assert await described(state, name) == E.INVALID_TOPIC_EXCEPTION
        assert await create(state, "t.x_y", 1) == E.TOPIC_ALREADY_EXISTS
        assert await described(state, "t.x_y") == 0
        assert [await create(state, name, 1) for name in ("txy", "t-x-y", "T.x_y")] == [0] * 3
        await state.topics.create(2, "t_x.y", 1)
        answer = await topics.create(state, context(), CreateTopic("t_x.y", 1))
        assert answer.error_message == "the name collides with topic 't.x_y'"
    async with running_state(disk.copy()) as state:
        assert await create(state, "t_x.y", 1) == E.INVALID_TOPIC_EXCEPTION
        topic = state.registry.by_name(ORG, "t.x_y")
        assert topic is not None
        await state.topics.delete(topic)
        assert await create(state, "t_x.y", 1) == 0
        assert await create(state, "t.x_y", 1) == E.INVALID_TOPIC_EXCEPTION


async def test_of_colliding_creations_at_once_one_succeeds() -> None:
    async with running_state(MemoryDisk()) as state:
        codes = await asyncio.gather(*(create(state, name, 1) for name in ("a.b", "a_b", "a.b")))
        assert codes == [0, E.INVALID_TOPIC_EXCEPTION, E.TOPIC_ALREADY_EXISTS]


async def test_colliding_topics_of_an_earlier_version_are_kept() -> None:
    disk = MemoryDisk()
    async with running_state(disk) as state:
        for name in ("a.b", "a_b"):
            planned = state.registry.plan_topic(ORG, name, 1, new_topic_identity())
            await state.topics.put_back(planned)
    async with running_state(disk.copy()) as state:
        assert [topic.name for topic in state.registry.topics(ORG)] == ["a.b", "a_b"]
        codes: list[int] = []
        for name in ("a.b", "a_b"):
            topic = state.registry.by_name(ORG, name)
            assert topic is not None
            assert await create(state, name, 1) == E.TOPIC_ALREADY_EXISTS
            await state.topics.delete(topic)
            codes.append(await create(state, "a.b", 1))
        assert codes == [E.INVALID_TOPIC_EXCEPTION, 0]
