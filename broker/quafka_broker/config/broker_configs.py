"""Settings of the broker that Kafka clients may change while it runs.

As in Kafka, a value set for this broker overrides one set for all brokers, which overrides the
setting in file, environment or flag. Changes are events of the registry; a change is durable and in
effect when it is answered.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any

from quafka_broker.config.settings import BrokerConfig
from quafka_mesh_ops import settings
from quafka_mesh_ops.ops.admin import ConfigDescription
from quafka_mesh_ops.settings import Setting
from quafka_proto.config_kinds import ConfigOperation, ConfigSource, ConfigType
from quafka_proto.schema.configs import DescribeConfigsSynonym, IncrementalAlterableConfig

log = logging.getLogger("quafka.broker")

_CHANGEABLE = {
    "log.cleaner.backoff.ms", "log.cleaner.dedupe.buffer.size",
    "log.cleaner.delete.retention.ms", "log.cleaner.max.compaction.lag.ms",
    "log.cleaner.min.cleanable.ratio", "log.cleaner.min.compaction.lag.ms",
    "log.cleanup.policy", "log.message.timestamp.after.max.ms",
    "log.message.timestamp.before.max.ms", "log.message.timestamp.type", "log.retention.bytes",
    "log.retention.ms", "message.max.bytes",
}  # fmt: skip
"""The settings that topics inherit, and those of compaction: a subset of Kafka's cluster-wide
dynamic configs (KIP-226)."""

SETTINGS: dict[str, tuple[str, Setting]] = {
    name: (each.name, each.metadata["setting"])
    for each in fields(BrokerConfig)
    if (name := each.name.replace("_", ".")) in _CHANGEABLE
}
"""The field of BrokerConfig and its setting, by the config's name."""


THROTTLES = (
    "follower.replication.throttled.rate",
    "leader.replication.throttled.rate",
    "replica.alter.log.dirs.io.max.bytes.per.second",
)
"""Limits of replication, in bytes per second, which kafka-reassign-partitions sets and removes.
Nothing is replicated, so any limit is kept."""
NO_THROTTLE = (1 << 63) - 1
_THROTTLE = Setting(
    "limit of replication; there is none", settings.whole(0, NO_THROTTLE), "0 or more"
)


class BrokerConfigError(Exception):
    """A change that is refused; the message names the config and the allowed values."""


class ReadOnlyConfigError(BrokerConfigError):
    """The config cannot be changed while the broker runs."""


@dataclass(frozen=True, slots=True)
class DynamicConfigs:
    """The configs that clients have set, as text by name: for all brokers, and for this one.

    `static`: the settings without these configs.
    """

    static: BrokerConfig = field(default_factory=BrokerConfig)
    cluster: Mapping[str, str] = field(default_factory=dict[str, str])
    own: Mapping[str, str] = field(default_factory=dict[str, str])

    def effective(self) -> BrokerConfig:
        """The settings in effect."""
        values: dict[str, Any] = {}
        for name, text in {**self.cluster, **self.own}.items():
            if name not in SETTINGS:
                continue
            attribute, known = SETTINGS[name]
            try:
                values[attribute] = known.parse(text)
            except (ValueError, KeyError):  # another version allowed the value
                log.warning("%s: %r is not used; allowed: %s", name, text, known.allowed)
        return replace(self.static, **values)

    def synonyms(self, name: str) -> list[DescribeConfigsSynonym]:
        """The values set for a config, the one in effect first."""
        scopes = (
            (self.own, ConfigSource.DYNAMIC_BROKER),
            (self.cluster, ConfigSource.DYNAMIC_DEFAULT_BROKER),
        )
        return [
            DescribeConfigsSynonym(name, values[name], src)
            for values, src in scopes
            if name in values
        ]


def throttles() -> list[ConfigDescription]:
    """Describe `THROTTLES` as they are if no client has set them."""
    source, value = ConfigSource.DEFAULT, str(NO_THROTTLE)
    words = f"{_THROTTLE.help}. Allowed: {_THROTTLE.allowed}."
    return [
        ConfigDescription(
            name,
            value,
            source,
            ConfigType.LONG,
            False,
            words,
            [DescribeConfigsSynonym(name, value, source)],
        )
        for name in THROTTLES
    ]


def changed(
    present: Mapping[str, str], changes: Iterable[IncrementalAlterableConfig], *, replaces: bool
) -> dict[str, str]:
    """The configs after these changes; with `replaces`, of these changes only.

    Deleting a config that is not set changes nothing, whatever its name: kafka-reassign-partitions
    deletes throttles that were never set.

    Raises:
        BrokerConfigError: the first change that is refused.
    """
    result: dict[str, str] = {} if replaces else dict(present)
    for change in changes:
        if change.config_operation == ConfigOperation.DELETE:
            result.pop(change.name, None)
        else:
            result[change.name] = _checked(change)
    return result


def _checked(change: IncrementalAlterableConfig) -> str:
    name = change.name
    if name not in SETTINGS and name not in THROTTLES:
        can = ", ".join(sorted([*SETTINGS, *THROTTLES]))
        raise ReadOnlyConfigError(
            f"{name[:100]} cannot be changed while the broker runs; these can: {can}"
        )
    if change.config_operation != ConfigOperation.SET:
        raise BrokerConfigError(f"{name} can be set or deleted, not appended to or subtracted from")
    known = _THROTTLE if name in THROTTLES else SETTINGS[name][1]
    text = (change.value or "").strip()
    try:
        known.parse(text)
    except (ValueError, KeyError):
        message = f"{name} cannot be {text[:100]!r}; allowed: {known.allowed}"
        raise BrokerConfigError(message) from None
    return text
