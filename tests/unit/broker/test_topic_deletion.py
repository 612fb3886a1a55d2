"""Topics that are deleted at the same time."""

from __future__ import annotations

import asyncio

import pytest

from quafka_broker.journals.internal_topics import REGISTRY
from quafka_broker.partitions.errors import StorageError
from quafka_broker.state import BrokerState
from quafka_broker.topics.topic import Topic
from tests.unit.broker.memory_disk import MemoryDisk
from tests.unit.broker.tools import ORG, running_state


async def made(state: BrokerState, count: int) -> list[Topic]:
    return [(await state.topics.create(ORG, f"t{n}", 2))[0] for n in range(count)]


async def test_deletions_that_come_together_share_appends() -> None:
    async with running_state(MemoryDisk()) as state:
        topics = await made(state, 450)
        before = state.log.stats.appends
        done = await asyncio.gather(*map(state.topics.delete, topics))
        assert done == [True] * 450
        assert state.registry.every_topic() == []
        assert state.log.stats.appends - before <= 4, "200 topics an append"
        assert [id_ for id_ in state.log.partitions.ids() if id_.org_id == ORG] == []


async def test_one_of_two_deletions_of_a_topic_finds_it() -> None:
    async with running_state(MemoryDisk()) as state:
        one, other = await made(state, 2)
        done = await asyncio.gather(*map(state.topics.delete, (one, one, other, one)))
        assert done == [True, False, True, False]
        assert not await state.topics.delete(one)


async def test_a_caller_that_is_cancelled_stops_no_deletion() -> None:
    async with running_state(MemoryDisk()) as state:
        one, other = await made(state, 2)
        calls = [asyncio.create_task(state.topics.delete(topic)) for topic in (one, other)]
        await asyncio.sleep(0)
        calls[0].cancel()
        assert await calls[1]
        assert state.registry.every_topic() == []


async def test_where_the_log_fails_all_topics_stay() -> None:
    async with running_state(MemoryDisk()) as state:
        topics = await made(state, 3)
        await state.log.close()
        done = await asyncio.gather(*map(state.topics.delete, topics), return_exceptions=True)
        assert [type(error) for error in done] == [StorageError] * 3
        assert state.registry.topics(ORG) == topics


@pytest.mark.parametrize("count", [1, 5])
async def test_a_start_finds_what_was_deleted_together(count: int) -> None:
    disk = MemoryDisk()
    async with running_state(disk) as state:
        topics = await made(state, 6)
        await asyncio.gather(*map(state.topics.delete, topics[:count]))
    async with running_state(disk.copy()) as state:
        assert state.registry.topics(ORG) == topics[count:]
        assert not state.log.partitions.is_damaged(REGISTRY)


async def test_the_last_deleted_topics_are_kept_in_mind() -> None:
    async with running_state(MemoryDisk()) as state:
        topics = await made(state, 1_002)
        await asyncio.gather(*map(state.topics.delete, topics))
        told = [state.topics.tells_of_deletion(ORG, topic.name) for topic in topics]
        assert told == [False] * 2 + [True] * 1_000
        assert not any(state.topics.tells_of_deletion(ORG, topic.name) for topic in topics)
