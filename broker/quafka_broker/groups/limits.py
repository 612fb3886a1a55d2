"""Limits of groups, and of all groups of one org."""

from __future__ import annotations

from dataclasses import dataclass, field

from quafka_broker.config.settings import BrokerConfig
from quafka_broker.groups.consumer.assignors import SIMPLE
from quafka_broker.groups.consumer.settings import ConsumerGroupSettings
from quafka_mesh_ops.ops.groups import JoinGroup
from quafka_proto.errors import ErrorCode

SHARES = ConsumerGroupSettings(max_size=200, assignors=(SIMPLE,))
"""Kafka's settings of share groups."""


@dataclass(frozen=True, slots=True)
class GroupLimits:
    """Limits of a group, and of all groups of an org together. Times are in seconds.

    Attributes:
        initial_delay: how long a group that was empty waits for more members.
        max_size: the maximum number of members of a group, including pending ids.
        max_bytes: the maximum bytes of a group's members, with metadata and assignments
            (org_usage.py).
        org_groups, org_members, org_bytes: the maximum of an org's groups, and of all of their
            members and bytes.
        consumer, share: the settings of groups of the consumer group protocol, and of share groups.
        migration: group.consumer.migration.policy.
        pattern_refresh: how often the topics of a pattern are looked up without a change.
        member_topics: the maximum number of topics of a member of the consumer group protocol.
        org_offset_bytes: the maximum bytes of the offsets that an org's groups have committed.
    """

    min_session: float = 6.0
    max_session: float = 1800.0
    initial_delay: float = 3.0
    max_size: int = 10_000
    max_bytes: int = 96 << 20
    org_groups: int = 10_000
    org_members: int = 50_000
    org_bytes: int = 256 << 20
    org_offset_bytes: int = 512 << 20
    consumer: ConsumerGroupSettings = field(default_factory=ConsumerGroupSettings)
    share: ConsumerGroupSettings = SHARES
    migration: str = "bidirectional"
    pattern_refresh: float = 600.0
    member_topics: int = 5_000

    @property
    def may_upgrade(self) -> bool:
        """Whether classic groups become groups of the consumer protocol."""
        return self.migration in ("bidirectional", "upgrade")

    @property
    def may_downgrade(self) -> bool:
        """Whether groups of the consumer protocol become classic ones."""
        return self.migration in ("bidirectional", "downgrade")

    @property
    def may_mix(self) -> bool:
        """Whether classic members may join a group of the consumer protocol that has members."""
        return self.migration != "disabled"

    @classmethod
    def of(cls, config: BrokerConfig) -> GroupLimits:
        """The limits by the broker's settings."""
        return cls(
            config.group_min_session_timeout_ms / 1000,
            config.group_max_session_timeout_ms / 1000,
            config.group_initial_rebalance_delay_ms / 1000,
            config.group_max_size,
            config.group_max_bytes,
            config.group_max_groups,
            config.group_max_members,
            config.group_total_max_bytes,
            config.offsets_max_bytes,
            ConsumerGroupSettings(
                config.group_consumer_session_timeout_ms / 1000,
                config.group_consumer_heartbeat_interval_ms,
                config.group_consumer_max_size,
                tuple(config.group_consumer_assignors.split(",")),
                config.group_consumer_assignment_interval_ms / 1000,
            ),
            ConsumerGroupSettings(
                config.group_share_session_timeout_ms / 1000,
                config.group_share_heartbeat_interval_ms,
                config.group_share_max_size,
                (SIMPLE,),
                config.group_share_assignment_interval_ms / 1000,
            ),
            config.group_consumer_migration_policy,
            config.group_consumer_regex_refresh_interval_ms / 1000,
            config.group_consumer_max_topics,
        )


def refusal_of_any(op: JoinGroup, limits: GroupLimits) -> ErrorCode:
    """The error of a join that every group refuses, in any state."""
    if not op.group:
        return ErrorCode.INVALID_GROUP_ID
    if not limits.min_session <= op.session_timeout_ms / 1000 <= limits.max_session:
        return ErrorCode.INVALID_SESSION_TIMEOUT
    if not op.protocol_type or not op.protocols:
        return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    return ErrorCode.NONE
