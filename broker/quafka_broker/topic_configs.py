"""The one table of topic configs: names, defaults, what is allowed, and what is done with each.

Names and defaults are Kafka 4's. Every config has a broker default or a fixed one; what a topic
sets itself is kept in the registry as the text that was given. What cannot be honoured is
refused by name, never accepted and ignored - but for settings of the files that Kafka keeps for
each partition: here all partitions share one log, and there is nothing that they could change.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from quafka_broker.config import BrokerConfig

_MAX_LONG = (1 << 63) - 1
_MAX_INT = (1 << 31) - 1
_DYNAMIC_TOPIC, _STATIC_BROKER, _DEFAULT = 1, 4, 5  # Kafka's config sources

Check = Callable[[str], bool]
Configs = Mapping[str, str]


class ConfigError(Exception):
    """A config that is not known, or a value that is not allowed; the message names the key."""


@dataclass(frozen=True, slots=True)
class TopicConfig:
    """One config.

    Attributes:
        default: where neither topic nor broker says anything.
        allowed: what is allowed, in words.
        effect: what it does here.
        broker: gives the broker's value; None where the broker has no such setting.
    """

    name: str
    default: str
    check: Check
    allowed: str
    effect: str
    broker: Callable[[BrokerConfig], object] | None = None


class EffectiveConfig(NamedTuple):
    """A config of a topic, and where it comes from (Kafka's number for the source)."""

    name: str
    value: str
    source: int


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


def _one_of(*allowed: str) -> Check:
    return lambda text: text in allowed


def _retention_ms(config: BrokerConfig) -> int:
    if config.log_retention_ms is not None:
        return config.log_retention_ms
    return config.log_retention_hours * 3_600_000 if config.log_retention_hours >= 0 else -1


_BOOLEAN = _one_of("true", "false")
_FILES = "nothing: all partitions share one log"
_CLEANER = "nothing: there is no compaction"
_REPLICAS = "nothing: there is one replica"
_TIERED = "nothing: all of the log is local"


def _no_effect(why: str, check: Check, allowed: str, **defaults: str) -> list[TopicConfig]:
    """Configs that are taken as they are; in Python's spelling, with their defaults."""
    return [
        TopicConfig(name.replace("_", "."), default, check, allowed, why)
        for name, default in defaults.items()
    ]


_LONG = (_number(0, _MAX_LONG), "0 or more")

TOPIC_CONFIGS: dict[str, TopicConfig] = {
    config.name: config
    for config in [
        TopicConfig(
            "cleanup.policy", "delete", _one_of("delete"), "delete; compact is not served yet",
            "old records are deleted",
        ),
        TopicConfig(
            "compression.type", "producer", _one_of("producer"),
            "producer: batches are stored as they were sent", "nothing",
        ),
        TopicConfig(
            "max.message.bytes", "", _number(0, _MAX_INT), "0 to 2147483647",
            "a larger record batch gets MESSAGE_TOO_LARGE", lambda c: c.message_max_bytes,
        ),
        TopicConfig(
            "message.timestamp.type", "", _one_of("CreateTime", "LogAppendTime"),
            "CreateTime, LogAppendTime", "LogAppendTime: records carry the broker's time",
            lambda c: c.log_message_timestamp_type,
        ),
        TopicConfig(
            "message.timestamp.before.max.ms", "", *_LONG,
            "a record further in the past gets INVALID_TIMESTAMP (CreateTime only)",
            lambda c: c.log_message_timestamp_before_max_ms,
        ),
        TopicConfig(
            "message.timestamp.after.max.ms", "", *_LONG,
            "a record further in the future gets INVALID_TIMESTAMP (CreateTime only)",
            lambda c: c.log_message_timestamp_after_max_ms,
        ),
        TopicConfig(
            "message.timestamp.difference.max.ms", str(_MAX_LONG), *_LONG,
            "Kafka 3's name for both limits, where they are not set",
        ),
        TopicConfig(
            "retention.ms", "", _number(-1, _MAX_LONG), "-1 (for ever) or more",
            "batches whose newest record is older are deleted", _retention_ms,
        ),
        TopicConfig(
            "retention.bytes", "", _number(-1, _MAX_LONG), "-1 (no limit) or more",
            "the oldest batches of a partition that is larger are deleted",
            lambda c: c.log_retention_bytes,
        ),
        TopicConfig(
            "min.insync.replicas", "1", _one_of("1"), "1: there is one replica", "nothing",
        ),
        TopicConfig(
            "remote.storage.enable", "false", _one_of("false"), "false", "nothing",
        ),
        *_no_effect(_FILES, _number(1 << 20, _MAX_INT), "1048576 or more",
                    segment_bytes="1073741824"),
        *_no_effect(_FILES, _number(1, _MAX_LONG), "1 or more", segment_ms="604800000",
                    flush_messages=str(_MAX_LONG)),
        *_no_effect(_FILES, *_LONG, segment_jitter_ms="0", index_interval_bytes="4096",
                    file_delete_delay_ms="60000", flush_ms=str(_MAX_LONG)),
        *_no_effect(_FILES, _number(4, _MAX_INT), "4 or more", segment_index_bytes="10485760"),
        *_no_effect(_FILES, _BOOLEAN, "true, false", preallocate="false"),
        *_no_effect(_CLEANER, *_LONG, delete_retention_ms="86400000", min_compaction_lag_ms="0"),
        *_no_effect(_CLEANER, _number(1, _MAX_LONG), "1 or more",
                    max_compaction_lag_ms=str(_MAX_LONG)),
        *_no_effect(_CLEANER, _decimal, "0 to 1", min_cleanable_dirty_ratio="0.5"),
        *_no_effect(_REPLICAS, _BOOLEAN, "true, false", unclean_leader_election_enable="false"),
        *_no_effect(_REPLICAS, _one_of(""), "nothing",
                    leader_replication_throttled_replicas="",
                    follower_replication_throttled_replicas=""),
        *_no_effect(_TIERED, _number(-2, _MAX_LONG), "-2 or more",
                    local_retention_ms="-2", local_retention_bytes="-2"),
        *_no_effect("nothing: batches are stored as they were sent", _number(-131072, 22),
                    "-131072 to 22", compression_gzip_level="-1", compression_lz4_level="9",
                    compression_zstd_level="3"),
        *_no_effect("nothing: old consumers are always served", _BOOLEAN, "true, false",
                    message_downconversion_enable="true"),
    ]
}  # fmt: skip


def check(configs: Mapping[str, str | None]) -> dict[str, str]:
    """What a client wants to set, as it will be kept.

    Raises:
        ConfigError: the first that cannot be.
    """
    checked: dict[str, str] = {}
    for name, value in configs.items():
        known = TOPIC_CONFIGS.get(name)
        if known is None:
            raise ConfigError(f"unknown topic config {name!r}")
        value = None if value is None else value.strip()
        if value is None or not known.check(value):
            raise ConfigError(f"{name} cannot be {value!r}; allowed: {known.allowed}")
        checked[name] = value
    return checked


def effective(broker: BrokerConfig, configs: Configs) -> list[EffectiveConfig]:
    """All configs of a topic that sets `configs` itself, by name."""
    return [_effective(broker, configs, name) for name in sorted(TOPIC_CONFIGS)]


def _effective(broker: BrokerConfig, configs: Configs, name: str) -> EffectiveConfig:
    known = TOPIC_CONFIGS[name]
    if name in configs:
        return EffectiveConfig(name, configs[name], _DYNAMIC_TOPIC)
    if known.broker is None:
        return EffectiveConfig(name, known.default, _DEFAULT)
    value = known.broker(broker)
    is_default = value == known.broker(BrokerConfig())
    return EffectiveConfig(name, str(value), _DEFAULT if is_default else _STATIC_BROKER)


def policy(broker: BrokerConfig, configs: Configs) -> TopicPolicy:
    """What a topic's configs mean."""

    def value(name: str) -> str:
        return _effective(broker, configs, name).value

    def limit(name: str) -> int:
        difference = configs.get("message.timestamp.difference.max.ms")
        return int(difference if difference is not None and name not in configs else value(name))

    return TopicPolicy(
        int(value("max.message.bytes")),
        value("message.timestamp.type") == "LogAppendTime",
        limit("message.timestamp.before.max.ms"),
        limit("message.timestamp.after.max.ms"),
        int(value("retention.ms")),
        int(value("retention.bytes")),
    )
