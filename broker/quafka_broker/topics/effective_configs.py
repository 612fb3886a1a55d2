"""The settings in effect: those at the start, with later changes by clients.

Also the policy of each topic under them, which is computed once per topic.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

from quafka_broker.config.broker_configs import DynamicConfigs
from quafka_broker.config.settings import BrokerConfig
from quafka_broker.topics import configs as topic_configs
from quafka_broker.topics.configs import Configs, TopicPolicy
from quafka_broker.topics.events import broker_configs_changed
from quafka_broker.topics.journal import RegistryJournal
from quafka_broker.topics.registry import Registry
from quafka_broker.topics.topic import Topic


class EffectiveConfigs:
    """The broker's settings and the topics' policies.

    Attributes:
        broker: the broker's settings in effect.
        retention_changed: set when the retention of any topic may have changed.
        backoff_changed: set when `log.cleaner.backoff.ms` has changed.
    """

    def __init__(self, config: BrokerConfig, registry: Registry, journal: RegistryJournal) -> None:
        self.broker = config
        self.retention_changed = asyncio.Event()
        self.backoff_changed = asyncio.Event()
        self._started_with = config
        self._registry = registry
        self._journal = journal
        self._policies: dict[bytes, tuple[Configs, TopicPolicy]] = {}

    @property
    def dynamic(self) -> DynamicConfigs:
        """The broker configs that clients have set while the broker runs."""
        scopes = self._registry.broker_configs
        return DynamicConfigs(self._started_with, scopes["cluster"], scopes["own"])

    def refresh(self) -> None:
        """Recompute the broker's settings after a change of the registry's broker configs."""
        self.broker = self.dynamic.effective()
        self._policies.clear()

    async def change_broker_configs(
        self, scope: str, change: Callable[[Mapping[str, str]], dict[str, str]]
    ) -> None:
        """Change the broker configs that clients have set. Durable, and in effect, on return.

        `change` gets the configs set in the scope, "cluster" or "own", and returns the new ones.
        Its exceptions propagate.

        Raises:
            StorageError: nothing changed.
        """

        async def make() -> None:
            before = self._registry.broker_configs[scope]
            after = change(before)
            if after != before:
                await self._journal.record(broker_configs_changed(scope, after))
                backoff = self.broker.log_cleaner_backoff_ms
                self.refresh()
                self.retention_changed.set()
                if self.broker.log_cleaner_backoff_ms != backoff:
                    self.backoff_changed.set()

        await self._journal.in_turn(make)

    def rrl(self, topic: Topic) -> str:
        """A topic's RRL: org/env/cluster/topics/slug."""
        cluster = self.broker.cluster_name or self._registry.cluster_id
        return f"{topic.org}/{self.broker.cluster_env}/{cluster}/topics/{topic.slug}"

    def policy(self, topic: Topic) -> TopicPolicy:
        """The policy of a topic's configs."""
        configs, known = self._policies.get(topic.uuid, (None, None))
        if known is None or configs is not topic.configs:  # the caller may have an older topic
            known = topic_configs.policy(self.broker, topic.configs)
            self._policies[topic.uuid] = topic.configs, known
        return known

    def topic_changed(self, before: Topic, after: Topic) -> None:
        """Signal `retention_changed` if a topic's change affects retention."""
        was, now = self.policy(before), self.policy(after)
        if (was.retention_ms, was.retention_bytes) != (now.retention_ms, now.retention_bytes):
            self.retention_changed.set()

    def topic_deleted(self, topic: Topic) -> None:
        """Drop a deleted topic's policy."""
        self._policies.pop(topic.uuid, None)
