"""The table of topic configs: their names, defaults, allowed values and effects.

Names and defaults are Kafka 4's. A config that cannot be honoured is refused by name, never
accepted and ignored. Two kinds are exempt, so that a topic can be created with the configs of
another cluster, as MirrorMaker does. Settings of Kafka's files have no effect here, because all
partitions share one log. Compression settings have none, because consumers do not see how batches
are stored.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from quafka_broker.config.settings import BrokerConfig
from quafka_broker.topics.topic import SOURCE
from quafka_mesh_ops import settings
from quafka_proto.config_kinds import ConfigType

_MAX_LONG = (1 << 63) - 1
_MAX_INT = (1 << 31) - 1

Check = Callable[[str], bool]


@dataclass(frozen=True, slots=True)
class TopicConfig:
    """One config.

    Attributes:
        default: the value where neither the topic nor the broker sets one.
        kind: Kafka's type of the config.
        allowed: the allowed values, in words.
        effect: the config's effect here.
        broker: returns the broker's value; None if the broker has no such setting.
        settings: the broker's settings behind the config; the first one that is set applies.
    """

    name: str
    default: str
    kind: ConfigType
    check: Check
    allowed: str
    effect: str
    broker: Callable[[BrokerConfig], object] | None = None
    settings: tuple[str, ...] = ()


def _number(low: int, high: int) -> Check:
    def check(text: str) -> bool:
        return re.fullmatch(r"-?[0-9]{1,19}", text) is not None and low <= int(text) <= high

    return check


def _ratio(text: str) -> bool:
    try:
        return settings.ratio(text) >= 0
    except ValueError:
        return False


def _one_of(*allowed: str) -> Check:
    return lambda text: text in allowed


def _policies(text: str) -> bool:
    # Compaction promises only that the last record of a key is kept; keeping all records does so.
    # An empty policy neither deletes nor compacts, as in Kafka.
    return not text or set(text.split(",")) <= {"delete", "compact"}


def _retention_ms(config: BrokerConfig) -> int:
    if config.log_retention_ms is not None:
        return config.log_retention_ms
    return config.log_retention_hours * 3_600_000 if config.log_retention_hours >= 0 else -1


_FILES = "nothing: all partitions share one log"
_REPLICAS = "nothing: partitions have one replica"
_TIERED = "nothing: the whole log is local"
_AS_SENT = "nothing: batches are stored as they were sent"
_Values = tuple[ConfigType, Check, str]


def _no_effect(why: str, values: _Values, **defaults: str) -> list[TopicConfig]:
    """Configs that are accepted and have no effect. `defaults`: by name, with `_` for `.`."""
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
_REPLICA_LIST: _Values = (
    ConfigType.LIST,
    lambda text: re.fullmatch(r"\*|([0-9]+:[0-9]+(,[0-9]+:[0-9]+)*)?", text, re.ASCII) is not None,
    "nothing, *, or partition:broker,...",
)

TOPIC_CONFIGS: dict[str, TopicConfig] = {
    config.name: config
    for config in [
        TopicConfig(
            "cleanup.policy", "", ConfigType.LIST, _policies,
            "delete, compact, both, or nothing",
            "delete: old records are deleted; without it, none are, and DeleteRecords gets "
            "POLICY_VIOLATION. compact: the last record of each key is kept "
            "(compaction.md); a record without a key gets INVALID_RECORD",
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
            "Kafka 3's name for both limits; used where they are not set",
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
            "min.cleanable.dirty.ratio", "", ConfigType.DOUBLE, _ratio, settings.RATIO,
            "a partition is compacted when a greater share of its bytes is dirty",
            lambda c: c.log_cleaner_min_cleanable_ratio, ("log_cleaner_min_cleanable_ratio",),
        ),
        TopicConfig(
            "min.compaction.lag.ms", "", *_LONG, "compaction removes no record that is younger",
            lambda c: c.log_cleaner_min_compaction_lag_ms,
            ("log_cleaner_min_compaction_lag_ms",),
        ),
        TopicConfig(
            "max.compaction.lag.ms", "", *_FROM_1,
            "a partition with a dirty record of this age is compacted regardless of its ratio",
            lambda c: c.log_cleaner_max_compaction_lag_ms,
            ("log_cleaner_max_compaction_lag_ms",),
        ),
        TopicConfig(
            "delete.retention.ms", "", *_LONG,
            "tombstones and transaction markers are kept this long after the first compaction "
            "that includes them",
            lambda c: c.log_cleaner_delete_retention_ms, ("log_cleaner_delete_retention_ms",),
        ),
        TopicConfig(
            "min.insync.replicas", "1", ConfigType.INT, _one_of("1"),
            "1: partitions have one replica",
            "nothing",
        ),
        TopicConfig(
            "remote.storage.enable", "false", ConfigType.BOOLEAN, _one_of("false"), "false",
            "nothing",
        ),
        TopicConfig(
            SOURCE, "", ConfigType.STRING, lambda _: True,
            "nothing, or redis://host:port/db?stream=NAME (see redis-streams.md)",
            "the partitions are Redis streams; set when the topic is created",
        ),
        *_no_effect(_FILES, _SIZE, segment_bytes="1073741824"),
        *_no_effect(_FILES, _FROM_1, segment_ms="604800000", flush_messages=str(_MAX_LONG)),
        *_no_effect(_FILES, _LONG, segment_jitter_ms="0", file_delete_delay_ms="60000",
                    flush_ms=str(_MAX_LONG)),
        *_no_effect(_FILES, _COUNT, index_interval_bytes="4096"),
        *_no_effect(_FILES, _SMALL_SIZE, segment_index_bytes="10485760"),
        *_no_effect(_FILES, _BOOLEAN, preallocate="false"),
        *_no_effect(_REPLICAS, _BOOLEAN, unclean_leader_election_enable="false"),
        *_no_effect(_REPLICAS, _REPLICA_LIST, leader_replication_throttled_replicas="",
                    follower_replication_throttled_replicas=""),
        *_no_effect(_TIERED, _LOCAL, local_retention_ms="-2", local_retention_bytes="-2"),
        *_no_effect(_AS_SENT, _LEVEL, compression_gzip_level="-1", compression_lz4_level="9",
                    compression_zstd_level="3"),
        *_no_effect("nothing: old consumers are always served", _BOOLEAN,
                    message_downconversion_enable="true"),
    ]
}  # fmt: skip

KAFKA_NAMES = {
    "segment.bytes": "log.segment.bytes",
    "segment.ms": "log.roll.ms",
    "segment.jitter.ms": "log.roll.jitter.ms",
    "segment.index.bytes": "log.index.size.max.bytes",
    "flush.messages": "log.flush.interval.messages",
    "flush.ms": "log.flush.interval.ms",
    "index.interval.bytes": "log.index.interval.bytes",
    "file.delete.delay.ms": "log.segment.delete.delay.ms",
    "preallocate": "log.preallocate",
    "local.retention.ms": "log.local.retention.ms",
    "local.retention.bytes": "log.local.retention.bytes",
}
"""Broker configs that Kafka shows as synonyms, where their names differ from the topic config's."""


FIXED: dict[str, str] = {
    "quafka.id": "the topic's id, which sorts by the time of its creation",
    "quafka.slug": "the topic's name in its RRL",
    "quafka.rrl": "the topic's RRL: org/env/cluster/topics/slug",
}
"""A topic's fixed properties, in words. They are listed with its configs, so that any Kafka client
can read them."""
