"""Topics that are changed: more partitions, other configs; what of it is in effect, and lasts."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from quafka_broker.config.settings import BrokerConfig
from quafka_broker.ops import configs, fetch, partitions, produce, topics
from quafka_broker.state import BrokerState
from quafka_broker.topics import configs as topic_configs
from quafka_broker.topics.configs import ConfigError
from quafka_broker.topics.events import topic_created, topic_deleted
from quafka_broker.topics.identity import new_topic_identity
from quafka_broker.topics.registry import Registry
from quafka_broker.topics.topic import Topic
from quafka_mesh_ops.ops.admin import (
    AlterTopicConfigs,
    CreatePartitions,
    DescribeBroker,
    DescribeTopicConfigs,
)
from quafka_mesh_ops.ops.records import FetchOp, FetchOps, ProduceOp, ProduceOps
from quafka_mesh_ops.ops.topics import CreateTopic, DescribeTopics
from quafka_proto.config_kinds import ConfigOperation, ConfigSource
from quafka_proto.errors import ErrorCode
from quafka_proto.schema.configs import IncrementalAlterableConfig as Change
from quafka_proto.schema.topics import CreatableTopicConfig
from tests.unit.broker.memory_disk import MemoryDisk
from tests.unit.broker.tools import ORG, batch_of, checked, context, running_state

E = ErrorCode
SET, DELETE, APPEND, SUBTRACT = ConfigOperation


async def grow(state: BrokerState, name: str, count: int, *, dry: bool = False) -> int:
    answer = await partitions.create(state, context(), CreatePartitions(name, count, dry))
    assert bool(answer.error_message) == bool(answer.error_code)
    return answer.error_code


async def alter(
    state: BrokerState,
    *changes: Change,
    replace: bool = False,
    dry: bool = False,
) -> int:
    op = AlterTopicConfigs("t", list(changes), replace, dry)
    answer = await configs.alter(state, context(), op)
    assert bool(answer.error_message) == bool(answer.error_code)
    return answer.error_code


async def put(state: BrokerState, partition: int, value: bytes, timestamp: int = 1_000) -> int:
    ops = ProduceOps([ProduceOp("t", partition, batch_of(value, timestamp=timestamp))])
    return (await produce.handle(state, context(), ops)).partitions[0].error_code


def topic_of(state: BrokerState, name: str = "t") -> Topic:
    topic = state.registry.by_name(ORG, name)
    assert topic is not None
    return topic


# --- partitions -----------------------------------------------------------------------------


async def test_a_topic_grows_and_stays_so() -> None:
    disk = MemoryDisk()
    async with running_state(disk) as state:
        before, _ = await state.topics.create(ORG, "t", 2, {"retention.ms": "7"})
        assert await put(state, 2, b"too early") == E.UNKNOWN_TOPIC_OR_PARTITION
        assert await grow(state, "t", 4, dry=True) == 0
        assert topic_of(state) == before
        assert await grow(state, "t", 4) == 0
        assert [await put(state, partition, b"%d" % partition) for partition in range(4)] == [0] * 4
        assert await put(state, 4, b"") == E.UNKNOWN_TOPIC_OR_PARTITION
    async with running_state(disk.copy()) as state:
        after = topic_of(state)
        assert (after.partitions, after.configs) == (4, {"retention.ms": "7"})
        assert (after.uuid, after.ulid, after.slug) == (before.uuid, before.ulid, before.slug)
        shown = await topics.describe(state, context(), DescribeTopics(["t"]))
        assert shown.topics[0].partitions == 4
        ops = FetchOps([FetchOp("t", p, 0, 1 << 20) for p in range(4)])
        answers = (await fetch.handle(state, context(), ops)).partitions
        assert [answer.high_watermark for answer in answers] == [1] * 4


async def test_a_topic_does_not_shrink() -> None:
    async with running_state(MemoryDisk()) as state:
        await state.topics.create(ORG, "t", 3)
        for count in (-1, 0, 2, 3, 20_001):
            assert await grow(state, "t", count, dry=True) == E.INVALID_PARTITIONS
            assert await grow(state, "t", count) == E.INVALID_PARTITIONS
        assert await grow(state, "u", 5) == E.UNKNOWN_TOPIC_OR_PARTITION
        assert topic_of(state).partitions == 3


async def test_of_two_that_let_it_grow_to_the_same_one_does() -> None:
    async with running_state(MemoryDisk()) as state:
        await state.topics.create(ORG, "t", 1)
        codes = await asyncio.gather(*[grow(state, "t", 5) for _ in range(4)])
        assert sorted(codes) == [0] + [E.INVALID_PARTITIONS] * 3


async def test_a_topic_that_grew_while_it_was_to_be_deleted_goes_whole() -> None:
    disk = MemoryDisk()
    async with running_state(disk) as state:
        old, _ = await state.topics.create(ORG, "t", 1)
        growing = asyncio.create_task(grow(state, "t", 2))
        await asyncio.sleep(0)
        deleting = asyncio.create_task(state.topics.delete(old))
        assert (await growing, await deleting) == (0, True)
        assert old.partition_id(1) not in state.log.partitions.ids()
        await state.topics.create(ORG, "t", 1)
        assert topic_of(state).partitions == 1
    async with running_state(disk.copy()) as state:
        assert topic_of(state).partitions == 1


async def test_a_full_disk_changes_no_topic() -> None:
    disk = MemoryDisk()
    async with running_state(disk) as state:
        await state.topics.create(ORG, "t", 1)
        disk.room = 0
        assert await grow(state, "t", 2) == E.KAFKA_STORAGE_ERROR
        assert await alter(state, Change("retention.ms", SET, "1")) == E.KAFKA_STORAGE_ERROR
        disk.room = None
        assert (topic_of(state).partitions, topic_of(state).configs) == (1, {})


async def test_many_changes_do_not_make_the_next_start_long() -> None:
    disk = MemoryDisk()
    async with running_state(disk) as state:
        state.journal.events_kept = 20
        await state.topics.create(ORG, "t", 1)
        for n in range(100):
            assert await alter(state, Change("retention.ms", SET, str(n))) == 0
            assert await grow(state, "t", 2 + n) == 0
        left = await configs.describe_broker(state, context(), DescribeBroker())
        assert left.registry_end - left.registry_start < 30
        assert left.registry_end > 200
    async with running_state(disk.copy()) as state:
        assert (topic_of(state).partitions, topic_of(state).configs) == (
            101,
            {"retention.ms": "99"},
        )


# --- configs --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ([("retention.ms", SET, " 9 ")], {"retention.ms": "9", "preallocate": "true"}),
        ([("preallocate", DELETE, None)], {"retention.ms": "5"}),
        ([("segment.ms", DELETE, None)], {"retention.ms": "5", "preallocate": "true"}),
        ([("a config of yore", DELETE, None)], {"retention.ms": "5", "preallocate": "true"}),
        (
            [("cleanup.policy", APPEND, "delete")],
            {"retention.ms": "5", "preallocate": "true", "cleanup.policy": "delete"},
        ),
        (
            [("leader.replication.throttled.replicas", SUBTRACT, "0:0,1:0")],
            {
                "retention.ms": "5",
                "preallocate": "true",
                "leader.replication.throttled.replicas": "",
            },
        ),
        (
            [("follower.replication.throttled.replicas", SET, "0:0,1:0")],
            {
                "retention.ms": "5",
                "preallocate": "true",
                "follower.replication.throttled.replicas": "0:0,1:0",
            },
        ),
        (
            [("leader.replication.throttled.replicas", SET, "*")],
            {
                "retention.ms": "5",
                "preallocate": "true",
                "leader.replication.throttled.replicas": "*",
            },
        ),
        ([("quafka.slug", SET, "s")], {"retention.ms": "5", "preallocate": "true"}),
        (
            [("cleanup.policy", SUBTRACT, "delete")],
            {"retention.ms": "5", "preallocate": "true", "cleanup.policy": ""},
        ),
    ],
)
def test_changes(
    changes: list[tuple[str, ConfigOperation, str | None]], expected: dict[str, str]
) -> None:
    own = {"retention.ms": "5", "preallocate": "true"}
    made = [Change(*change) for change in changes]
    assert topic_configs.changed(BrokerConfig(), own, {"quafka.slug": "s"}, made) == expected


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (Change("retention.ms", APPEND, "5"), "retention.ms: it is not a list"),
        (
            Change("retention.ms", SUBTRACT, "5"),
            "retention.ms: it is not a list",
        ),
        (Change("cleanup.policy", APPEND, "keep"), "'delete,keep'"),
        (
            Change("leader.replication.throttled.replicas", SET, "0:"),
            "partition:broker",
        ),
        (
            Change("leader.replication.throttled.replicas", SET, "0:1,"),
            "partition:broker",
        ),
        (Change("no.such.config", SET, "1"), "no.such.config"),
        (Change("no.such.config", APPEND, "1"), "no.such.config"),
        (Change("retention.ms", SET, None), "retention.ms cannot be None"),
        (Change("quafka.id", SET, "top_another"), "quafka.id cannot be set"),
        (Change("quafka.id", APPEND, "x"), "quafka.id cannot be set"),
    ],
)
def test_changes_that_cannot_be(change: Change, why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        topic_configs.changed(BrokerConfig(), {}, {"quafka.id": "top_this"}, [change])


async def test_configs_are_changed_all_or_none_and_stay_so() -> None:
    disk = MemoryDisk()
    async with running_state(disk) as state:
        await state.topics.create(ORG, "t", 1, {"retention.ms": "5"})
        good, bad = (
            Change("segment.ms", SET, "8"),
            Change("flush.ms", SET, "?"),
        )
        assert await alter(state, good, bad) == E.INVALID_CONFIG
        assert await alter(state, good, dry=True) == 0
        assert topic_of(state).configs == {"retention.ms": "5"}
        assert await alter(state, good) == 0
        assert topic_of(state).configs == {"retention.ms": "5", "segment.ms": "8"}
        assert await alter(state, Change("flush.ms", SET, "3"), replace=True) == 0
        assert topic_of(state).configs == {"flush.ms": "3"}
    async with running_state(disk.copy()) as state:
        assert topic_of(state).configs == {"flush.ms": "3"}
        await state.topics.delete(topic_of(state))
        assert await alter(state, good) == E.UNKNOWN_TOPIC_OR_PARTITION
        await state.topics.create(ORG, "t", 1)
        assert topic_of(state).configs == {}


async def test_a_change_that_changes_nothing_is_not_recorded() -> None:
    async with running_state(MemoryDisk()) as state:
        await state.topics.create(ORG, "t", 1, {"retention.ms": "5"})
        before = state.log.stats.bytes
        assert await alter(state, Change("retention.ms", SET, "5")) == 0
        assert state.log.stats.bytes == before


async def test_a_new_limit_is_in_effect_at_once() -> None:
    async with running_state(MemoryDisk()) as state:
        await state.topics.create(ORG, "t", 1)
        assert await put(state, 0, b"x" * 100) == 0
        assert await alter(state, Change("max.message.bytes", SET, "80")) == 0
        assert await put(state, 0, b"x" * 100) == E.MESSAGE_TOO_LARGE
        assert await alter(state, Change("max.message.bytes", DELETE)) == 0
        assert await put(state, 0, b"x" * 100) == 0


async def test_whoever_knows_an_older_topic_does_not_bring_its_limit_back() -> None:
    async with running_state(MemoryDisk()) as state:
        old, _ = await state.topics.create(ORG, "t", 1, {"max.message.bytes": "80"})
        assert await alter(state, Change("max.message.bytes", DELETE)) == 0
        assert state.configs.policy(old).max_message_bytes == 80
        assert await put(state, 0, b"x" * 100) == 0


async def test_a_shorter_retention_is_in_effect_at_once() -> None:
    config = BrokerConfig(data=Path("unused"), log_retention_check_interval_ms=86_400_000)
    async with running_state(MemoryDisk(), config) as state:
        await state.topics.create(ORG, "t", 1, {"retention.ms": "-1"})
        assert await put(state, 0, b"old") == 0
        sweeping = asyncio.create_task(state.retention().run())
        assert await alter(state, Change("retention.ms", SET, "1000")) == 0
        partition = state.log.partitions.get(topic_of(state).partition_id(0))
        async with asyncio.timeout(10):
            while not partition.log_start:
                await asyncio.sleep(0.01)
        sweeping.cancel()


async def test_a_longer_retention_keeps_what_a_sweep_was_about_to_delete() -> None:
    async with running_state(MemoryDisk()) as state:
        short, _ = await state.topics.create(ORG, "t", 1, {"retention.ms": "1000"})
        assert await put(state, 0, b"old") == 0
        assert await alter(state, Change("retention.ms", SET, "-1")) == 0
        await state.topics.delete_records({short: {0: 1}}, if_unchanged=True)
        assert state.log.partitions.get(short.partition_id(0)).log_start == 0
        await state.topics.delete_records({topic_of(state): {0: 1}}, if_unchanged=True)
        assert state.log.partitions.get(short.partition_id(0)).log_start == 1


# --- what a topic is ------------------------------------------------------------------------


async def test_what_a_topic_is_is_among_its_configs() -> None:
    config = BrokerConfig(data=Path("unused"), cluster_env="prod", cluster_name="eu-1")
    async with running_state(MemoryDisk(), config) as state:
        topic, _ = await state.topics.create(ORG, "Orders.v2", 1, {"retention.ms": "5"})
        op = DescribeTopicConfigs(["Orders.v2", "no", "a b"])
        answer = await configs.describe(state, context(), op)
        found, missing, illegal = answer.topics
        assert {v.name: v.value for v in found.own or []} == {"retention.ms": "5"}
        assert {v.name: v.value for v in found.fixed or []} == {
            "quafka.id": topic.ulid,
            "quafka.slug": "orders-v2",
            "quafka.rrl": "1/prod/eu-1/topics/orders-v2",
        }
        assert missing.error_code == E.UNKNOWN_TOPIC_OR_PARTITION
        assert illegal.error_code == E.INVALID_TOPIC_EXCEPTION
        fixed = [c for c in answer.defaults if c.read_only]
        assert {c.name for c in fixed} == {v.name for v in found.fixed or []}
        assert {c.source for c in fixed} == {ConfigSource.DEFAULT}


async def test_without_a_name_the_cluster_is_its_id() -> None:
    async with running_state(MemoryDisk()) as state:
        topic, _ = await state.topics.create(ORG, "t", 1)
        assert state.configs.rrl(topic) == f"1/default/{state.registry.cluster_id}/topics/t"


async def test_no_two_topics_have_one_rrl() -> None:
    disk = MemoryDisk()
    async with running_state(disk) as state:
        names = ["a.b", "a-b", "A_B", "a-b-2"]
        made = [(await state.topics.create(ORG, name, 1))[0] for name in names]
        another, _ = await state.topics.create(2, "a.b", 1)
        slugs = [topic.slug for topic in made]
        assert slugs == ["a-b", "a-b-2", "a-b-3", "a-b-2-2"]
        assert another.slug == "a-b"
        await state.topics.delete(made[1])
        again, _ = await state.topics.create(ORG, "a__b", 1)
        assert again.slug == "a-b-2"
    async with running_state(disk.copy()) as state:
        kept = {topic.name: topic.slug for topic in state.registry.topics(ORG)}
        assert kept == {"a.b": "a-b", "A_B": "a-b-3", "a-b-2": "a-b-2-2", "a__b": "a-b-2"}


def test_logs_of_before_that_rule_are_read_by_it() -> None:
    registry = Registry()
    first, second = (
        {
            **topic_created(Registry().plan_topic(ORG, name, 1, new_topic_identity())),
            "slug": "a-b",
        }
        for name in ("a.b", "a-b")
    )
    registry.apply(first)
    registry.apply(second)
    assert [topic.slug for topic in registry.topics(ORG)] == ["a-b-2", "a-b"]
    one = registry.by_name(ORG, "a.b")
    assert one is not None
    registry.apply(topic_deleted(one))
    fresh = Registry()
    for event in registry.restate():
        fresh.apply(event)
    assert [topic.slug for topic in fresh.topics(ORG)] == ["a-b-2"], "as it was called before"


# --- synonyms -------------------------------------------------------------------------------


def test_synonyms_say_where_values_come_from() -> None:
    def synonyms(name: str, broker: BrokerConfig) -> list[tuple[str, str | None, int]]:
        (found,) = [c for c in topic_configs.describe(broker) if c.name == name]
        return [(s.name, s.value, s.source) for s in found.synonyms]

    none, both = BrokerConfig(), BrokerConfig(log_retention_ms=7, log_retention_hours=2)
    assert synonyms("retention.ms", none) == [("log.retention.hours", "-1", 5)]
    assert synonyms("retention.ms", both) == [
        ("log.retention.ms", "7", 4),
        ("log.retention.hours", "2", 4),
        ("log.retention.hours", "-1", 5),
    ]
    assert synonyms("segment.ms", none) == [("log.roll.ms", "604800000", 5)]
    assert synonyms("cleanup.policy", none) == [("log.cleanup.policy", "delete", 5)]


async def test_a_config_that_is_given_twice_is_refused() -> None:
    async with running_state(MemoryDisk()) as state:
        entries = [CreatableTopicConfig("retention.ms", v) for v in ("1", "2")]
        answer = await topics.create(state, context(), CreateTopic("t", 1, configs=entries))
        assert answer.error_code == E.INVALID_CONFIG
        assert "retention.ms" in answer.error_message


async def test_checked_batches_of_a_new_partition_are_kept_over_a_checkpoint() -> None:
    disk = MemoryDisk()
    async with running_state(disk, checkpoint_bytes=1_000) as state:
        await state.topics.create(ORG, "t", 1)
        assert await grow(state, "t", 3) == 0
        for _ in range(20):
            partition = state.log.partitions.get(topic_of(state).partition_id(2))
            await state.log.queue.append(partition, checked(b"x" * 200))
    async with running_state(disk.copy()) as state:
        assert state.log.partitions.get(topic_of(state).partition_id(2)).high_watermark == 20
