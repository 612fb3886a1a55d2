"""One org as this gateway serves it: id and name, routes and brokers, caches and limits.

Everything that belongs to one org is made here, so that no other module needs the org's id. Record
batches, fetch sessions and encoded responses are kept per tenant, so no cache key has the org.
`tenants.py` has the orgs that clients are connected for.
"""

from __future__ import annotations

import operator
import os
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from quafka_gateway.cluster.admin import Admin
from quafka_gateway.cluster.broker_link import BrokerLink
from quafka_gateway.cluster.cluster import Cluster
from quafka_gateway.cluster.groups import Groups
from quafka_gateway.cluster.routes import OrgRoutes, Route
from quafka_gateway.cluster.shares import ClusterShares
from quafka_gateway.cluster.topic_names import TopicNames
from quafka_gateway.cluster.topics import ClusterTopics
from quafka_gateway.cluster.transactions import ClusterTransactions
from quafka_gateway.fair_budget import FairBudget, OrgShare
from quafka_gateway.fetch.broker_files import BrokerFiles
from quafka_gateway.fetch.cluster_reader import ClusterReader
from quafka_gateway.fetch.reader import FetchReader
from quafka_gateway.fetch.session import FetchSessions
from quafka_gateway.fetch.session_table import SessionBudget, SessionShares
from quafka_gateway.fetch.share_sessions import ShareSession, ShareSessions
from quafka_gateway.fetch.store_objects import StoreObjects
from quafka_gateway.memory import OrgResponses, ResponseMemory
from quafka_gateway.responses.response_cache import ResponseCache
from quafka_gateway.transaction_traces import TransactionTraces
from quafka_loop.fair_turns import FairTurns
from quafka_mesh_ops.ops.places import OpenPlaces, OpenPlacesResp
from quafka_mesh_ops.ops.shares import ReleaseRecords
from quafka_mesh_ops.shard_client import OpClient
from quafka_objects.asynchronous import AsyncObjectStore
from quafka_telemetry.tracing import Tracer

_CACHED_RESPONSE_BYTES = 64 << 20


@dataclass(frozen=True, slots=True)
class TenantLimits:
    """What orgs may hold of a gateway's memory.

    Attributes:
        fetch_sessions: the number of fetch sessions of all orgs together; 0: none.
        fetch_cache_bytes: the bytes of record batches of all orgs together that are kept for
            further consumers; 0: none.
        fetch_backfill_bytes: the bytes of concurrent reads from a broker for consumers that lag.
        session_partitions: the partitions in one fetch session; each takes some 400 bytes.
        all_sessions_partitions: the partitions in all fetch sessions together.
        share_sessions: the share sessions of one org's clients.
        records_by_place: read the files of a broker on this host, if it hands them over.
    """

    fetch_sessions: int
    fetch_cache_bytes: int
    fetch_backfill_bytes: int
    session_partitions: int = 100_000
    all_sessions_partitions: int = 400_000
    records_by_place: bool = False
    share_sessions: int = 10_000


class OrgsMemory:
    """What all orgs of a gateway share: its memory, each with a fair share, and brokers' files.

    Attributes:
        responses: counts the response bytes of all clients.
    """

    def __init__(
        self, limits: TenantLimits, responses: ResponseMemory, store: AsyncObjectStore | None = None
    ) -> None:
        """`store`: the store of the brokers' logs, which this gateway may read."""
        self.responses = responses
        self._store = store
        self._objects = None
        if store is not None and limits.records_by_place:
            self._objects = StoreObjects(store)
        self._records = FairBudget(limits.fetch_cache_bytes)
        self._responses = FairBudget(_CACHED_RESPONSE_BYTES)
        self._sessions = SessionBudget(limits.fetch_sessions, limits.all_sessions_partitions)
        self._by_place = limits.records_by_place
        self._files: dict[str, _SharedFiles] = {}

    def open(self, org_id: int) -> OrgMemory:
        """Return the shares of one more org."""
        return OrgMemory(
            self.responses.of(org_id), self._records.open(), self._responses.open(),
            self._sessions.open(), self._objects,
        )  # fmt: skip

    def files_of(self, broker: str, link: BrokerLink) -> BrokerFiles | None:
        """The files of a broker that may be on this host; None: records come by value.

        `link`: of one more org; it is asked over the latest.
        """
        if not self._by_place:
            return None
        shared = self._files.get(broker)
        if shared is None:
            shared = self._files[broker] = _SharedFiles(link)
        shared.link = link
        return shared.files

    @property
    def descriptors(self) -> int:
        """Open descriptors of brokers' files."""
        return sum(shared.files.descriptors for shared in self._files.values())

    async def close(self) -> None:
        """Close all descriptors, and the store."""
        for shared in self._files.values():
            await shared.files.close()
        if self._store is not None:
            await self._store.close()


