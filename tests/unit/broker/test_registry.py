"""The topic registry, its ops, and what of it survives a restart or a caller that goes away."""

from __future__ import annotations

import asyncio
import re
import uuid
from dataclasses import replace
from pathlib import Path

import pytest

from quafka_broker.config.settings import BrokerConfig
from quafka_broker.journals.internal_topics import REGISTRY
from quafka_broker.ops import producer_ids, topics
from quafka_broker.partitions.errors import StorageError
from quafka_broker.state import BrokerState
from quafka_broker.topics.events import topic_created, topic_deleted
from quafka_broker.topics.identity import new_cluster_id, new_topic_identity, ulid
from quafka_broker.topics.registry import Registry
from quafka_broker.topics.replay import BadRegistryError
from quafka_broker.topics.topic import Topic, legal_name
from quafka_mesh_ops.ops.records import InitProducerId
from quafka_mesh_ops.ops.topics import CreateTopic, DeleteTopic, DescribeTopics
from quafka_proto.errors import ErrorCode
from tests.unit.broker.memory_disk import MemoryDisk
from tests.unit.broker.tools import ORG, checked, context, running_state, values_of


@pytest.mark.parametrize("name", ["a", "A.b_c-9", "x" * 249, "..."])
def test_legal_names(name: str) -> None:
    assert legal_name(name)


@pytest.mark.parametrize("name", ["", ".", "..", "x" * 250, "a b", "é", "a/b", "a\n", "١"])
def test_illegal_names(name: str) -> None:
    assert not legal_name(name)


def test_a_ulid_sorts_by_time_and_reads_back() -> None:
    assert ulid(0, bytes) == "0" * 26
    assert ulid(2**48 - 1, lambda count: b"\xff" * count) == "7" + "Z" * 25
    assert ulid(1) < ulid(2) < ulid(1_700_000_000_000)


def test_a_planned_topic() -> None:
    topic = Registry().plan_topic(ORG, "Orders_EU.v2", 3, new_topic_identity())
    assert uuid.UUID(bytes=topic.uuid).version == 4
    assert topic.slug == "orders-eu-v2"
    assert re.fullmatch(r"top_[0-9A-HJKMNP-TV-Z]{26}", topic.ulid)
    assert Registry().plan_topic(ORG, "_", 1, new_topic_identity()).slug == "topic"


def test_slugs_that_collide_get_the_lowest_free_number() -> None:
    registry = Registry()

    def add(name: str) -> str:
        topic = registry.plan_topic(ORG, name, 1, new_topic_identity())
        registry.apply(topic_created(topic))
        return topic.slug

    assert [add(name) for name in ("a.b", "a-b", "a_b", "a-b-4", "a+b")] == [
        "a-b", "a-b-2", "a-b-3", "a-b-4", "a-b-5",
    ]  # fmt: skip
    for name, slug in (("a-b", "a-b-2"), ("a.b", "a-b"), ("a-b-4", "a-b-4")):
        topic = registry.by_name(ORG, name)
        assert topic is not None
        assert topic.slug == slug
        registry.apply(topic_deleted(topic))
        assert add(f"{name}.") == slug
    assert add("a*b") == "a-b-6"


def test_many_slugs_that_collide_take_linear_time() -> None:
    registry = Registry()
    looked_up = 0

    class Counting(set[tuple[int, str]]):
        def __contains__(self, slug: object) -> bool:
            nonlocal looked_up
            looked_up += 1
            return super().__contains__(slug)

    registry._slugs._used = Counting()
    for n in range(1_000):
        name = f"{n:010b}".replace("0", "_").replace("1", ".")  # every one's slug is "topic"
        registry.apply(topic_created(registry.plan_topic(ORG, name, 1, new_topic_identity())))
    assert looked_up < 10 * 1_000


def test_the_cluster_id_looks_like_kafkas() -> None:
    assert re.fullmatch(r"[A-Za-z0-9_-]{22}", new_cluster_id())


async def create(state: BrokerState, name: str, partitions: int = -1) -> ErrorCode:
    answer = await topics.create(state, context(), CreateTopic(name, partitions))
    return ErrorCode(answer.error_code)


