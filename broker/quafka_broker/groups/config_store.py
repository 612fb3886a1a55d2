"""The configs that groups set: events of the registry, at the broker that coordinates the groups.

A group need not exist to have configs, as in Kafka; deleting it leaves them as they are.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Protocol

from quafka_broker.config.settings import BrokerConfig
from quafka_broker.groups import configs as group_configs
from quafka_broker.groups.configs import MOST_NAME, Configs, GroupConfigError
from quafka_broker.groups.consumer.settings import ConsumerGroupSettings
from quafka_broker.groups.group import GroupType
from quafka_broker.topics.events import group_configs_changed
from quafka_broker.topics.journal import RegistryJournal
from quafka_broker.topics.registry import Registry
from quafka_mesh_ops.ops.shares import ShareConfigs

_NONE: Configs = {}


class BrokerConfigs(Protocol):
    """Has the broker's settings that are in effect."""

    broker: BrokerConfig


class GroupConfigStore:
    """The configs of all groups of all orgs."""

    def __init__(
        self,
        broker: BrokerConfigs,
        registry: Registry,
        journal: RegistryJournal,
        most: Callable[[int], int],
    ) -> None:
        """`most`: the number of groups of an org that may have configs."""
        self._broker = broker
        self._registry = registry
        self._journal = journal
        self._most = most

    def of(self, org: int, group: str) -> Configs:
        """The configs that a group sets, by name."""
        return self._registry.group_configs.get(org, {}).get(group, _NONE)

    def number(self, org: int, group: str, name: str) -> int:
        """The effective value of a numeric config."""
        return group_configs.number(self._broker.broker, self.of(org, group), name)

    def settings(
        self, usual: ConsumerGroupSettings, kind: GroupType, org: int, group: str
    ) -> ConsumerGroupSettings:
        """The settings of a group of kind CONSUMER or SHARE: `usual`, overridden by its own."""
        if not self.of(org, group):
            return usual
        return replace(
            usual,
            session_timeout=self.number(org, group, f"{kind}.session.timeout.ms") / 1000,
            assignment_interval=self.number(org, group, f"{kind}.assignment.interval.ms") / 1000,
            heartbeat_interval_ms=self.number(org, group, f"{kind}.heartbeat.interval.ms"),
        )

    def share(self, org: int, group: str) -> ShareConfigs:
        """The configs for the delivery of a share group's records."""
        return group_configs.share_configs(self._broker.broker, self.of(org, group))

    def names(self, org: int) -> list[str]:
        """The groups of an org that have configs, by name."""
        return sorted(self._registry.group_configs.get(org, ()))

    async def change(
        self, org: int, group: str, change: Callable[[Configs], dict[str, str]]
    ) -> None:
        """Change a group's configs. Durable, and in effect, on return.

        `change` gets the present configs and returns the new ones. Its exceptions propagate.

        Raises:
            GroupConfigError: the org has too many groups with configs, or the name is too long.
            StorageError: nothing changed.
        """

        async def make() -> None:
            before = self.of(org, group)
            after = change(before)
            if after == before:
                return
            if not before:
                self.check_room(org, group)
            await self._journal.record(group_configs_changed(org, group, after))

        await self._journal.in_turn(make)

    def check_room(self, org: int, group: str) -> None:
        """Check that another group may have configs. Raises GroupConfigError."""
        if len(group) > MOST_NAME:
            raise GroupConfigError(f"the group's name is longer than {MOST_NAME} characters")
        most = self._most(org)
        if len(self._registry.group_configs.get(org, ())) >= most:
            raise GroupConfigError(f"{most} groups have configs (group.max.groups)")

    async def drop_org(self, org: int) -> None:
        """Drop the configs of all groups of an org that is deleted; durable on return.

        Raises:
            StorageError: they are still there.
        """
        for group in self.names(org):
            await self.change(org, group, lambda _before: {})
