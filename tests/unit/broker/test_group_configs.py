"""The configs of groups: values, bounds, and what they mean."""

from __future__ import annotations

from dataclasses import replace

import pytest

from quafka_broker.config.settings import BrokerConfig
from quafka_broker.groups import configs as group_configs
from quafka_broker.groups.configs import GROUP_CONFIGS, GroupConfigError
from quafka_broker.topics.events import group_configs_changed
from quafka_broker.topics.registry import Registry
from quafka_mesh_ops.ops.shares import EARLIEST, LATEST, ShareConfigs
from quafka_proto.config_kinds import ConfigOperation, ConfigSource
from quafka_proto.schema.configs import IncrementalAlterableConfig as Change

BROKER = BrokerConfig()


def _set(*values: tuple[str, str]) -> list[Change]:
    return [Change(name, ConfigOperation.SET, value) for name, value in values]


@pytest.mark.parametrize(
    ("text", "reset"),
    [
        ("earliest", EARLIEST),
        ("latest", LATEST),
        ("by_duration:PT1H", 3_600_000),
        ("by_duration:P1DT2H3M4.5S", 93_784_500),
        ("by_duration:PT0S", 0),
        ("by_duration:P2D", 172_800_000),
        ("by_duration:", None),
        ("by_duration:P", None),
        ("by_duration:PT", None),
        ("by_duration:P1DT", None),
        ("by_duration:-PT1H", None),
        ("by_duration:PT-1H", None),
        ("EARLIEST", None),
        ("none", None),
    ],
)
def test_where_a_group_begins(text: str, reset: int | None) -> None:
    assert group_configs.reset_of(text) == reset


@pytest.mark.parametrize(
    "change",
    [
        ("share.session.timeout.ms", "44999"),
        ("share.session.timeout.ms", "60001"),
        ("share.session.timeout.ms", "٤٥٠٠٠"),
        ("share.session.timeout.ms", ""),
        ("share.delivery.count.limit", "11"),
        ("share.auto.offset.reset", "sometimes"),
        ("share.isolation.level", "serializable"),
        ("share.renew.acknowledge.enable", "yes"),
        ("segment.bytes", "1"),
        ("consumer.assignment.interval.ms", "15001"),
        ("streams.num.standby.replicas", "1"),
        ("consumer.assignor.offload.enable", "true"),
    ],
)
def test_a_value_that_is_refused_changes_nothing(change: tuple[str, str]) -> None:
    with pytest.raises(GroupConfigError, match=change[0]):
        group_configs.changed(BROKER, {}, _set(change), replaces=False)


def test_a_heartbeat_interval_is_below_the_session_timeout() -> None:
    broker = replace(BROKER, group_share_max_heartbeat_interval_ms=50_000)
    with pytest.raises(GroupConfigError, match="must be below"):
        group_configs.changed(
            broker, {}, _set(("share.heartbeat.interval.ms", "45000")), replaces=False
        )


def test_lists_are_not_there_to_append_to() -> None:
    change = Change("share.isolation.level", ConfigOperation.APPEND, "read_committed")
    with pytest.raises(GroupConfigError, match="not a list"):
        group_configs.changed(BROKER, {}, [change], replaces=False)


def test_changes_are_merged_or_replace_what_was_set() -> None:
    before = {"share.isolation.level": "read_committed"}
    changes = _set(("share.delivery.count.limit", "7"))
    merged = group_configs.changed(BROKER, before, changes, replaces=False)
    assert merged == {**before, "share.delivery.count.limit": "7"}
    assert group_configs.changed(BROKER, before, changes, replaces=True) == {
        "share.delivery.count.limit": "7"
    }
    delete = [Change("share.isolation.level", ConfigOperation.DELETE)]
    assert group_configs.changed(BROKER, before, delete, replaces=False) == {}


def test_what_share_groups_set() -> None:
    assert group_configs.share_configs(BROKER, {}) == ShareConfigs()
    configs = {
        "share.record.lock.duration.ms": "20000",
        "share.delivery.count.limit": "3",
        "share.partition.max.record.locks": "200",
        "share.auto.offset.reset": "by_duration:PT1M",
        "share.isolation.level": "read_committed",
        "share.renew.acknowledge.enable": "false",
    }
    expected = ShareConfigs(20_000, 3, 200, 60_000, committed=True, renews=False)
    assert group_configs.share_configs(BROKER, configs) == expected


def test_a_value_of_before_stays_within_the_brokers_bounds() -> None:
    name = "share.record.lock.duration.ms"
    tightened = replace(BROKER, group_share_max_record_lock_duration_ms=30_000)
    assert group_configs.number(tightened, {name: "60000"}, name) == 30_000
    assert group_configs.number(tightened, {}, name) == 30_000


def test_every_config_is_described_with_its_setting() -> None:
    broker = replace(BROKER, group_share_delivery_count_limit=6)
    described = {each.name: each for each in group_configs.describe(broker)}
    assert described.keys() == GROUP_CONFIGS.keys()
    limit = described["share.delivery.count.limit"]
    assert (limit.value, limit.source) == ("6", ConfigSource.STATIC_BROKER)
    assert [each.value for each in limit.synonyms] == ["6", "5"]
    assert described["share.auto.offset.reset"].source == ConfigSource.DEFAULT
    for each in described.values():  # a default is a value that can be set
        changes = _set((each.name, each.value or ""))
        assert group_configs.changed(BROKER, {}, changes, replaces=False)


def test_the_registry_restates_them() -> None:
    registry = Registry()
    registry.apply(group_configs_changed(1, "a", {"share.isolation.level": "read_committed"}))
    registry.apply(group_configs_changed(2, "a", {"share.delivery.count.limit": "3"}))
    registry.apply(group_configs_changed(1, "b", {"share.delivery.count.limit": "4"}))
    registry.apply(group_configs_changed(1, "b", {}))
    again = Registry()
    for event in registry.restate():
        again.apply(event)
    assert again.group_configs == registry.group_configs
    assert again.group_configs[1].keys() == {"a"}


def test_the_configs_of_consumer_and_share_groups_are_kafkas() -> None:
    """GroupConfig.configNames() of Kafka 4.3.0, but those of streams groups."""
    assert sorted(GROUP_CONFIGS) == [
        "consumer.assignment.interval.ms", "consumer.heartbeat.interval.ms",
        "consumer.session.timeout.ms", "share.assignment.interval.ms", "share.auto.offset.reset",
        "share.delivery.count.limit", "share.heartbeat.interval.ms", "share.isolation.level",
        "share.partition.max.record.locks", "share.record.lock.duration.ms",
        "share.renew.acknowledge.enable", "share.session.timeout.ms",
    ]  # fmt: skip
    streams = _set(("streams.session.timeout.ms", "45000"))
    with pytest.raises(GroupConfigError, match="KIP-1071"):
        group_configs.changed(BROKER, {}, streams, replaces=False)
