"""The APIs of topics' administrators in every version that is advertised, over the wire."""

from __future__ import annotations

import time

import pytest

from quafka_broker.config.broker_configs import THROTTLES
from quafka_proto.config_kinds import ConfigOperation, ConfigSource, ConfigType, ResourceType
from quafka_proto.errors import ErrorCode
from quafka_proto.schema.configs import (
    AlterableConfig,
    AlterConfigsRequest,
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    AlterConfigsResponse,
    DescribeConfigsRequest,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    IncrementalAlterableConfig,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
    IncrementalAlterConfigsResponse,
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)
from quafka_proto.schema.partitions import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
)
from quafka_proto.schema.produce import ProduceResponse
from quafka_proto.schema.share_groups import (
    ShareGroupDescribeRequest,
    ShareGroupDescribeResponse,
    ShareGroupHeartbeatRequest,
    ShareGroupHeartbeatResponse,
)
from quafka_proto.schema.topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from tests.support.admin_calls import describe_configs, own_configs, resource, set_config
from tests.support.cluster import Cluster
from tests.support.kafka_calls import (
    VERSION,
    create_topic,
    metadata,
    produce,
    produce_request,
)
from tests.support.raw_client import RawClient

E = ErrorCode
TOPIC, BROKER, LOGGER = ResourceType.TOPIC, ResourceType.BROKER, ResourceType.BROKER_LOGGER
SET, DELETE, APPEND, SUBTRACT = ConfigOperation
CHANGEABLE = {
    *THROTTLES, "log.cleaner.backoff.ms", "log.cleaner.dedupe.buffer.size",
    "log.cleaner.delete.retention.ms", "log.cleaner.max.compaction.lag.ms",
    "log.cleaner.min.cleanable.ratio", "log.cleaner.min.compaction.lag.ms",
    "log.cleanup.policy", "log.message.timestamp.after.max.ms",
    "log.message.timestamp.before.max.ms", "log.message.timestamp.type", "log.retention.bytes",
    "log.retention.ms", "message.max.bytes",
}  # fmt: skip


def partitions_of(client: RawClient, topic: str) -> int:
    return len(metadata(client, topic, 1).topics[0].partitions)


# --- CreateTopics, DeleteTopics -------------------------------------------------------------


def by_hand(name: str, *brokers: list[int], first: int = 0, **numbers: int) -> CreatableTopic:
    assignments = [
        CreatableReplicaAssignment(partition_index=index, broker_ids=each)
        for index, each in enumerate(brokers, first)
    ]
    made = CreatableTopic(
        name=name, assignments=assignments, num_partitions=-1, replication_factor=-1
    )
    for field, number in numbers.items():
        setattr(made, field, number)
    return made


@pytest.mark.parametrize("version", range(8))
def test_create_topics(client: RawClient, version: int) -> None:
    def create(*topics: CreatableTopic, dry: bool = False) -> list[tuple[str, int]]:
        request = CreateTopicsRequest(topics=[*topics])
        if version >= 1:
            request.validate_only = dry
        answer = client.call(request, CreateTopicsResponse, version)
        for topic in answer.topics:
            assert version < 1 or bool(topic.error_message) == bool(topic.error_code)
        return [(topic.name, topic.error_code) for topic in answer.topics]

    def topic(name: str, partitions: int = 1) -> CreatableTopic:
        return CreatableTopic(name=name, num_partitions=partitions, replication_factor=1)

    a, b = f"create-{version}-a", f"create-{version}-b"

    c = f"create-{version}-c"
    bad = topic("bad")
    bad.configs = [CreatableTopicConfig(name="retention.ms", value="soon")]
    twice = topic("bad")
    twice.configs = [CreatableTopicConfig(name="retention.ms", value=v) for v in "12"]
    null = topic("bad")
    null.configs = [CreatableTopicConfig(name="retention.ms", value=None)]
    if version >= 1:
        assert create(topic(a), dry=True) == [(a, 0)]
    assert create(topic(a, 2), topic(b), topic(b)) == [(a, 0), (b, E.INVALID_REQUEST)]
    assert create(topic(a)) == [(a, E.TOPIC_ALREADY_EXISTS)]
    elsewhere = by_hand("bad", [0], [1])
    for wrong in (
        elsewhere,
        by_hand("bad", [0, 0]),
        by_hand("bad", []),
        by_hand("bad", [0], first=1),
    ):
        assert create(wrong) == [("bad", E.INVALID_REPLICA_ASSIGNMENT)]
    for numbers in ({"num_partitions": 1}, {"replication_factor": 1}):
        assert create(by_hand("bad", [0], **numbers)) == [("bad", E.INVALID_REQUEST)]
    assert create(by_hand(c, [0], [0], [0])) == [(c, 0)]
    assert partitions_of(client, c) == 3
    for wrong in (bad, twice, null):
        assert create(wrong) == [("bad", E.INVALID_CONFIG)]
    assert create(topic("bad", 0)) == [("bad", E.INVALID_PARTITIONS)]
    too_many = [topic("bad", 19_999), topic("worse", 2)]
    violation = E.POLICY_VIOLATION
    assert create(*too_many) == [("bad", violation), ("worse", violation)]
    assert partitions_of(client, a) == 2


