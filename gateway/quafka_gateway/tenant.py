"""One org as this gateway serves it: id and name, routes and brokers, caches and limits.

Everything that belongs to one org is made here, so that no other module needs the org's id. Record
batches, fetch sessions and encoded responses are kept per tenant, so no cache key has the org.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from quafka_gateway.cluster.admin import Admin
from quafka_gateway.cluster.broker_link import BrokerLink
from quafka_gateway.cluster.cluster import Cluster
from quafka_gateway.cluster.groups import Groups
from quafka_gateway.cluster.routes import OrgRoutes, Route
from quafka_gateway.cluster.topics import Topics
from quafka_gateway.cluster.transactions import Transactions
from quafka_gateway.fetch.broker_files import BrokerFiles
from quafka_gateway.fetch.cluster_reader import ClusterReader
from quafka_gateway.fetch.reader import FetchReader
from quafka_gateway.fetch.session import FetchSessions
from quafka_gateway.memory import ResponseMemory
from quafka_gateway.responses.response_cache import ResponseCache
from quafka_mesh_ops.client import MeshClient
from quafka_telemetry.tracing import Tracer

_CACHED_RESPONSE_BYTES = 64 << 20


@dataclass(frozen=True, slots=True)
class TenantLimits:
    """What one org may hold of a gateway's memory.

    Attributes:
        fetch_sessions: the number of fetch sessions; 0: none.
        fetch_cache_bytes: the bytes of record batches kept for further consumers; 0: none.
        fetch_backfill_bytes: the bytes of concurrent reads from a broker for consumers that lag.
        session_partitions: the partitions in one fetch session; each takes some 400 bytes.
        all_sessions_partitions: the partitions in all fetch sessions together.
        records_by_place: read the files of a broker on this host, where it hands them over.
    """

    fetch_sessions: int
    fetch_cache_bytes: int
    fetch_backfill_bytes: int
    session_partitions: int = 100_000
    all_sessions_partitions: int = 400_000
    records_by_place: bool = False


class Tenant:
    """One org.

    Attributes:
        org_id: the org's id on the mesh and in traces.
        name: the org as operators see it.
        cluster: the links to the org's brokers, by its routes.
        topics: ops on topics, records and producers.
        groups: ops on consumer groups and their offsets.
        transactions: ops on transactions.
        admin: administrators' ops.
        reader: reads partitions, from the cache or from their broker.
        fetch_sessions: the fetch sessions of the org's clients; sessions outlive connections.
        response_cache: keeps long responses that many clients of the org ask for.
    """

    __slots__ = (
        "admin", "cluster", "fetch_sessions", "groups", "name", "org_id", "reader",
        "response_cache", "topics", "transactions",
    )  # fmt: skip

    def __init__(
        self,
        org_id: int,
        cluster: Cluster,
        limits: TenantLimits,
        memory: ResponseMemory,
        tracer: Tracer,
    ) -> None:
        self.org_id = org_id
        self.name = str(org_id)
        self.cluster = cluster
        self.topics = Topics(cluster)
        self.groups = Groups(cluster)
        self.transactions = Transactions(cluster)
        self.admin = Admin(cluster)
        cache_bytes = limits.fetch_cache_bytes // len(cluster.links)
        self.reader = ClusterReader(
            cluster,
            [
                FetchReader(
                    link,
                    memory,
                    cache_bytes,
                    limits.fetch_backfill_bytes,
                    tracer,
                    BrokerFiles(link.open_places) if limits.records_by_place else None,
                )
                for link in cluster.links
            ],
        )
        self.fetch_sessions = FetchSessions(
            limits.fetch_sessions, limits.all_sessions_partitions, limits.session_partitions
        )
        self.response_cache = ResponseCache(_CACHED_RESPONSE_BYTES, memory)

    async def close(self) -> None:
        """Stop reading ahead and let the leases go."""
        await self.reader.close()


def make_tenant(
    org_id: int,
    table: Sequence[Route],
    client_of: Callable[[str], MeshClient],
    limits: TenantLimits,
    memory: ResponseMemory,
    tracer: Tracer,
) -> Tenant:
    """The tenant of an org that the route table sends to brokers.

    `client_of` returns the mesh client for a broker's address. Clients, `memory` and `tracer` may
    be shared by all tenants of a gateway.
    """
    routes = OrgRoutes(table, org_id)
    links = [BrokerLink(client_of(broker), org_id) for broker in routes.brokers]
    return Tenant(org_id, Cluster(links, routes), limits, memory, tracer)