class _SharedFiles:
    """The files of one broker, and the link over which they are asked for."""

    def __init__(self, link: BrokerLink) -> None:
        self.link = link
        self.files = BrokerFiles(self._open_places)

    def _open_places(self, op: OpenPlaces) -> Awaitable[OpenPlacesResp]:
        return self.link.open_places(op)


class OrgMemory(NamedTuple):
    """One org's shares of the gateway's memory.

    Attributes:
        in_flight: counts the response bytes of the org's clients.
        records: of the fetch cache.
        responses: of the cache of responses.
        sessions: of the fetch sessions.
        objects: the reader of the brokers' store, which all orgs have together; None: there is
            none.
    """

    in_flight: OrgResponses
    records: OrgShare
    responses: OrgShare
    sessions: SessionShares
    objects: StoreObjects | None = None


class OrgClient(Protocol):
    """A connection of one of the org's clients."""

    def close(self, reason: str) -> None:
        """Close the connection now."""
        ...


@dataclass(slots=True, eq=False)
class Traffic:
    """What the clients of one org have sent and received since the tenant was made."""

    requests: int = 0
    received: int = 0
    sent: int = 0

    def __add__(self, other: Traffic) -> Traffic:
        return Traffic(
            self.requests + other.requests, self.received + other.received, self.sent + other.sent
        )


class FetchFigures(NamedTuple):
    """What the fetches of one org, or of several, have done since the start, and hold now.

    Attributes:
        hits: fetches answered from memory.
        misses: fetches for which a chunk was read first.
        polls: fetches left to brokers.
        by_place: bytes of record batches that brokers have returned by place.
        by_value: the other bytes of record batches that brokers have returned.
        withdrawn: answers by place that were fetched again by value.
        parked: fetches left to brokers that have no answer yet.
        sessions: fetch sessions.
        session_partitions: the partitions in them.
        cached_bytes: bytes of record batches in the cache.
    """

    hits: int = 0
    misses: int = 0
    polls: int = 0
    by_place: int = 0
    by_value: int = 0
    withdrawn: int = 0
    parked: int = 0
    sessions: int = 0
    session_partitions: int = 0
    cached_bytes: int = 0

    def plus(self, other: FetchFigures) -> FetchFigures:
        """The figures of both together."""
        return FetchFigures(*map(operator.add, self, other))

    @property
    def counters(self) -> FetchFigures:
        """The figures that only grow."""
        return self._replace(parked=0, sessions=0, session_partitions=0, cached_bytes=0)


