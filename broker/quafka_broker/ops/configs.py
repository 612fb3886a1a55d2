"""Ops 0x41 to 0x43 and 0x46: describe and alter the configs of topics and of the broker."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from quafka_broker.config import broker_configs
from quafka_broker.config.broker_configs import (
    SETTINGS,
    BrokerConfigError,
    DynamicConfigs,
    ReadOnlyConfigError,
)
from quafka_broker.config.settings import LogSettings
from quafka_broker.journals.internal_topics import REGISTRY
from quafka_broker.partitions.errors import StorageError
from quafka_broker.sources.source import BadSourceError
from quafka_broker.state import BrokerState
from quafka_broker.topics import configs as topic_configs
from quafka_broker.topics.configs import ConfigError
from quafka_broker.topics.topic import SOURCE, Topic, legal_name
from quafka_loop.slices import listed
from quafka_mesh_ops import described_settings
from quafka_mesh_ops.handlers import OpContext
from quafka_mesh_ops.ops.admin import (
    AlterBrokerConfigs,
    AlterBrokerConfigsResp,
    AlterTopicConfigs,
    AlterTopicConfigsResp,
    ConfigDescription,
    DescribeBroker,
    DescribeBrokerResp,
    DescribeTopicConfigs,
    DescribeTopicConfigsResp,
    NamedValue,
    TopicConfigs,
)
from quafka_proto.errors import ErrorCode

_OVERRIDES = {"log.retention.ms": "log.retention.hours"}
"""Settings that override another one: as in Kafka, its values are among their synonyms."""


async def describe(
    state: BrokerState, context: OpContext, op: DescribeTopicConfigs
) -> DescribeTopicConfigsResp:
    """Describe the configs of a topic that sets none, and the values that each topic sets."""
    found = await listed(_describe(state, context.org_id, name) for name in op.topics)
    return DescribeTopicConfigsResp(
        topic_configs.describe(state.configs.broker, state.configs.dynamic), found
    )


def _describe(state: BrokerState, org: int, name: str) -> TopicConfigs:
    topic = state.registry.by_name(org, name)
    if topic is None:
        return TopicConfigs(*_missing(name))
    return TopicConfigs(own=_named_values(topic.configs), fixed=_named_values(_fixed(state, topic)))


def _fixed(state: BrokerState, topic: Topic) -> dict[str, str]:
    """The values of `topic_configs.FIXED`."""
    return {
        "quafka.id": topic.ulid, "quafka.slug": topic.slug, "quafka.rrl": state.configs.rrl(topic),
    }  # fmt: skip


def _named_values(values: Mapping[str, str]) -> list[NamedValue]:
    return [NamedValue(*item) for item in values.items()]


def _missing(name: str) -> tuple[ErrorCode, str]:
    if not legal_name(name):
        return ErrorCode.INVALID_TOPIC_EXCEPTION, f"{name!r} is not a legal topic name"
    return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"topic {name!r} does not exist"


async def alter(
    state: BrokerState, context: OpContext, op: AlterTopicConfigs
) -> AlterTopicConfigsResp:
    """Make all of an op's changes to one topic's configs, or none."""
    topic = state.registry.by_name(context.org_id, op.topic)
    if topic is None:
        return AlterTopicConfigsResp(*_missing(op.topic))
    unchangeable = state.sources.of(topic).unchangeable(topic)
    if unchangeable:
        return AlterTopicConfigsResp(ErrorCode.POLICY_VIOLATION, unchangeable)
    fixed = _fixed(state, topic)

    def change(present: Topic) -> Topic:
        own = {} if op.replace else present.configs
        configs = topic_configs.changed(state.configs.broker, own, fixed, op.changes)
        if op.replace and SOURCE in present.configs:
            configs.setdefault(SOURCE, present.configs[SOURCE])
        if configs.get(SOURCE) != present.configs.get(SOURCE):
            raise ConfigError(f"{SOURCE} cannot be changed: it is set when a topic is created")
        state.redis.check(present.org, present.partitions, configs)
        return replace(present, configs=configs)

    try:
        if op.validate_only:
            change(topic)
        elif not await state.topics.change(topic, change):
            return AlterTopicConfigsResp(*_missing(op.topic))
    except (ConfigError, BadSourceError) as e:
        return AlterTopicConfigsResp(ErrorCode.INVALID_CONFIG, str(e))
    except StorageError as e:
        return AlterTopicConfigsResp(ErrorCode.KAFKA_STORAGE_ERROR, str(e))
    return AlterTopicConfigsResp()


async def describe_broker(
    state: BrokerState, context: OpContext, op: DescribeBroker
) -> DescribeBrokerResp:
    """Describe the broker: its cluster, settings, registry offsets and leader epoch."""
    registry = state.log.partitions.get(REGISTRY)
    settings = [
        _changeable(state.configs.dynamic, each) if each.name in SETTINGS else each
        for each in described_settings.describe(state.configs.dynamic.static, LogSettings)
    ]
    settings += [_changeable(state.configs.dynamic, each) for each in broker_configs.throttles()]
    by_name = {each.name: each for each in settings}
    for name, otherwise in _OVERRIDES.items():
        if by_name[name].synonyms:
            by_name[name].synonyms.extend(by_name[otherwise].synonyms)
    return DescribeBrokerResp(
        state.registry.cluster_id,
        settings,
        registry.log_start,
        registry.high_watermark,
        state.log.epochs.current,
    )


def _changeable(dynamic: DynamicConfigs, static: ConfigDescription) -> ConfigDescription:
    """A changeable setting with its present value."""
    set_now = dynamic.synonyms(static.name)
    first = set_now[0] if set_now else static
    return replace(
        static,
        value=first.value,
        source=first.source,
        read_only=False,
        synonyms=[*set_now, *static.synonyms],
    )


async def alter_broker(
    state: BrokerState, context: OpContext, op: AlterBrokerConfigs
) -> AlterBrokerConfigsResp:
    """Make all of an op's changes to the broker's configs, or none."""

    def change(present: Mapping[str, str]) -> dict[str, str]:
        return broker_configs.changed(present, op.changes, replaces=op.replace)

    scope = "own" if op.this_broker else "cluster"
    try:
        if op.validate_only:
            change(state.registry.broker_configs[scope])
        else:
            await state.configs.change_broker_configs(scope, change)
    except ReadOnlyConfigError as e:
        return AlterBrokerConfigsResp(ErrorCode.INVALID_REQUEST, str(e))
    except BrokerConfigError as e:
        return AlterBrokerConfigsResp(ErrorCode.INVALID_CONFIG, str(e))
    except StorageError as e:
        return AlterBrokerConfigsResp(ErrorCode.KAFKA_STORAGE_ERROR, str(e))
    return AlterBrokerConfigsResp()
