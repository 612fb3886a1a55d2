"""The one table of topic configs: names, defaults, what is allowed, and what is done with each.

Names and defaults are Kafka 4's. Every config has a broker default or a fixed one; what a topic
sets itself is kept in the registry as the text that was given. What cannot be honoured is
refused by name, never accepted and ignored - but for settings of the files that Kafka keeps for
each partition: here all partitions share one log, and there is nothing that they could change. Nor
do consumers see how what is stored is compressed: a topic that is mirrored with its configs, as by
MirrorMaker, can be made.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from quafka_broker.broker_configs import DynamicConfigs
from quafka_broker.config import BrokerConfig
from quafka_mesh_ops.ops.admin import ConfigChange, ConfigDescription, ConfigSynonym
from quafka_proto.config_kinds import ConfigOperation, ConfigSource, ConfigType

_MAX_LONG = (1 << 63) - 1
_MAX_INT = (1 << 31) - 1

_NONE = DynamicConfigs()
_KAFKA_NAMES = {
    "segment.bytes": "log.segment.bytes",
    "segment.ms": "log.roll.ms",
    "segment.jitter.ms": "log.roll.jitter.ms",
    "segment.index.bytes": "log.index.size.max.bytes",
    "flush.messages": "log.flush.interval.messages",
    "flush.ms": "log.flush.interval.ms",
    "index.interval.bytes": "log.index.interval.bytes",
    "delete.retention.ms": "log.cleaner.delete.retention.ms",
    "min.compaction.lag.ms": "log.cleaner.min.compaction.lag.ms",
    "max.compaction.lag.ms": "log.cleaner.max.compaction.lag.ms",
    "min.cleanable.dirty.ratio": "log.cleaner.min.cleanable.ratio",
    "file.delete.delay.ms": "log.segment.delete.delay.ms",
    "preallocate": "log.preallocate",
    "local.retention.ms": "log.local.retention.ms",
    "local.retention.bytes": "log.local.retention.bytes",
}
"""Broker configs that Kafka shows as synonyms, where they have other names than the topic's."""

Check = Callable[[str], bool]
Configs = Mapping[str, str]


class ConfigError(Exception):
    """A config that is not known, or a value that is not allowed; the message names the key."""


@dataclass(frozen=True, slots=True)
class TopicConfig:
    """One config.

    Attributes:
        default: where neither topic nor broker says anything.
        kind: Kafka's type of it.
        allowed: what is allowed, in words.
        effect: what it does here.
        broker: gives the broker's value; None where the broker has no such setting.
        settings: the broker's settings that it comes from; the first that is set counts.
    """

    name: str
    default: str
    kind: ConfigType
    check: Check
    allowed: str
    effect: str
    broker: Callable[[BrokerConfig], object] | None = None
    settings: tuple[str, ...] = ()


class EffectiveConfig(NamedTuple):
    """A config of a topic, and where it comes from."""

    name: str
    value: str
    source: ConfigSource


class TopicPolicy(NamedTuple):
    """What a topic's configs mean to the broker. -1: no limit."""

    max_message_bytes: int
    log_append_time: bool
    before_max_ms: int
    after_max_ms: int
    retention_ms: int
    retention_bytes: int


def _number(low: int, high: int) -> Check:
    def check(text: str) -> bool:
        return re.fullmatch(r"-?[0-9]{1,19}", text) is not None and low <= int(text) <= high

    return check


def _decimal(text: str) -> bool:
    return re.fullmatch(r"[01]|0?\.[0-9]{1,9}|1\.0{1,9}", text) is not None


_LONGEST_VALUE = 1_000  # characters: "delete,delete,..." is as good a list as any, and no end


def _one_of(*allowed: str) -> Check:
    return lambda text: text in allowed


def _policies(text: str) -> bool:
    # Compaction only promises that the last record of a key is there: keeping all keeps it. An
    # empty policy neither deletes nor compacts, as in Kafka.
    return not text or set(text.split(",")) <= {"delete", "compact"}


def _retention_ms(config: BrokerConfig) -> int:
    if config.log_retention_ms is not None:
        return config.log_retention_ms
    return config.log_retention_hours * 3_600_000 if config.log_retention_hours >= 0 else -1


_FILES = "nothing: all partitions share one log"
_CLEANER = "nothing: there is no compaction"
_REPLICAS = "nothing: there is one replica"
_TIERED = "nothing: all of the log is local"
_AS_SENT = "nothing: batches are stored as they were sent"
_Values = tuple[ConfigType, Check, str]


def _no_effect(why: str, values: _Values, **defaults: str) -> list[TopicConfig]:
    """Configs that are taken as they are; in Python's spelling, with their defaults."""
    return [
        TopicConfig(name.replace("_", "."), default, *values, why)
        for name, default in defaults.items()
    ]