@pytest.mark.parametrize("version", range(7))
def test_delete_topics(client: RawClient, version: int) -> None:
    def delete(*topics: str | bytes | tuple[str, bytes]) -> list[int]:
        request = DeleteTopicsRequest(timeout_ms=1_000)
        if version < 6:
            request.topic_names = [t for t in topics if isinstance(t, str)]
        else:
            request.topics = [state(t) for t in topics]
        answer = client.call(request, DeleteTopicsResponse, version)
        return [each.error_code for each in answer.responses]

    def state(topic: str | bytes | tuple[str, bytes]) -> DeleteTopicState:
        if isinstance(topic, tuple):
            return DeleteTopicState(name=topic[0], topic_id=topic[1])
        if isinstance(topic, str):
            return DeleteTopicState(name=topic, topic_id=bytes(16))
        return DeleteTopicState(name=None, topic_id=topic)

    first, second = (f"delete-{version}-{n}" for n in "12")
    create_topic(client, first)
    create_topic(client, second)
    topic_id = metadata(client, second).topics[0].topic_id
    assert delete(first, "no-such-topic") == [0, E.UNKNOWN_TOPIC_OR_PARTITION]
    assert delete(first) == [E.UNKNOWN_TOPIC_OR_PARTITION]
    assert delete(second, second) == [E.INVALID_REQUEST]
    assert delete("") == [E.INVALID_REQUEST]
    if version < 6:
        assert delete(second) == [0]
        return
    assert delete((second, topic_id), bytes(16)) == [E.INVALID_REQUEST] * 2
    assert delete(b"?" * 16, topic_id) == [E.UNKNOWN_TOPIC_ID, 0]


# --- CreatePartitions, DeleteRecords --------------------------------------------------------


@pytest.mark.parametrize("version", range(4))
def test_create_partitions(client: RawClient, version: int) -> None:
    def grow(*topics: CreatePartitionsTopic, dry: bool = False) -> list[tuple[str, int]]:
        request = CreatePartitionsRequest(topics=[*topics], timeout_ms=1_000, validate_only=dry)
        answer = client.call(request, CreatePartitionsResponse, version)
        for each in answer.results:
            assert bool(each.error_message) == bool(each.error_code)
        return [(each.name, each.error_code) for each in answer.results]

    def topic(name: str, count: int, *brokers: int) -> CreatePartitionsTopic:
        by_hand = [CreatePartitionsAssignment(broker_ids=[each]) for each in brokers]
        return CreatePartitionsTopic(name=name, count=count, assignments=by_hand or None)

    a, b = f"grow-{version}-a", f"grow-{version}-b"
    create_topic(client, a, 2)
    create_topic(client, b, 2)
    assert grow(topic(a, 5), dry=True) == [(a, 0)]
    assert partitions_of(client, a) == 2
    assert grow(topic(a, 5), topic("none", 5)) == [(a, 0), ("none", E.UNKNOWN_TOPIC_OR_PARTITION)]
    assert partitions_of(client, a) == 5
    for count in (-1, 1, 5):
        assert grow(topic(a, count)) == [(a, E.INVALID_PARTITIONS)]
        assert grow(topic(a, count), dry=True) == [(a, E.INVALID_PARTITIONS)]
    for wrong in (topic(b, 3, 1), topic(b, 3, 0, 0), topic(b, 4, 0)):
        assert grow(wrong) == [(b, E.INVALID_REPLICA_ASSIGNMENT)]
    assert grow(topic(b, 3), topic(b, 4)) == [(b, E.INVALID_REQUEST)] * 2
    assert partitions_of(client, b) == 2
    assert grow(topic(b, 4, 0, 0)) == [(b, 0)]
    assert partitions_of(client, b) == 4


