"""Assembles a broker's parts; each op handler uses the parts that it needs."""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING

from quafka_broker.admission.queue import Admissions
from quafka_broker.compaction.compactor import Compactor
from quafka_broker.config.settings import BrokerConfig
from quafka_broker.groups.config_store import GroupConfigStore
from quafka_broker.groups.coordinator import Coordinator
from quafka_broker.groups.limits import GroupLimits
from quafka_broker.journals.internal_topics import GROUPS, SECURITY, SHARES, TRANSACTIONS
from quafka_broker.leases import Leases
from quafka_broker.partitions.parked_fetches import ParkedFetches
from quafka_broker.partitions.producers import Producers
from quafka_broker.places.places import Places
from quafka_broker.security.limits import SecurityLimits
from quafka_broker.security.security import BrokerSecurity
from quafka_broker.shares.limits import ShareLimits
from quafka_broker.shares.shares import BrokerShares
from quafka_broker.snapshot_status import SchedulerStatus
from quafka_broker.sources.redis.streams import RedisSettings, RedisStreams
from quafka_broker.sources.sources import Sources
from quafka_broker.sources.wal import WalSource
from quafka_broker.topics.changes import TopicChanges
from quafka_broker.topics.effective_configs import EffectiveConfigs
from quafka_broker.topics.identity import new_topic_identity
from quafka_broker.topics.journal import RegistryJournal
from quafka_broker.topics.lost_events import repair_events
from quafka_broker.topics.org_topics import OrgRoom
from quafka_broker.topics.registry import Registry
from quafka_broker.topics.replay import OR_LATER, BadRegistryError, live_topics
from quafka_broker.topics.retention import Retention, wall_clock_ms
from quafka_broker.topics.stored_bytes import NO_LIMIT, StoredBytes
from quafka_broker.topics.topic import REDIS, WAL, Topic
from quafka_broker.transactions.limits import TransactionLimits
from quafka_broker.transactions.peers import NoPeers, Peers
from quafka_broker.transactions.producer_ids import ProducerIds
from quafka_broker.transactions.transactions import BrokerTransactions
from quafka_broker.wal.log import Log
from quafka_mesh_ops.org_limits import LimitName
from quafka_telemetry.tracing import ProducedBy

if TYPE_CHECKING:
    from quafka_broker.sources.kafka.source import KafkaSource

_LEAST_NEW_PRODUCERS = 1_000


