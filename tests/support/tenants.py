"""Tenants over stand-ins for a broker."""

from __future__ import annotations

from quafka_gateway.cluster.broker_link import BrokerLink
from quafka_gateway.cluster.cluster import Cluster
from quafka_gateway.cluster.routes import OrgRoutes, to_one
from quafka_gateway.listeners import KafkaListener, SecurityProtocol
from quafka_gateway.memory import ResponseMemory
from quafka_gateway.security.directory import Directory
from quafka_gateway.tenant import OrgsMemory, Tenant, TenantLimits
from quafka_gateway.tenants import Tenants
from quafka_telemetry.tracing import Tracer

LISTENER = KafkaListener("PLAINTEXT", SecurityProtocol.PLAINTEXT, "localhost", 1, ("localhost", 1))
"""The listener of clients that are made without a socket."""


def tenant_over(
    link: BrokerLink,
    memory: ResponseMemory,
    org_id: int = 1,
    *,
    fetch_sessions: int = 0,
    cache_bytes: int = 0,
) -> Tenant:
    """A tenant with one broker."""
    limits = TenantLimits(
        fetch_sessions,
        cache_bytes,
        fetch_backfill_bytes=1 << 20,
        session_partitions=1_000,
        all_sessions_partitions=1_000,
    )
    cluster = Cluster([link], OrgRoutes(to_one("broker:1"), org_id))
    return Tenant(
        org_id, cluster, limits, OrgsMemory(limits, memory).open(org_id), Tracer(), [None]
    )


def only(tenant: Tenant) -> Tenants:
    """The tenants of a gateway that serves one org."""
    return Tenants(lambda _: tenant, tenant.org_id, Directory())