@pytest.mark.parametrize("version", range(3))
def test_delete_records(client: RawClient, version: int) -> None:
    name = f"records-{version}"
    create_topic(client, name)
    produce(client, name, b"a", b"b", b"c")

    def delete(partition: int, offset: int) -> tuple[int, int]:
        part = DeleteRecordsPartition(partition_index=partition, offset=offset)
        topic = DeleteRecordsTopic(name=name, partitions=[part])
        request = DeleteRecordsRequest(topics=[topic], timeout_ms=1_000)
        (found,) = client.call(request, DeleteRecordsResponse, version).topics[0].partitions
        return found.low_watermark, found.error_code

    assert delete(0, 2) == (2, 0)
    assert delete(0, 1) == (2, 0)
    assert delete(0, 4) == (-1, E.OFFSET_OUT_OF_RANGE)
    assert delete(1, 0) == (-1, E.UNKNOWN_TOPIC_OR_PARTITION)
    assert delete(0, -1) == (3, 0)


# --- configs --------------------------------------------------------------------------------


def alter(
    client: RawClient,
    version: int,
    *resources: tuple[int, str, list[IncrementalAlterableConfig]],
    dry: bool = False,
) -> list[AlterConfigsResourceResponse]:
    request = IncrementalAlterConfigsRequest(
        resources=[
            IncrementalAlterConfigsResource(resource_type=kind, resource_name=name, configs=changes)
            for kind, name, changes in resources
        ],
        validate_only=dry,
    )
    return client.call(request, IncrementalAlterConfigsResponse, version).responses


@pytest.mark.parametrize("version", range(5))
def test_describe_a_topics_configs(client: RawClient, version: int) -> None:
    name = f"Described.{version}"
    create_topic(client, name)
    assert set_config(client, name, "retention.ms", "1234") == 0
    found, missing, illegal = describe_configs(
        client, version, resource(TOPIC, name), resource(TOPIC, "none"), resource(TOPIC, "a b")
    )
    assert (missing.error_code, missing.configs) == (E.UNKNOWN_TOPIC_OR_PARTITION, [])
    assert (illegal.error_code, bool(illegal.error_message)) == (E.INVALID_TOPIC_EXCEPTION, True)
    configs = {config.name: config for config in found.configs}
    own, default, fixed = (configs[n] for n in ("retention.ms", "segment.ms", "quafka.slug"))
    assert (own.value, default.value, fixed.value) == ("1234", "604800000", f"described-{version}")
    assert [c.read_only for c in (own, default, fixed)] == [False, False, True]
    assert not any(config.is_sensitive for config in found.configs)
    if version == 0:
        assert [c.is_default for c in (own, default, fixed)] == [False, True, True]
        return
    sources = [ConfigSource.DYNAMIC_TOPIC, ConfigSource.DEFAULT, ConfigSource.DEFAULT]
    assert [c.config_source for c in (own, default, fixed)] == sources
    assert [(s.name, s.value, s.source) for s in own.synonyms] == [
        ("retention.ms", "1234", ConfigSource.DYNAMIC_TOPIC),
        ("log.retention.hours", "-1", ConfigSource.DEFAULT),
    ]
    for config in found.configs:
        assert config.synonyms[0].source == config.config_source
    if version >= 3:
        assert all(config.documentation for config in found.configs)
        kinds = {c.name: c.config_type for c in found.configs}
        assert kinds["retention.ms"] == ConfigType.LONG
        assert kinds["cleanup.policy"] == ConfigType.LIST
        assert kinds["preallocate"] == ConfigType.BOOLEAN


def test_nothing_that_was_not_asked_for(client: RawClient) -> None:
    create_topic(client, "asked")
    request = DescribeConfigsRequest(resources=[resource(TOPIC, "asked", "retention.ms", "none")])
    (found,) = client.call(request, DescribeConfigsResponse, 4).results
    (config,) = found.configs
    assert (config.name, config.synonyms, config.documentation) == ("retention.ms", [], None)