_BOOLEAN: _Values = (ConfigType.BOOLEAN, _one_of("true", "false"), "true, false")
_LONG: _Values = (ConfigType.LONG, _number(0, _MAX_LONG), "0 or more")
_FROM_1: _Values = (ConfigType.LONG, _number(1, _MAX_LONG), "1 or more")
_SIZE: _Values = (ConfigType.INT, _number(1 << 20, _MAX_INT), "1048576 or more")
_SMALL_SIZE: _Values = (ConfigType.INT, _number(4, _MAX_INT), "4 or more")
_COUNT: _Values = (ConfigType.INT, _number(0, _MAX_INT), "0 to 2147483647")
_LEVEL: _Values = (ConfigType.INT, _number(-131072, 22), "-131072 to 22")
_LOCAL: _Values = (ConfigType.LONG, _number(-2, _MAX_LONG), "-2 or more")
_NO_LIST: _Values = (ConfigType.LIST, _one_of(""), "nothing")

TOPIC_CONFIGS: dict[str, TopicConfig] = {
    config.name: config
    for config in [
        TopicConfig(
            "cleanup.policy", "", ConfigType.LIST, _policies,
            "delete, compact, both, or nothing",
            "with delete, old records are deleted; without, none are. Of compacted topics every "
            "record is kept, also those that a later one of the same key supersedes",
            lambda c: c.log_cleanup_policy, ("log_cleanup_policy",),
        ),
        TopicConfig(
            "compression.type", "producer", ConfigType.STRING,
            _one_of("producer", "uncompressed", "gzip", "snappy", "lz4", "zstd"),
            "producer, uncompressed, gzip, snappy, lz4, zstd", _AS_SENT,
        ),
        TopicConfig(
            "max.message.bytes", "", *_COUNT, "a larger record batch gets MESSAGE_TOO_LARGE",
            lambda c: c.message_max_bytes, ("message_max_bytes",),
        ),
        TopicConfig(
            "message.timestamp.type", "", ConfigType.STRING,
            _one_of("CreateTime", "LogAppendTime"),
            "CreateTime, LogAppendTime", "LogAppendTime: records carry the broker's time",
            lambda c: c.log_message_timestamp_type, ("log_message_timestamp_type",),
        ),
        TopicConfig(
            "message.timestamp.before.max.ms", "", *_LONG,
            "a record further in the past gets INVALID_TIMESTAMP (CreateTime only)",
            lambda c: c.log_message_timestamp_before_max_ms,
            ("log_message_timestamp_before_max_ms",),
        ),
        TopicConfig(
            "message.timestamp.after.max.ms", "", *_LONG,
            "a record further in the future gets INVALID_TIMESTAMP (CreateTime only)",
            lambda c: c.log_message_timestamp_after_max_ms,
            ("log_message_timestamp_after_max_ms",),
        ),
        TopicConfig(
            "message.timestamp.difference.max.ms", str(_MAX_LONG), *_LONG,
            "Kafka 3's name for both limits, where they are not set",
        ),
        TopicConfig(
            "retention.ms", "", ConfigType.LONG, _number(-1, _MAX_LONG), "-1 (for ever) or more",
            "batches whose newest record is older are deleted", _retention_ms,
            ("log_retention_ms", "log_retention_hours"),
        ),
        TopicConfig(
            "retention.bytes", "", ConfigType.LONG, _number(-1, _MAX_LONG),
            "-1 (no limit) or more",
            "the oldest batches of a partition that is larger are deleted",
            lambda c: c.log_retention_bytes, ("log_retention_bytes",),
        ),
        TopicConfig(
            "min.insync.replicas", "1", ConfigType.INT, _one_of("1"), "1: there is one replica",
            "nothing",
        ),
        TopicConfig(
            "remote.storage.enable", "false", ConfigType.BOOLEAN, _one_of("false"), "false",
            "nothing",
        ),
        *_no_effect(_FILES, _SIZE, segment_bytes="1073741824"),
        *_no_effect(_FILES, _FROM_1, segment_ms="604800000", flush_messages=str(_MAX_LONG)),
        *_no_effect(_FILES, _LONG, segment_jitter_ms="0", file_delete_delay_ms="60000",
                    flush_ms=str(_MAX_LONG)),
        *_no_effect(_FILES, _COUNT, index_interval_bytes="4096"),
        *_no_effect(_FILES, _SMALL_SIZE, segment_index_bytes="10485760"),
        *_no_effect(_FILES, _BOOLEAN, preallocate="false"),
        *_no_effect(_CLEANER, _LONG, delete_retention_ms="86400000", min_compaction_lag_ms="0"),
        *_no_effect(_CLEANER, _FROM_1, max_compaction_lag_ms=str(_MAX_LONG)),
        *_no_effect(_CLEANER, (ConfigType.DOUBLE, _decimal, "0 to 1"),
                    min_cleanable_dirty_ratio="0.5"),
        *_no_effect(_REPLICAS, _BOOLEAN, unclean_leader_election_enable="false"),
        *_no_effect(_REPLICAS, _NO_LIST, leader_replication_throttled_replicas="",
                    follower_replication_throttled_replicas=""),
        *_no_effect(_TIERED, _LOCAL, local_retention_ms="-2", local_retention_bytes="-2"),
        *_no_effect(_AS_SENT, _LEVEL, compression_gzip_level="-1", compression_lz4_level="9",
                    compression_zstd_level="3"),
        *_no_effect("nothing: old consumers are always served", _BOOLEAN,
                    message_downconversion_enable="true"),
    ]
}  # fmt: skip

