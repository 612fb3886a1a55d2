"""Checks, changes, describes and interprets a topic's configs.

Every config has a broker default or a fixed one (config_table.py). The registry keeps the values
that a topic sets itself, as the client's text.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from quafka_broker.config.broker_configs import DynamicConfigs
from quafka_broker.config.settings import BrokerConfig
from quafka_broker.topics.config_table import FIXED, KAFKA_NAMES, TOPIC_CONFIGS, TopicConfig
from quafka_broker.topics.topic import SOURCE
from quafka_mesh_ops.ops.admin import ConfigDescription
from quafka_mesh_ops.suggestions import did_you_mean
from quafka_proto.config_kinds import ConfigOperation, ConfigSource, ConfigType
from quafka_proto.schema.configs import DescribeConfigsSynonym, IncrementalAlterableConfig

_NONE = DynamicConfigs()
_DEFAULTS = BrokerConfig()
_LONGEST_VALUE = 1_000  # characters; a list like "delete,delete,..." has no limit of its own

Configs = Mapping[str, str]


class ConfigError(Exception):
    """A config that is unknown, or a value that is not allowed; the message names the config."""


class EffectiveConfig(NamedTuple):
    """A config of a topic, and the source of its value."""

    name: str
    value: str
    source: ConfigSource


class CompactionPolicy(NamedTuple):
    """How a topic is compacted.

    Attributes:
        min_lag_ms: a record is kept at least this long after its timestamp.
        max_lag_ms: a partition is compacted at most this long after the timestamp of its first
            dirty record.
        min_dirty_ratio: the lowest share of dirty bytes at which a partition is compacted.
        delete_retention_ms: how long a tombstone, or the marker of a transaction without records,
            is kept after the first pass over it.
    """

    min_lag_ms: int
    max_lag_ms: int
    min_dirty_ratio: float
    delete_retention_ms: int


class TopicPolicy(NamedTuple):
    """A topic's configs as the broker applies them. -1: no limit.

    Attributes:
        compaction: None if the topic is not compacted. Otherwise each record must have a key.
        deletes: whether `cleanup.policy` contains delete.
    """

    max_message_bytes: int
    log_append_time: bool
    before_max_ms: int
    after_max_ms: int
    retention_ms: int
    retention_bytes: int
    compaction: CompactionPolicy | None = None
    deletes: bool = True


def check(configs: Mapping[str, str | None]) -> dict[str, str]:
    """Check configs that a client sets; returns them in the registry's form.

    Raises:
        ConfigError: the first refused config.
    """
    checked: dict[str, str] = {}
    for name, value in configs.items():
        if name in FIXED:
            raise ConfigError(f"{name} cannot be set: it is a fixed property of the topic")
        known = TOPIC_CONFIGS.get(name)
        if known is None:
            raise ConfigError(f"unknown topic config {name!r}{did_you_mean(name, TOPIC_CONFIGS)}")
        value = None if value is None else value.strip()
        if value is None or len(value) > _LONGEST_VALUE or not known.check(value):
            shown = value if value is None else value[:_LONGEST_VALUE]
            raise ConfigError(f"{name} cannot be {shown!r}; allowed: {known.allowed}")
        checked[name] = value
    return checked


def changed(
    broker: BrokerConfig,
    configs: Configs,
    fixed: Configs,
    changes: Iterable[IncrementalAlterableConfig],
) -> dict[str, str]:
    """The configs of a topic that sets `configs`, after these changes.

    Setting a fixed property to its value changes nothing: programs write back what they have read.

    Raises:
        ConfigError: the first change that is refused.
    """
    result = dict(configs)
    for change in changes:
        name = change.name
        if change.config_operation == ConfigOperation.DELETE:
            result.pop(name, None)
        elif name not in fixed or change.value != fixed[name]:
            value = change.value
            if change.config_operation != ConfigOperation.SET and name not in FIXED:
                value = _with_items(change, _effective(broker, result, name).value)
            result |= check({name: value})
    check_together(broker, result)
    return result


def check_together(broker: BrokerConfig, configs: Configs) -> None:
    """Check configs that limit each other, for a topic that sets `configs`.

    Raises:
        ConfigError: the minimum compaction lag is above the maximum.
    """
    least, greatest = "min.compaction.lag.ms", "max.compaction.lag.ms"
    low, high = (int(_effective(broker, configs, name).value) for name in (least, greatest))
    if low > high and configs.keys() & {least, greatest}:
        raise ConfigError(f"{least} {low} cannot be above {greatest} {high}")


def _with_items(change: IncrementalAlterableConfig, present: str) -> str:
    """A list config's value with the change's items appended, or removed."""
    appends = change.config_operation == ConfigOperation.APPEND
    if TOPIC_CONFIGS[change.name].kind != ConfigType.LIST:
        verb = "append to" if appends else "subtract from"
        raise ConfigError(f"cannot {verb} {change.name}: it is not a list")
    there = [item for item in present.split(",") if item]
    items = [item.strip() for item in (change.value or "").split(",") if item.strip()]
    if appends:
        return ",".join(dict.fromkeys([*there, *items]))
    return ",".join(item for item in there if item not in items)


def effective(
    broker: BrokerConfig, configs: Configs, dynamic: DynamicConfigs = _NONE
) -> list[EffectiveConfig]:
    """All configs of a topic that sets `configs`, by name."""
    return [_effective(broker, configs, name, dynamic) for name in sorted(TOPIC_CONFIGS)]


def describe(broker: BrokerConfig, dynamic: DynamicConfigs = _NONE) -> list[ConfigDescription]:
    """All configs of a topic that sets none, by name; fixed properties have empty values."""
    described = [_described(broker, known, dynamic) for known in TOPIC_CONFIGS.values()]
    described += [
        ConfigDescription(
            name, "", ConfigSource.DEFAULT, ConfigType.STRING, True, f"{words}. Cannot be set.", []
        )
        for name, words in FIXED.items()
    ]
    return sorted(described, key=lambda config: config.name)


def _described(
    broker: BrokerConfig, known: TopicConfig, dynamic: DynamicConfigs
) -> ConfigDescription:
    _, value, source = _effective(broker, {}, known.name, dynamic)
    words = f"{known.effect}. Allowed: {known.allowed}."
    synonyms = _synonyms(broker, known, dynamic)
    return ConfigDescription(known.name, value, source, known.kind, False, words, synonyms)


def _synonyms(
    broker: BrokerConfig, known: TopicConfig, dynamic: DynamicConfigs
) -> list[DescribeConfigsSynonym]:
    if not known.settings:
        name = KAFKA_NAMES.get(known.name, known.name)
        return [DescribeConfigsSynonym(name, known.default, ConfigSource.DEFAULT)]
    found: list[DescribeConfigsSynonym] = []
    for setting in known.settings:
        value, default = getattr(broker, setting), getattr(_DEFAULTS, setting)
        name = _dotted(setting)
        set_while_running = dynamic.synonyms(name)
        found += set_while_running
        if set_while_running:
            value = getattr(dynamic.static, setting)
        if value != default:
            found.append(DescribeConfigsSynonym(name, str(value), ConfigSource.STATIC_BROKER))
        if default is not None:
            found.append(DescribeConfigsSynonym(name, str(default), ConfigSource.DEFAULT))
    return found


def _effective(
    broker: BrokerConfig, configs: Configs, name: str, dynamic: DynamicConfigs = _NONE
) -> EffectiveConfig:
    known = TOPIC_CONFIGS.get(name)
    if known is None:
        raise ConfigError(f"unknown topic config {name!r}{did_you_mean(name, TOPIC_CONFIGS)}")
    if name in configs:
        return EffectiveConfig(name, configs[name], ConfigSource.DYNAMIC_TOPIC)
    if known.broker is None:
        return EffectiveConfig(name, known.default, ConfigSource.DEFAULT)
    value = known.broker(broker)
    is_default = value == known.broker(_DEFAULTS)
    source = ConfigSource.DEFAULT if is_default else ConfigSource.STATIC_BROKER
    for setting in known.settings:
        for synonym in dynamic.synonyms(_dotted(setting)):
            return EffectiveConfig(name, str(value), ConfigSource(synonym.source))
    return EffectiveConfig(name, str(value), source)


def _dotted(setting: str) -> str:
    return setting.replace("_", ".")


def policy(broker: BrokerConfig, configs: Configs) -> TopicPolicy:
    """A topic's configs as the broker applies them."""

    def value(name: str) -> str:
        return _effective(broker, configs, name).value

    def limit(name: str) -> int:
        difference = configs.get("message.timestamp.difference.max.ms")
        return int(difference if difference is not None and name not in configs else value(name))

    policies = value("cleanup.policy").split(",")
    deletes = "delete" in policies
    compaction = CompactionPolicy(
        int(value("min.compaction.lag.ms")),
        int(value("max.compaction.lag.ms")),
        float(value("min.cleanable.dirty.ratio")),
        int(value("delete.retention.ms")),
    )
    return TopicPolicy(
        int(value("max.message.bytes")),
        value("message.timestamp.type") == "LogAppendTime",
        limit("message.timestamp.before.max.ms"),
        limit("message.timestamp.after.max.ms"),
        int(value("retention.ms")) if deletes else -1,
        int(value("retention.bytes")) if deletes else -1,
        compaction if "compact" in policies and not configs.get(SOURCE) else None,
        deletes,
    )