async def test_create_and_its_errors() -> None:
    config = BrokerConfig(data=Path("unused"), num_partitions=4)
    async with running_state(MemoryDisk(), config) as state:
        tried = await topics.create(state, context(), CreateTopic("t", 2, validate_only=True))
        assert (tried.error_code, tried.partitions) == (0, 2)
        assert state.registry.by_name(ORG, "t") is None
        made = await topics.create(state, context(), CreateTopic("t"))
        assert (made.error_code, made.partitions, len(made.topic_id)) == (0, 4, 16)
        assert await create(state, "t") == ErrorCode.TOPIC_ALREADY_EXISTS
        assert await create(state, "a b") == ErrorCode.INVALID_TOPIC_EXCEPTION
        assert await create(state, "u", 0) == ErrorCode.INVALID_PARTITIONS
        assert await create(state, "u", 20_001) == ErrorCode.INVALID_PARTITIONS


async def test_describe_by_name_and_id_creates_only_what_it_may() -> None:
    async with running_state(MemoryDisk()) as state:
        known, _ = await state.topics.create(ORG, "known", 2)
        await state.topics.create(2, "another-orgs", 1)
        op = DescribeTopics(["new", "known", "a b"], [known.uuid, b"?" * 16])
        answer = await topics.describe(state, context(), op)
        assert answer.cluster_id == state.registry.cluster_id
        assert [(t.topic, t.partitions, t.error_code) for t in answer.topics] == [
            ("new", 0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
            ("known", 2, 0),
            ("a b", 0, ErrorCode.INVALID_TOPIC_EXCEPTION),
            ("known", 2, 0),
            ("", 0, ErrorCode.UNKNOWN_TOPIC_ID),
        ]
        made = await topics.describe(state, context(), DescribeTopics(["new"], auto_create=True))
        assert (made.topics[0].error_code, len(made.topics[0].topic_id)) == (0, 16)
        everything = await topics.describe(state, context(), DescribeTopics())
        assert [t.topic for t in everything.topics] == ["known", "new"]


async def test_one_op_creates_a_bounded_number_of_partitions() -> None:
    config = BrokerConfig(data=Path("unused"), num_partitions=3)
    async with running_state(MemoryDisk(), config) as state:
        op = DescribeTopics(["a", "b", "c"], auto_create=True, create_at_most=7)
        answer = await topics.describe(state, context(), op)
        violation = ErrorCode.POLICY_VIOLATION
        assert [(t.partitions, t.error_code) for t in answer.topics] == [
            (3, 0), (3, 0), (0, violation),
        ]  # fmt: skip
        assert answer.created == 6
        again = await topics.describe(state, context(), replace(op, create_at_most=2))
        assert [t.error_code for t in again.topics] == [0, 0, violation]
        assert again.created == 0


async def test_auto_creation_can_be_off() -> None:
    config = BrokerConfig(data=Path("unused"), auto_create_topics_enable=False)
    async with running_state(MemoryDisk(), config) as state:
        answer = await topics.describe(state, context(), DescribeTopics(["t"], auto_create=True))
        assert answer.topics[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def test_of_many_creations_one_wins() -> None:
    async with running_state(MemoryDisk()) as state:
        codes = await asyncio.gather(*[create(state, "t") for _ in range(10)])
        assert sorted(codes) == [ErrorCode.NONE] + [ErrorCode.TOPIC_ALREADY_EXISTS] * 9


async def test_a_caller_that_goes_away_leaves_registry_and_log_agreed() -> None:
    disk = MemoryDisk()
    async with running_state(disk) as state:
        caller = asyncio.create_task(state.topics.create(ORG, "t", 1))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        caller.cancel()
        same, is_new = await state.topics.create(ORG, "t", 1)
        assert not is_new
        caller2 = asyncio.create_task(state.topics.delete(same))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        caller2.cancel()
        assert not await state.topics.delete(same), "deleted all the same"
    async with running_state(disk.copy()) as state:
        assert state.registry.every_topic() == []


async def test_a_topic_created_again_has_none_of_the_old_records() -> None:
    disk = MemoryDisk()
    async with running_state(disk) as state:
        old, _ = await state.topics.create(ORG, "t", 1)
        await state.log.queue.append(state.log.partitions.get(old.partition_id(0)), checked(b"old"))
        deleted = await topics.delete(state, context(), DeleteTopic("", old.uuid))
        assert (deleted.topic, deleted.error_code) == ("t", 0)
        gone = await topics.delete(state, context(), DeleteTopic("t"))
        assert gone.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        gone = await topics.delete(state, context(), DeleteTopic("", old.uuid))
        assert gone.error_code == ErrorCode.UNKNOWN_TOPIC_ID
        new, _ = await state.topics.create(ORG, "t", 1)
        assert (new.generation, new.uuid != old.uuid) == (1, True)
        assert state.log.partitions.get(new.partition_id(0)).high_watermark == 0
        await state.log.queue.append(state.log.partitions.get(new.partition_id(0)), checked(b"new"))
    async with running_state(disk.copy()) as state:
        assert state.registry.by_name(ORG, "t") == new
        assert await values_of(state.log, state.log.partitions.get(new.partition_id(0))) == [b"new"]
        assert state.log.partitions.get(old.partition_id(0)).high_watermark == 0


async def test_the_registry_survives_a_restart() -> None:
    disk = MemoryDisk()
    async with running_state(disk) as state:
        made = [(await state.topics.create(ORG, f"t{n}", n))[0] for n in range(1, 4)]
        cluster = state.registry.cluster_id
    async with running_state(disk.copy()) as state:
        assert state.registry.topics(ORG) == made
        assert state.registry.cluster_id == cluster


async def test_a_full_disk_changes_nothing() -> None:
    disk = MemoryDisk()
    async with running_state(disk) as state:
        topic, _ = await state.topics.create(ORG, "t", 1)
        disk.room = 0
        assert await create(state, "u") == ErrorCode.KAFKA_STORAGE_ERROR
        with pytest.raises(StorageError):
            await state.topics.delete(topic)
        answer = await producer_ids.handle(state, context(), InitProducerId())
        assert answer.error_code == ErrorCode.KAFKA_STORAGE_ERROR
        disk.room = None
        assert state.registry.topics(ORG) == [topic]
        assert await create(state, "u") == ErrorCode.NONE


async def test_an_event_that_is_not_known_stops_the_start() -> None:
    disk = MemoryDisk()
    async with running_state(disk) as state:
        await state.log.queue.append(
            state.log.partitions.get(REGISTRY), checked(b'{"event":"from the future"}')
        )
    with pytest.raises(BadRegistryError, match=r"event 1 .*from the future"):
        async with running_state(disk.copy()):
            pass


async def test_producer_ids_are_never_handed_out_twice() -> None:
    disk = MemoryDisk()
    seen: list[int] = []
    for _ in range(3):
        async with running_state(disk) as state:
            answers = await asyncio.gather(
                *[producer_ids.handle(state, context(), InitProducerId()) for _ in range(1_500)]
            )
            assert {a.producer_epoch for a in answers} == {0}
            seen += [a.producer_id for a in answers]
        disk = disk.copy()
    assert len(set(seen)) == 4_500


async def test_the_next_epoch_of_an_id() -> None:
    async with running_state(MemoryDisk()) as state:
        first = await producer_ids.handle(state, context(), InitProducerId())

        async def bump(producer_id: int, epoch: int) -> tuple[int, int]:
            op = InitProducerId(producer_id, epoch)
            answer = await producer_ids.handle(state, context(), op)
            return answer.producer_id, answer.producer_epoch

        assert await bump(first.producer_id, 0) == (first.producer_id, 1)
        used_up = await bump(first.producer_id, 0x7FFE)
        assert used_up == (first.producer_id + 1, 0)
        not_ours = await bump(10**12, 0)
        assert not_ours == (first.producer_id + 2, 0)


def test_adopted_topics_are_served_but_not_restated() -> None:
    registry = Registry()
    registry.apply(topic_created(registry.plan_topic(1, "ours", 1, new_topic_identity())))
    gone = registry.plan_topic(1, "theirs", 1, new_topic_identity())
    registry.apply(topic_created(gone))
    registry.apply(topic_deleted(gone))
    before = list(registry.restate())
    theirs = Topic(1, "theirs", b"k" * 16, "top_", "ours", 1 << 31, 2, 0, {}, "kafka")
    adopted = registry.adopt(theirs)
    assert adopted.slug == "ours-2"
    assert registry.find(1, "theirs", b"") == registry.find(1, "", b"k" * 16) == adopted
    assert list(registry.org(1).after("", 9)[0]) == ["ours", "theirs"]
    assert registry.is_live(1, "theirs", 1 << 31)
    assert list(registry.restate()) == before
    grown = registry.adopt(replace(theirs, partitions=3))
    assert (grown.slug, registry.org(1).partitions) == ("ours-2", 4)
    for name, id_ in ("ours", b"x" * 16), ("other", b"k" * 16):
        with pytest.raises(ValueError, match="exists"):
            registry.adopt(replace(theirs, name=name, uuid=id_))
    for name in ("theirs", "ours", "never"):
        registry.release(1, name)
    assert [topic.name for topic in registry.every_topic()] == ["ours"]
