"""The configs of groups (resource type GROUP), by Kafka's names. Pure.

A group's own value overrides the broker's setting. A value is checked against the broker's bounds
when it is set, and again when it is used: an operator may have changed the bounds meanwhile.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from quafka_broker.config.settings import BrokerConfig
from quafka_mesh_ops.ops.admin import ConfigDescription
from quafka_mesh_ops.ops.shares import EARLIEST, LATEST, ShareConfigs
from quafka_mesh_ops.suggestions import did_you_mean
from quafka_proto.config_kinds import ConfigOperation, ConfigSource, ConfigType
from quafka_proto.schema.configs import DescribeConfigsSynonym, IncrementalAlterableConfig

Configs = Mapping[str, str]
"""What a group sets, by name."""

MOST_NAME = 255
"""Characters in the name of a group with configs."""

_LONGEST_VALUE = 100
_DEFAULTS = BrokerConfig()
_BY_DURATION = "by_duration:"
_DURATION = re.compile(
    r"P(?=[\dT])(?:(\d{1,6})D)?(?:T(?=\d)(?:(\d{1,8})H)?(?:(\d{1,10})M)?(?:(\d{1,12})(\.\d{1,9})?S)?)?",
    re.ASCII | re.IGNORECASE,
)


class GroupConfigError(Exception):
    """A change that is refused; the message names the config and the allowed values."""


@dataclass(frozen=True, slots=True)
class GroupConfig:
    """One config.

    Attributes:
        setting: the broker's setting that is the default, as a field of BrokerConfig.
        bounds: two more settings, the lowest and the highest number.
        default: the default, if there is no setting.
        choices: the allowed texts, if it is not a number.
    """

    name: str
    effect: str
    setting: str = ""
    bounds: tuple[str, str] | None = None
    default: str = ""
    choices: tuple[str, ...] = field(default=())

    @property
    def kind(self) -> ConfigType:
        """The type of the value."""
        if self.setting:
            return ConfigType.INT
        return ConfigType.BOOLEAN if "true" in self.choices else ConfigType.STRING

    def range(self, broker: BrokerConfig) -> tuple[int, int]:
        """The lowest and the highest value of a number."""
        assert self.bounds is not None
        least, most = self.bounds
        return getattr(broker, least), getattr(broker, most)

    def allowed(self, broker: BrokerConfig) -> str:
        """The allowed values, in words."""
        if self.bounds is not None:
            least, most = self.range(broker)
            return f"{least} to {most}"
        return ", ".join(self.choices)


def _number(name: str, setting: str, effect: str) -> GroupConfig:
    family, _, rest = setting.partition("_")
    protocol, _, what = rest.partition("_")
    bounds = (f"{family}_{protocol}_min_{what}", f"{family}_{protocol}_max_{what}")
    return GroupConfig(name, effect, setting, bounds)


_SESSION = "how long a member may be silent before it is removed, in ms"
_HEARTBEAT = "interval of the members' heartbeats, in ms"
_ASSIGNMENT = "minimum time between two assignments of a large group, in ms"
_STREAMS = "streams."

RESET = "share.auto.offset.reset"
_HEARTBEATS_OF = {
    "consumer.heartbeat.interval.ms": "consumer.session.timeout.ms",
    "share.heartbeat.interval.ms": "share.session.timeout.ms",
}

GROUP_CONFIGS: dict[str, GroupConfig] = {
    each.name: each
    for each in (
        _number("consumer.session.timeout.ms", "group_consumer_session_timeout_ms", _SESSION),
        _number(
            "consumer.heartbeat.interval.ms", "group_consumer_heartbeat_interval_ms", _HEARTBEAT
        ),
        _number(
            "consumer.assignment.interval.ms", "group_consumer_assignment_interval_ms", _ASSIGNMENT
        ),
        _number("share.session.timeout.ms", "group_share_session_timeout_ms", _SESSION),
        _number("share.heartbeat.interval.ms", "group_share_heartbeat_interval_ms", _HEARTBEAT),
        _number("share.assignment.interval.ms", "group_share_assignment_interval_ms", _ASSIGNMENT),
        _number(
            "share.record.lock.duration.ms", "group_share_record_lock_duration_ms",
            "how long a member holds the records that it acquires, in ms",
        ),
        _number(
            "share.delivery.count.limit", "group_share_delivery_count_limit",
            "how many times a record that is released or not acknowledged is delivered",
        ),
        _number(
            "share.partition.max.record.locks", "group_share_partition_max_record_locks",
            "maximum number of offsets of a partition that are in flight",
        ),
        GroupConfig(
            RESET, "where the group starts in a partition", default="latest",
            choices=("earliest", "latest", "by_duration:PnDTnHnMn.nS"),
        ),
        GroupConfig(
            "share.isolation.level", "whether records of open and of aborted transactions are "
            "delivered", default="read_uncommitted", choices=("read_uncommitted", "read_committed"),
        ),
        GroupConfig(
            "share.renew.acknowledge.enable", "whether members may renew their locks",
            default="true", choices=("true", "false"),
        ),
    )
}  # fmt: skip
"""Configs by name: those of Kafka 4.3 for consumer and share groups. (Kafka 4.3 does not have
`….assignor.offload.enable` yet.)"""


# --- changes --------------------------------------------------------------------------------------


def changed(
    broker: BrokerConfig,
    present: Configs,
    changes: Iterable[IncrementalAlterableConfig],
    *,
    replaces: bool,
) -> dict[str, str]:
    """The configs of a group after these changes; with `replaces`, of these changes only.

    Raises:
        GroupConfigError: the first change that is refused.
    """
    result: dict[str, str] = {} if replaces else dict(present)
    for change in changes:
        if change.name.startswith(_STREAMS):
            text = f"{change.name[:_LONGEST_VALUE]}: streams groups (KIP-1071) are not served"
            raise GroupConfigError(text)
        if change.name not in GROUP_CONFIGS:
            text = f"unknown group config {change.name[:_LONGEST_VALUE]!r}"
            raise GroupConfigError(text + did_you_mean(change.name, GROUP_CONFIGS))
        if change.config_operation == ConfigOperation.DELETE:
            result.pop(change.name, None)
        elif change.config_operation == ConfigOperation.SET:
            result[change.name] = _checked(broker, change)
        else:
            raise GroupConfigError(f"{change.name} is not a list: it can be set or deleted")
    for interval, timeout in _HEARTBEATS_OF.items():
        if result.keys() & {interval, timeout}:
            _check_below(broker, result, interval, timeout)
    return result


def _check_below(broker: BrokerConfig, configs: Configs, interval: str, timeout: str) -> None:
    low, high = number(broker, configs, interval), number(broker, configs, timeout)
    if low >= high:
        raise GroupConfigError(f"{interval} {low} must be below {timeout} {high}")


def _checked(broker: BrokerConfig, change: IncrementalAlterableConfig) -> str:
    known = GROUP_CONFIGS[change.name]
    text = (change.value or "").strip()
    if not _is_allowed(broker, known, text):
        raise GroupConfigError(
            f"{known.name} cannot be {text[:_LONGEST_VALUE]!r}; allowed: {known.allowed(broker)}"
        )
    return text


def _is_allowed(broker: BrokerConfig, known: GroupConfig, text: str) -> bool:
    if len(text) > _LONGEST_VALUE:
        return False
    if known.bounds is not None:
        least, most = known.range(broker)
        return text.isascii() and text.isdecimal() and least <= int(text) <= most
    if known.name == RESET:
        return reset_of(text) is not None
    return text in known.choices


def reset_of(text: str) -> int | None:
    """EARLIEST, LATEST, or the highest age of the first record in ms; None: not a strategy."""
    if text in ("earliest", "latest"):
        return EARLIEST if text == "earliest" else LATEST
    if not text.startswith(_BY_DURATION):
        return None
    found = _DURATION.fullmatch(text.removeprefix(_BY_DURATION))
    if found is None:
        return None
    days, hours, minutes, seconds, fraction = (part or "0" for part in found.groups())
    whole = ((int(days) * 24 + int(hours)) * 60 + int(minutes)) * 60 + int(seconds)
    return whole * 1000 + round(float(fraction) * 1000)


# --- values ---------------------------------------------------------------------------------------


def number(broker: BrokerConfig, configs: Configs, name: str) -> int:
    """The effective value of a numeric config; a group's is kept within the broker's bounds."""
    known = GROUP_CONFIGS[name]
    text = configs.get(name)
    if text is None:
        found: int = getattr(broker, known.setting)
        return found
    least, most = known.range(broker)
    return min(max(int(text), least), most)


def share_configs(broker: BrokerConfig, configs: Configs) -> ShareConfigs:
    """The configs that a share group sets for the delivery of its records."""

    def own(name: str) -> int:
        return number(broker, configs, name) if name in configs else -1

    reset = reset_of(configs.get(RESET, "latest"))
    return ShareConfigs(
        own("share.record.lock.duration.ms"),
        own("share.delivery.count.limit"),
        own("share.partition.max.record.locks"),
        LATEST if reset is None else reset,
        configs.get("share.isolation.level") == "read_committed",
        configs.get("share.renew.acknowledge.enable") != "false",
    )


def describe(broker: BrokerConfig) -> list[ConfigDescription]:
    """Describe the configs of a group that sets none, sorted by name."""
    return [_described(broker, GROUP_CONFIGS[name]) for name in sorted(GROUP_CONFIGS)]


def _described(broker: BrokerConfig, known: GroupConfig) -> ConfigDescription:
    words = f"{known.effect}. Allowed: {known.allowed(broker)}."
    if known.setting:
        name = known.setting.replace("_", ".")
        value, default = getattr(broker, known.setting), getattr(_DEFAULTS, known.setting)
        synonyms = [DescribeConfigsSynonym(name, str(default), ConfigSource.DEFAULT)]
        if value != default:
            synonyms.insert(0, DescribeConfigsSynonym(name, str(value), ConfigSource.STATIC_BROKER))
    else:
        synonyms = [DescribeConfigsSynonym(known.name, known.default, ConfigSource.DEFAULT)]
    first = synonyms[0]
    return ConfigDescription(
        known.name, first.value, first.source, known.kind, False, words, synonyms
    )