class Tenant:
    """One org.

    Attributes:
        org_id: the org's id on the mesh and in traces.
        name: the org as operators see it.
        clients: the connections of the org's clients, each with the name by which it has named
            the org, or "".
        traffic: counts requests and bytes.
        transaction_traces: the spans that the org's transactional producers began with.
        cluster: the links to the org's brokers, by its routes.
        topics: ops on topics, records and producers.
        names: the names of topics by their ids.
        groups: ops on consumer groups and their offsets.
        transactions: ops on transactions.
        admin: administrators' ops.
        reader: reads partitions, from the cache or from their broker.
        fetch_sessions: the fetch sessions of the org's clients; sessions outlive connections.
        shares: ops on the records of share groups.
        share_sessions: the share sessions of the org's clients; they end with their connections.
        response_memory: counts the response bytes of the org's clients.
        response_cache: keeps long responses that many clients of the org ask for.
    """

    __slots__ = (
        "admin", "clients", "cluster", "fetch_sessions", "groups", "name", "names", "org_id",
        "reader", "response_cache", "response_memory", "share_sessions", "shares", "topics",
        "traffic", "transaction_traces", "transactions",
    )  # fmt: skip

    def __init__(
        self,
        org_id: int,
        cluster: Cluster,
        limits: TenantLimits,
        memory: OrgMemory,
        tracer: Tracer,
        broker_files: Sequence[BrokerFiles | None],
    ) -> None:
        """`broker_files`: those of each link, where records may come by place."""
        self.org_id = org_id
        self.name = str(org_id)
        self.clients: dict[OrgClient, str] = {}
        self.traffic = Traffic()
        self.transaction_traces = TransactionTraces()
        self.cluster = cluster
        self.topics = ClusterTopics(cluster)
        self.names = TopicNames(self.topics.describe)
        self.groups = Groups(cluster)
        self.transactions = ClusterTransactions(cluster)
        self.admin = Admin(cluster)
        self.reader = ClusterReader(
            cluster,
            [
                FetchReader(
                    link,
                    memory.in_flight,
                    limits.fetch_cache_bytes,
                    limits.fetch_backfill_bytes,
                    tracer,
                    files,
                    memory.records,
                    memory.objects,
                )
                for link, files in zip(cluster.links, broker_files, strict=True)
            ],
        )
        self.fetch_sessions = FetchSessions(
            limits.fetch_sessions,
            limits.all_sessions_partitions,
            limits.session_partitions,
            shares=memory.sessions,
        )
        self.shares = ClusterShares(cluster)
        self.share_sessions = ShareSessions(
            os.urandom(8), limits.share_sessions, limits.all_sessions_partitions
        )
        self.response_memory = memory.in_flight
        self.response_cache = ResponseCache(
            _CACHED_RESPONSE_BYTES, memory.in_flight, memory.responses
        )

    def figures(self) -> FetchFigures:
        """What the org's fetches have done and hold."""
        hits = misses = polls = by_place = by_value = withdrawn = parked = cached = 0
        for reader in self.reader.readers:
            placed = reader.placed
            hits += reader.hits
            misses += reader.misses
            polls += reader.polls
            by_place += placed.bytes_by_place
            by_value += placed.bytes_by_value
            withdrawn += placed.missed
            parked += reader.parked
            cached += reader.cached_bytes
        sessions = self.fetch_sessions
        return FetchFigures(
            hits, misses, polls, by_place, by_value, withdrawn, parked, len(sessions),
            sessions.partitions, cached,
        )  # fmt: skip

    def connection_lost(self, connection: int) -> None:
        """A client's connection is gone: its members of share groups give back their records."""
        self._release(self.share_sessions.connection_lost(connection))

    def _release(self, ended: Iterable[ShareSession]) -> None:
        for session in ended:
            self.shares.release_later(ReleaseRecords(*session.key, [], session.id))

    @property
    def party(self) -> int:
        """The org as one of the parties that share the event loop."""
        return self.org_id

    async def close(self) -> None:
        """Stop reading ahead, and release the leases and the memory."""
        self._release(self.share_sessions.clear())
        await self.shares.close()
        await self.reader.close()
        self.fetch_sessions.table.clear()
        self.response_cache.clear()


def make_tenant(
    org_id: int,
    table: Sequence[Route],
    client_of: Callable[[str], OpClient],
    limits: TenantLimits,
    memory: OrgsMemory,
    tracer: Tracer,
    shards: int = 0,
    cluster_id: str = "",
    turns: FairTurns | None = None,
    *,
    by_name: bool = False,
) -> Tenant:
    """The tenant of an org that the route table sends to brokers.

    `shards`: the number of shards of the cluster with this id; 0: the table alone says where topics
    are. `by_name`: see `OrgRoutes`.
    `client_of` returns the mesh client for a broker's address. Clients, `memory`, `tracer` and
    `turns` are shared by all tenants of a gateway.
    """
    routes = OrgRoutes(table, org_id, shards, by_name=by_name)
    links = [
        BrokerLink(client_of(broker), org_id, broker if shards else "", turns)
        for broker in routes.brokers
    ]
    files = [memory.files_of(*each) for each in zip(routes.brokers, links, strict=True)]
    return Tenant(
        org_id, Cluster(links, routes, cluster_id), limits, memory.open(org_id), tracer, files
    )
