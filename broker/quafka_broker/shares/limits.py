"""Limits of share groups, and the configs of one group as the broker applies them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from quafka_broker.config.settings import BrokerConfig
from quafka_mesh_ops.ops.shares import MOST_ACQUIRED, ShareConfigs


class Terms(NamedTuple):
    """A group's configs, complete and within the limits. Times are in seconds."""

    lock: float
    most_deliveries: int
    most_in_flight: int
    committed: bool

    @property
    def lock_ms(self) -> int:
        """The lock's duration."""
        return round(self.lock * 1000)


@dataclass(frozen=True, slots=True)
class ShareLimits:
    """Limits and defaults. Times are in seconds.

    Attributes:
        lock, least_lock, most_lock: how long a member holds records.
        most_deliveries: the maximum number of deliveries of a record.
        most_in_flight: the maximum number of offsets in the window of a share partition.
        org_partitions: the maximum number of share partitions of an org at this broker.
        org_in_flight: the maximum number of offsets in the windows of all of them.
    """

    lock: float = 30.0
    least_lock: float = 15.0
    most_lock: float = 60.0
    most_deliveries: int = 5
    most_in_flight: int = 2_000
    org_partitions: int = 20_000
    org_in_flight: int = 2_000_000

    @classmethod
    def of(cls, config: BrokerConfig) -> ShareLimits:
        """The limits by the broker's settings."""
        return cls(
            config.group_share_record_lock_duration_ms / 1000,
            config.group_share_min_record_lock_duration_ms / 1000,
            config.group_share_max_record_lock_duration_ms / 1000,
            config.group_share_delivery_count_limit,
            config.group_share_partition_max_record_locks,
            config.group_share_max_partitions,
            config.group_share_max_in_flight,
        )

    def terms(self, configs: ShareConfigs) -> Terms:
        """A group's configs, completed from the broker's settings."""
        lock = self.lock if configs.lock_ms <= 0 else configs.lock_ms / 1000
        deliveries, in_flight = configs.most_deliveries, configs.most_in_flight
        return Terms(
            min(max(lock, self.least_lock), self.most_lock),
            self.most_deliveries if deliveries <= 0 else deliveries,
            self.most_in_flight if in_flight <= 0 else min(in_flight, MOST_ACQUIRED),
            configs.committed,
        )