@pytest.mark.parametrize("version", [0, 1, 4])
def test_describe_the_broker(client: RawClient, shared_cluster: Cluster, version: int) -> None:
    def values(found: DescribeConfigsResult) -> dict[str, DescribeConfigsResourceResult]:
        return {config.name: config for config in found.configs}

    one, everywhere, wrong, loggers, no_loggers, metrics, group, unknown = describe_configs(
        client,
        version,
        resource(BROKER, "0"),
        resource(BROKER, ""),
        resource(BROKER, "1"),
        resource(LOGGER, "0"),
        resource(LOGGER, ""),
        resource(ResourceType.CLIENT_METRICS, "m"),
        resource(ResourceType.GROUP, "g"),
        resource(77, "x"),
    )
    configs = values(one)
    assert configs["advertised.listeners"].value == f"PLAINTEXT://{shared_cluster.bootstrap}"
    assert configs["num.partitions"].value == "1"
    assert configs["fetch.cache.bytes"].value == str(128 << 20)
    assert configs["node.id"].value == "0"
    changeable = {config.name for config in one.configs if not config.read_only}
    assert changeable == CHANGEABLE
    if version >= 1:
        assert configs["data"].config_source == ConfigSource.STATIC_BROKER
        assert configs["num.partitions"].config_source == ConfigSource.DEFAULT
        for name in ("listeners", "advertised.listeners"):
            assert configs[name].config_source == ConfigSource.STATIC_BROKER
            assert [s.source for s in configs[name].synonyms] == [ConfigSource.STATIC_BROKER]
        assert configs["broker.id"].config_source == ConfigSource.DEFAULT
    assert (everywhere.error_code, everywhere.configs) == (0, [])
    assert values(loggers)["root"].value == "INFO"
    assert values(loggers)["quafka.gateway.connection"].value == "INFO"
    for refused in (wrong, no_loggers, unknown):
        assert (refused.error_code, refused.configs) == (E.INVALID_REQUEST, [])
        assert refused.error_message
    assert (metrics.error_code, metrics.configs) == (0, [])
    assert values(group)["share.isolation.level"].value == "read_uncommitted"


@pytest.mark.parametrize("version", range(3))
def test_alter_configs_replaces(client: RawClient, version: int) -> None:
    name = f"replaced-{version}"
    create_topic(client, name)
    assert set_config(client, name, "retention.ms", "1") == 0

    def replace(*resources: tuple[int, str, dict[str, str | None]], dry: bool = False) -> list[int]:
        request = AlterConfigsRequest(
            resources=[
                AlterConfigsResource(
                    resource_type=kind,
                    resource_name=of,
                    configs=[AlterableConfig(name=n, value=v) for n, v in configs.items()],
                )
                for kind, of, configs in resources
            ],
            validate_only=dry,
        )
        answer = client.call(request, AlterConfigsResponse, version)
        for each in answer.responses:
            assert bool(each.error_message) == bool(each.error_code)
        return [each.error_code for each in answer.responses]

    good: dict[str, str | None] = {"segment.ms": "7"}
    assert replace((TOPIC, name, good), dry=True) == [0]
    assert replace((TOPIC, name, {**good, "retention.ms": "x"})) == [E.INVALID_CONFIG]
    assert replace((TOPIC, name, {**good, "retention.ms": None})) == [E.INVALID_REQUEST]
    assert replace((TOPIC, name, good), (TOPIC, name, good)) == [E.INVALID_REQUEST] * 2
    assert own_configs(client, name) == {"retention.ms": "1"}
    assert replace(
        (TOPIC, name, good),
        (TOPIC, "none", good),
        (BROKER, "0", {"num.partitions": "3"}),
        (BROKER, "", {"num.partitions": "3"}),
        (LOGGER, "0", {"root": "DEBUG"}),
        (ResourceType.CLIENT_METRICS, "m", {"interval.ms": "1"}),
    ) == [
        0, E.UNKNOWN_TOPIC_OR_PARTITION, E.INVALID_REQUEST, E.INVALID_REQUEST, E.INVALID_CONFIG,
        E.INVALID_CONFIG,
    ]  # fmt: skip
    assert own_configs(client, name) == {"segment.ms": "7"}
    assert replace((TOPIC, name, {})) == [0]
    assert own_configs(client, name) == {}