FIXED: dict[str, str] = {
    "quafka.id": "the topic's id, which sorts by the time of its creation",
    "quafka.slug": "the topic's name as it is in its RRL",
    "quafka.rrl": "the topic's RRL: org/env/cluster/topics/slug",
}
"""What every topic is, in words. Shown among its configs, so that any Kafka client can tell."""


def check(configs: Mapping[str, str | None]) -> dict[str, str]:
    """What a client wants to set, as it will be kept.

    Raises:
        ConfigError: the first that cannot be.
    """
    checked: dict[str, str] = {}
    for name, value in configs.items():
        if name in FIXED:
            raise ConfigError(f"{name} cannot be set: it is what the topic is")
        known = TOPIC_CONFIGS.get(name)
        if known is None:
            raise ConfigError(f"unknown topic config {name!r}")
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
    changes: Iterable[ConfigChange],
) -> dict[str, str]:
    """What a topic that sets `configs` itself sets after these changes.

    To set what is fixed to what it is changes nothing: programs write back what they have read.

    Raises:
        ConfigError: the first change that cannot be.
    """
    result = dict(configs)
    for change in changes:
        name = change.name
        if change.operation == ConfigOperation.DELETE:
            result.pop(name, None)
        elif name not in fixed or change.value != fixed[name]:
            value = change.value
            if change.operation != ConfigOperation.SET and name not in FIXED:
                value = _with_items(change, _effective(broker, result, name).value)
            result |= check({name: value})
    return result


def _with_items(change: ConfigChange, present: str) -> str:
    """A list config's value with, or without, these items."""
    appends = change.operation == ConfigOperation.APPEND
    if TOPIC_CONFIGS[change.name].kind != ConfigType.LIST:
        verb = "appended to" if appends else "taken from"
        raise ConfigError(f"nothing can be {verb} {change.name}: it is not a list")
    there = [item for item in present.split(",") if item]
    items = [item.strip() for item in (change.value or "").split(",") if item.strip()]
    if appends:
        return ",".join(dict.fromkeys([*there, *items]))
    return ",".join(item for item in there if item not in items)


def effective(
    broker: BrokerConfig, configs: Configs, dynamic: DynamicConfigs = _NONE
) -> list[EffectiveConfig]:
    """All configs of a topic that sets `configs` itself, by name."""
    return [_effective(broker, configs, name, dynamic) for name in sorted(TOPIC_CONFIGS)]


def describe(broker: BrokerConfig, dynamic: DynamicConfigs = _NONE) -> list[ConfigDescription]:
    """All configs of a topic that sets none, by name; the values of what is fixed are empty."""
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
) -> list[ConfigSynonym]:
    if not known.settings:
        name = _KAFKA_NAMES.get(known.name, known.name)
        return [ConfigSynonym(name, known.default, ConfigSource.DEFAULT)]
    found: list[ConfigSynonym] = []
    for setting in known.settings:
        value, default = getattr(broker, setting), getattr(_DEFAULTS, setting)
        name = _dotted(setting)
        set_while_running = dynamic.synonyms(name)
        found += set_while_running
        if set_while_running:
            value = getattr(dynamic.static, setting)
        if value != default:
            found.append(ConfigSynonym(name, str(value), ConfigSource.STATIC_BROKER))
        if default is not None:
            found.append(ConfigSynonym(name, str(default), ConfigSource.DEFAULT))
    return found


def _effective(
    broker: BrokerConfig, configs: Configs, name: str, dynamic: DynamicConfigs = _NONE
) -> EffectiveConfig:
    known = TOPIC_CONFIGS.get(name)
    if known is None:
        raise ConfigError(f"unknown topic config {name!r}")
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


_DEFAULTS = BrokerConfig()


def policy(broker: BrokerConfig, configs: Configs) -> TopicPolicy:
    """What a topic's configs mean."""

    def value(name: str) -> str:
        return _effective(broker, configs, name).value

    def limit(name: str) -> int:
        difference = configs.get("message.timestamp.difference.max.ms")
        return int(difference if difference is not None and name not in configs else value(name))

    deletes = "delete" in value("cleanup.policy").split(",")
    return TopicPolicy(
        int(value("max.message.bytes")),
        value("message.timestamp.type") == "LogAppendTime",
        limit("message.timestamp.before.max.ms"),
        limit("message.timestamp.after.max.ms"),
        int(value("retention.ms")) if deletes else -1,
        int(value("retention.bytes")) if deletes else -1,
    )
