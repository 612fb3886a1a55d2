"""All topics whose partitions are Redis streams."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from quafka_broker.config.redis_grants import Grant
from quafka_broker.partitions.leader_epochs import LeaderEpochs
from quafka_broker.sources.redis.entry_ids import EntryIdMap
from quafka_broker.sources.redis.failures import RedisUnavailableError
from quafka_broker.sources.redis.grants import Grants
from quafka_broker.sources.redis.url import ALLOWED, RedisSource, Server, parse_source
from quafka_broker.sources.redis.worker import Worker
from quafka_broker.sources.source import BadSourceError, Waiters
from quafka_broker.topics.topic import SOURCE, Topic

if TYPE_CHECKING:
    from quafka_broker.sources.redis.partition import RedisPartition
    from quafka_broker.sources.redis.requests import ServerLink
    from quafka_broker.sources.redis.server import RedisServer

_PRUNE_EVERY = 1_000
NEEDS_EXTRA = "the broker was installed without the extra quafka[redis]"


class RedisSettings(NamedTuple):
    """The broker's settings for Redis.

    Attributes:
        allowed: what the topics of each org may name.
        secrets: the folder of the files that `auth=file:NAME` names.
        ca_file: the authorities that rediss:// trusts; None: the system's.
        servers_per_org: the number of servers that the topics of an org may use.
        seconds: the longest wait for an answer.
        answer_bytes: the longest answer.
        queued_bytes: the bytes of batches that may wait for one server.
    """

    allowed: tuple[Grant, ...] = ()
    secrets: Path | None = None
    ca_file: Path | None = None
    producer_expiry_ms: int = 86_400_000
    servers_per_org: int = 8
    seconds: float = 5.0
    answer_bytes: int = 32 << 20
    queued_bytes: int = 64 << 20


class RedisStreams:
    """The partitions and servers of all such topics. A `TopicSource`."""

    def __init__(
        self,
        settings: RedisSettings,
        waiters: Waiters,
        epochs: LeaderEpochs,
        cluster_id: Callable[[], str],
        is_live: Callable[[Topic], bool],
    ) -> None:
        if settings.allowed:  # at the start: the import takes some 20 ms of the event loop
            import_module("quafka_broker.sources.redis.partition")
        self._settings = settings
        self._grants = Grants(settings.allowed)
        self._waiters = waiters
        self._epochs = epochs
        self._cluster_id = cluster_id
        self._is_live = is_live
        self._worker = Worker()
        self._servers: dict[tuple[int, Server, str], RedisServer] = {}
        self._closing: set[asyncio.Task[None]] = set()
        self._partitions: dict[tuple[bytes, int], tuple[Topic, RedisPartition]] = {}
        self._prune_at = _PRUNE_EVERY

    @property
    def leader_epoch(self) -> int:
        """The broker's current epoch: Redis keeps none."""
        return self._epochs.current

    def unchangeable(self, topic: Topic) -> str:
        """Nothing prevents changes. A deleted topic leaves its streams unchanged."""
        return ""

    def check(self, org: int, partitions: int, configs: Mapping[str, str]) -> None:
        """Check the configs of a topic to create or change, if they name a source.

        Raises:
            BadSourceError: the broker cannot serve such a topic; without any secret.
        """
        if not configs.get(SOURCE):
            return
        try:
            source = parse_source(configs[SOURCE])
            self._grants.check(source, org)
            source.check_partitions(partitions)
            self._check_room(org, source.server)
        except BadSourceError as e:
            raise BadSourceError(f"{SOURCE}: {e}. Allowed: {ALLOWED}") from e
        if "compact" in configs.get("cleanup.policy", ""):
            raise BadSourceError("cleanup.policy: a topic from Redis cannot be compacted")
        if find_spec("redis") is None:
            raise BadSourceError(f"{SOURCE}: {NEEDS_EXTRA}")

    @property
    def servers(self) -> list[tuple[int, RedisServer]]:
        """The servers of all topics used since the start, with their orgs."""
        return [(org, server) for (org, *_), server in self._servers.items()]

    def servers_of(self, topics: Iterable[Topic]) -> dict[RedisServer, int]:
        """The servers of these topics, and how many of the topics each has."""
        found: dict[RedisServer, int] = {}
        for topic in topics:
            server = self.server_of(topic)
            found[server] = found.get(server, 0) + 1
        return found

    def server_of(self, topic: Topic) -> RedisServer:
        """The server of a topic."""
        return self._server(parse_source(topic.configs[SOURCE]), topic.org)

    @property
    def partitions(self) -> int:
        """The number of partitions used since the start."""
        return len(self._partitions)

    def partition(self, topic: Topic, number: int) -> RedisPartition:
        """One partition of a topic."""
        known = self._partitions.get((topic.uuid, number))
        if known is not None and known[0].configs is topic.configs:
            return known[1]
        partition = self._new_partition(topic, number)
        self._partitions[topic.uuid, number] = topic, partition
        if len(self._partitions) >= self._prune_at:
            self._prune()
        return partition

    def bounds(self, topic: Topic, number: int) -> tuple[int, int]:
        """The last known log start and high watermark."""
        found = self.partition(topic, number)
        return max(0, found.log_start), max(0, found.high_watermark)

    def _prune(self) -> None:
        """Drop the partitions of deleted topics, and the servers that only they used."""
        live = {key: each for key, each in self._partitions.items() if self._is_live(each[0])}
        self._partitions = live
        self._prune_at = max(2 * len(live), _PRUNE_EVERY)
        used = {partition.server for _, partition in live.values()}
        for key, server in list(self._servers.items()):
            if server not in used:
                del self._servers[key]
                closing = asyncio.get_running_loop().create_task(server.close())
                self._closing.add(closing)
                closing.add_done_callback(self._closing.discard)

    def _new_partition(self, topic: Topic, number: int) -> RedisPartition:
        # Imported late, because few brokers have such topics.
        from quafka_broker.sources.redis.batches import Encoder
        from quafka_broker.sources.redis.partition import RedisPartition
        from quafka_broker.sources.redis.writer import StreamConfig

        source = parse_source(topic.configs[SOURCE])
        append_time = topic.configs.get("message.timestamp.type") == "LogAppendTime"
        config = StreamConfig(
            Encoder(EntryIdMap(source.bits), source.format, append_time),
            self._cluster_id().encode(),
            append_time,
            self._settings.producer_expiry_ms,
            source.replicas,
        )
        return RedisPartition(
            topic.partition_id(number), source.key(number), self.server_of(topic), config,
            self._waiters, self._epochs,
        )  # fmt: skip

    # --- servers ----------------------------------------------------------------------------

    def _server(self, source: RedisSource, org: int) -> RedisServer:
        """The server for an org, which shares no connection with other orgs.

        Of a source that the settings allow no more, it is one to which no connection is opened.
        """
        from quafka_broker.sources.redis.server import RedisServer

        server, refusal = source.server, self._grants.refusal(source, org)
        found = self._servers.get((org, server, refusal))
        if found is None:
            found = RedisServer(
                server.name, lambda: self._link(server, org, refusal), self._worker,
                self._settings.queued_bytes,
            )  # fmt: skip
            self._servers[org, server, refusal] = found
        return found

    def _check_room(self, org: int, server: Server) -> None:
        """Raise BadSourceError if the org uses the maximum number of other servers."""
        most = self._settings.servers_per_org
        if self._others(org, server) >= most:
            self._prune()
            if self._others(org, server) >= most:
                raise BadSourceError(
                    f"topics of the org use {most} other Redis servers: "
                    "the broker's setting sources.redis.servers.per.org"
                )

    def _others(self, org: int, server: Server) -> int:
        """The number of other servers that the org has connections to."""
        return sum(
            each.has_link and key[0] == org and key[1] != server
            for key, each in self._servers.items()
        )

    def _link(self, server: Server, org: int, refusal: str) -> ServerLink:
        """Make a link to a server, unless the settings forbid it. Raises RedisUnavailableError."""
        settings = self._settings
        if refusal:
            raise RedisUnavailableError(refusal)
        try:
            self._check_room(org, server)
        except BadSourceError as e:
            raise RedisUnavailableError(str(e)) from e
        try:
            from quafka_broker.sources.redis.client import ClientLimits
            from quafka_broker.sources.redis.link import Link
        except ImportError as e:
            raise RedisUnavailableError(NEEDS_EXTRA) from e
        limits = ClientLimits(settings.seconds, settings.answer_bytes)
        return Link(server, settings.secrets, settings.ca_file, limits)

    async def close(self) -> None:
        """End all connections, and the worker."""
        await asyncio.gather(*self._closing)
        for server in self._servers.values():
            await server.close()
        await self._worker.close()