@pytest.mark.parametrize("version", range(2))
def test_incremental_alter_configs(client: RawClient, version: int) -> None:
    name = f"altered-{version}"
    create_topic(client, name)

    def change(
        *changes: tuple[str, int, str | None], dry: bool = False, kind: int = TOPIC, of: str = name
    ) -> int:
        made = [
            IncrementalAlterableConfig(name=n, config_operation=operation, value=value)
            for n, operation, value in changes
        ]
        (done,) = alter(client, version, (kind, of, made), dry=dry)
        assert bool(done.error_message) == bool(done.error_code)
        return done.error_code

    assert change(("retention.ms", SET, "5"), dry=True) == 0
    assert own_configs(client, name) == {}
    assert change(("retention.ms", SET, "5"), ("cleanup.policy", APPEND, "delete")) == 0
    assert own_configs(client, name) == {"retention.ms": "5", "cleanup.policy": "delete"}
    assert change(("cleanup.policy", SUBTRACT, "compact")) == 0
    assert change(("cleanup.policy", APPEND, "keep")) == E.INVALID_CONFIG
    assert change(("retention.ms", APPEND, "6")) == E.INVALID_CONFIG
    assert change(("retention.ms", SET, "6"), ("retention.ms", SET, "7")) == E.INVALID_REQUEST
    assert change(("retention.ms", SET, None)) == E.INVALID_REQUEST
    assert change(("retention.ms", 9, "6")) == E.INVALID_REQUEST
    assert change(("quafka.id", SET, "top_mine")) == E.INVALID_CONFIG
    assert change(("log.level", SET, "debug"), kind=BROKER, of="0") == E.INVALID_REQUEST
    assert change(("log.level", DELETE, None), kind=BROKER, of="0") == 0, "it was not set"
    assert change(("log.level", DELETE, None), kind=BROKER, of="1") == E.INVALID_REQUEST
    assert change(("x", SET, "1"), of="none") == E.UNKNOWN_TOPIC_OR_PARTITION
    assert own_configs(client, name) == {"retention.ms": "5", "cleanup.policy": "delete"}
    assert change(("retention.ms", DELETE, None), ("flush.ms", DELETE, None)) == 0
    assert own_configs(client, name) == {"cleanup.policy": "delete"}


@pytest.mark.parametrize("version", range(2))
def test_broker_configs_change_while_the_broker_runs(cluster: Cluster, version: int) -> None:
    def change(of: str, name: str, operation: int, value: str | None = None) -> int:
        made = [IncrementalAlterableConfig(name=name, config_operation=operation, value=value)]
        (done,) = alter(client, version, (BROKER, of, made))
        return done.error_code

    def shown(of: str, name: str) -> list[tuple[str, str | None, int]]:
        kind = TOPIC if of == "t" else BROKER
        asked = DescribeConfigsRequest(resources=[resource(kind, of, name)], include_synonyms=True)
        (found,) = client.call(asked, DescribeConfigsResponse, 4).results
        return [(s.name, s.value, s.source) for each in found.configs for s in each.synonyms]

    name, static = "log.retention.ms", ("log.retention.hours", "-1", ConfigSource.DEFAULT)
    with RawClient(cluster.address) as client:
        create_topic(client, "t")
        assert change("", name, SET, "soon") == E.INVALID_CONFIG
        assert change("", name, SET, "99") == 0
        assert change("0", name, SET, "77") == 0
        assert change("", "message.max.bytes", SET, "100") == 0
    cluster.broker.kill()
    cluster.start_broker()
    own = (name, "77", ConfigSource.DYNAMIC_BROKER)
    everywhere = (name, "99", ConfigSource.DYNAMIC_DEFAULT_BROKER)
    with RawClient(cluster.address) as client:
        assert shown("t", "retention.ms") == [own, everywhere, static]
        assert shown("", name)[0] == everywhere
        assert shown("", "log.retention.bytes") == [], "nobody has set it"
        assert shown("0", name)[:2] == [own, everywhere]
        large = produce_request("t", b"x" * 100)
        answer = client.call(large, ProduceResponse, VERSION["produce"])
        assert answer.responses[0].partition_responses[0].error_code == E.MESSAGE_TOO_LARGE
        assert change("0", name, DELETE) == 0
        assert change("0", name, DELETE) == 0, "it was not set"
        assert change("", "message.max.bytes", DELETE) == 0
        assert shown("t", "retention.ms") == [everywhere, static]
        assert produce(client, "t", b"x" * 100) == 0