class BrokerState:
    """The log and all state derived from it, which is only in memory."""

    def __init__(
        self,
        config: BrokerConfig,
        wal: Log,
        *,
        leases: Leases | None = None,
        peers: Peers | None = None,
        cluster_id: str = "",
    ) -> None:
        """`wal` need not be open. `cluster_id`: the name of a new log; empty: a random one."""
        self.log = wal
        self.registry = Registry()
        self.journal = RegistryJournal(wal, self.registry, cluster_id)
        self.configs = EffectiveConfigs(config, self.registry, self.journal)
        self.leases = leases or Leases()
        self.parked_fetches = ParkedFetches()
        self.admissions = Admissions()
        self.places = Places(wal)
        self.stored_bytes = StoredBytes(wal, self.registry)
        self.producers = Producers(
            config.max_producers_per_org, expiration_ms=config.producer_id_expiration_ms
        )
        begin_at = self.journal.begin_journal_at
        self.security = BrokerSecurity(
            wal, SecurityLimits.of(config), partial(begin_at, SECURITY),
            self.registry.highest_org, self._org_changed,
        )  # fmt: skip
        self.producer_ids = ProducerIds(
            wal, self.journal, self.registry, self.producers, self._most_new_producers
        )
        self.redis = RedisStreams(
            RedisSettings(
                config.sources_redis_allowed, config.sources_redis_secrets,
                config.sources_redis_ca_file, config.producer_id_expiration_ms,
                config.sources_redis_servers_per_org, config.sources_redis_timeout_ms / 1000,
                config.sources_redis_answer_bytes, config.sources_redis_queued_bytes,
            ),
            self.parked_fetches, wal.epochs, lambda: self.registry.cluster_id,
            lambda topic: self.registry.by_id(topic.org, topic.uuid) is not None,
        )  # fmt: skip
        self.kafka: KafkaSource | None = None
        self.sources = Sources()
        self.sources.add(REDIS, self.redis)
        self.group_configs = GroupConfigStore(
            self.configs, self.registry, self.journal, self._most_groups
        )
        self.groups = Coordinator(
            wal, GroupLimits.of(config), self.registry, self.sources, partial(begin_at, GROUPS),
            self._most_groups, self.group_configs.settings,
        )  # fmt: skip
        self.shares = BrokerShares(
            wal, ShareLimits.of(config), self.parked_fetches, partial(begin_at, SHARES),
            self.registry.by_id, keeps_unknown=bool(config.kafka_log_dirs),
        )  # fmt: skip
        self.transactions = BrokerTransactions(
            wal, TransactionLimits.of(config), self.groups.offsets, self.producers,
            self.producer_ids.allocate, partial(begin_at, TRANSACTIONS), peers or NoPeers(),
        )  # fmt: skip
        admission = self.transactions.admission
        self.sources.add(WAL, WalSource(wal, self.producers, self.places, admission))
        self.topics = TopicChanges(
            wal, self.journal, self.registry, self.configs, self.leases, self.producers,
            self.parked_fetches, self._topics_deleted, self.room,
        )  # fmt: skip
        self.compaction = Compactor(wal, self.registry, self.configs, self.leases, self.producers)
        self.snapshots = SchedulerStatus(config.snapshot_interval_ms)
        self.produced_by = ProducedBy()

    def room(self, org: int) -> OrgRoom:
        """The maximum numbers of topics and partitions of an org."""
        partitions = self.configs.broker.max_partitions_per_org
        limit = self.security.limit
        return OrgRoom(
            limit(org, LimitName.PARTITIONS, partitions), limit(org, LimitName.TOPICS, partitions)
        )

    def _topics_deleted(self, topics: Collection[Topic]) -> None:
        self.groups.offsets.drop_topics(topics)
        self.shares.drop_topics(topics)

    def _org_changed(self, org: int) -> None:
        """Apply the limits of an org's record."""
        limit = self.security.limit
        self.producers.limit_org(org, self._most_producers(org))
        self.stored_bytes.limit_org(org, limit(org, LimitName.STORED_BYTES, NO_LIMIT))

    def _most_producers(self, org: int) -> int:
        most = self.configs.broker.max_producers_per_org
        return self.security.limit(org, LimitName.PRODUCER_IDS, most)

    def _most_groups(self, org: int) -> int:
        most = self.configs.broker.group_max_groups
        return self.security.limit(org, LimitName.GROUPS, most)

    def _most_new_producers(self, org: int) -> int:
        """The limit per hour. It has a minimum, since each evicted producer needs a new id."""
        most = max(self.configs.broker.max_producers_per_org, _LEAST_NEW_PRODUCERS)
        return self.security.limit(org, LimitName.PRODUCER_IDS, most)

    async def replay_registry(self) -> None:
        """Rebuild the registry from the log; name the cluster if it is new.

        Raises:
            StorageError: the log cannot be read, or written.
            BadRegistryError: an event cannot be decoded.
            DamagedLogError: the log lacks records that were never in it.
        """
        found = await self.journal.replay()
        self.configs.refresh()
        if not found.is_new:
            self.leases.wait_for_predecessor()
        repairs = repair_events(self.log, self.registry, found, new_topic_identity)
        live = dict(live_topics(self.log, self.registry, found))
        self.log.settle(live)
        self.producers.keep_partitions(live.keys())
        await self.journal.record_repairs(repairs)
        self.producer_ids.begin(found.lost)
        await self.journal.settle()

    async def adopt_kafka(self) -> None:
        """Serve the topics of `kafka.log.dirs`, if set; after the registry's replay.

        Raises:
            AdoptionError: the folders cannot be served.
        """
        config = self.configs.broker
        if not config.kafka_log_dirs:
            return
        from quafka_broker.sources.kafka.source import KAFKA, KafkaSource, open_folders

        folders = await open_folders(config.kafka_log_dirs)
        self.kafka = KafkaSource(
            folders, config.kafka_log_org, self.registry, self.parked_fetches, self.leases,
            self._topics_deleted,
        )  # fmt: skip
        self.kafka.adopt(config.max_partitions_per_org)
        self.sources.add(KAFKA, self.kafka)

    def retention(self, now_ms: Callable[[], int] = wall_clock_ms) -> Retention:
        """Retention for this broker's partitions, producers and group offsets."""
        return Retention(
            self.log, self.registry, self.configs, self.topics, self.producers,
            self.groups.expire, now_ms,
        )  # fmt: skip

    async def replay_security(self) -> None:
        """Rebuild orgs, users, ACLs and quotas from the log, after the registry.

        Raises:
            StorageError: the log cannot be read.
            BadRegistryError: an event cannot be decoded.
        """
        with _understood("orgs, users, ACLs and quotas"):
            await self.security.start()

    async def start_groups(self) -> None:
        """Rebuild groups and transactions from the log, after the registry, and start them.

        Raises:
            StorageError: the log cannot be read.
            BadRegistryError: an event cannot be decoded.
        """
        with _understood("the consumer groups"):
            await self.groups.start()
        await self.replay_transactions()
        await self.replay_shares()

    async def replay_transactions(self) -> None:
        """Rebuild the transactions from the log, after the groups.

        Raises:
            StorageError: the log cannot be read.
            BadRegistryError: an event cannot be decoded.
        """
        with _understood("transactions"):
            await self.transactions.start()

    async def replay_shares(self) -> None:
        """Rebuild the records of share groups from the log, after the registry.

        Raises:
            StorageError: the log cannot be read.
            BadRegistryError: an event cannot be decoded.
        """
        with _understood("share groups"):
            await self.shares.start()

    async def replay_groups(self) -> None:
        """Rebuild the consumer groups from the log without starting them.

        Raises:
            StorageError: the log cannot be read.
            BadRegistryError: an event cannot be decoded.
        """
        with _understood("the consumer groups"):
            await self.groups.journal.replay()

    async def close(self) -> None:
        """Write queued events, end reads and close the log."""
        await self.compaction.close()
        await self.security.close()
        await self.transactions.close()
        await self.groups.close()
        self.shares.close()
        self.admissions.close()
        await self.redis.close()
        if self.kafka is not None:
            await self.kafka.close()
        await self.log.close()


@contextmanager
def _understood(what: str) -> Generator[None]:
    try:
        yield
    except (ValueError, LookupError, TypeError) as e:
        raise BadRegistryError(f"an event of {what} is bad{OR_LATER}: {e!r}") from e