@pytest.mark.long
def test_configs_and_members_of_share_groups_survive_a_kill(cluster: Cluster) -> None:
    group, limit = "g" * 255, "share.delivery.count.limit"

    def change(name: str, value: str, of: str = group, *, dry: bool = False) -> int:
        made = [IncrementalAlterableConfig(name=name, config_operation=SET, value=value)]
        (done,) = alter(client, 1, (ResourceType.GROUP, of, made), dry=dry)
        assert bool(done.error_message) == bool(done.error_code)
        return done.error_code

    def shown(name: str) -> list[tuple[str, str | None, int]]:
        asked = [resource(ResourceType.GROUP, group, name)]
        request = DescribeConfigsRequest(resources=asked, include_synonyms=True)
        (found,) = client.call(request, DescribeConfigsResponse, 4).results
        return [(s.name, s.value, s.source) for each in found.configs for s in each.synonyms]

    def beat(member: str, epoch: int) -> ShareGroupHeartbeatResponse:
        request = ShareGroupHeartbeatRequest(
            group_id=group,
            member_id=member,
            member_epoch=epoch,
            subscribed_topic_names=None if epoch else ["shared"],
        )
        answer = client.call(request, ShareGroupHeartbeatResponse, 1)
        assert answer.error_code in (0, E.NOT_COORDINATOR)
        return answer

    default = (f"group.{limit}", "5", ConfigSource.DEFAULT)
    with RawClient(cluster.address) as client:
        assert change(limit, "7", dry=True) == 0
        assert shown(limit) == [default]
        assert change(limit, "11") == E.INVALID_CONFIG
        assert change("retention.ms", "11") == E.INVALID_CONFIG
        assert change(limit, "7", of="g" * 256) == E.INVALID_CONFIG, "a long name"
        assert change(limit, "7", of="") == E.INVALID_REQUEST
        assert change(limit, "7") == 0
        create_topic(client, "shared", 2)
        beat("a", 0)
        epoch = beat("b", 0).member_epoch
    cluster.broker.kill()
    cluster.start_broker()
    with RawClient(cluster.address) as client:
        again = beat("b", epoch)
        while again.error_code:  # the gateway has yet to reach the broker again
            time.sleep(0.05)
            again = beat("b", epoch)
        assert (again.error_code, again.assignment) == (0, None), "it has the same partitions"
        asked = ShareGroupDescribeRequest(group_ids=[group])
        (described,) = client.call(asked, ShareGroupDescribeResponse, 1).groups
        assert {each.member_id for each in described.members} == {"a", "b"}
        assert shown(limit) == [(limit, "7", ConfigSource.DYNAMIC_GROUP), default]
        listed = ListConfigResourcesRequest(resource_types=[ResourceType.GROUP])
        found = client.call(listed, ListConfigResourcesResponse, 1).config_resources
        assert [each.resource_name for each in found] == [group]
        replaced = AlterConfigsRequest(
            resources=[AlterConfigsResource(resource_type=ResourceType.GROUP, resource_name=group)]
        )
        assert client.call(replaced, AlterConfigsResponse, 2).responses[0].error_code == 0
        assert shown(limit) == [default]


@pytest.mark.parametrize("version", range(2))
def test_list_config_resources(client: RawClient, version: int) -> None:
    create_topic(client, f"listed-{version}")

    def resources(*kinds: int) -> set[tuple[int, str]]:
        request = ListConfigResourcesRequest()
        if version >= 1:
            request.resource_types = [*kinds]
        answer = client.call(request, ListConfigResourcesResponse, version)
        assert answer.error_code == 0
        return {(each.resource_type, each.resource_name) for each in answer.config_resources}

    if version == 0:
        assert resources() == set()
        return
    assert (BROKER, "0") in resources(BROKER, ResourceType.GROUP)
    assert {(TOPIC, "listed-1"), (BROKER, "0"), (LOGGER, "0")} <= resources()
    unknown = ListConfigResourcesRequest(resource_types=[77])
    answer = client.call(unknown, ListConfigResourcesResponse, version)
    assert answer.error_code == E.UNSUPPORTED_VERSION
