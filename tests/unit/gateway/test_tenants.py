"""Which orgs a gateway serves, how many at a time, and what ends with an org."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any, cast

import pytest

from quafka_gateway.cluster.routes import to_one
from quafka_gateway.memory import ResponseMemory
from quafka_gateway.security.directory import Directory
from quafka_gateway.tenant import OrgsMemory, Tenant, TenantLimits, make_tenant
from quafka_gateway.tenants import OrgRefusedError, Tenants
from quafka_mesh_ops.client import MeshClient
from quafka_mesh_ops.ops.security import OrgRecord, SecurityChange, WatchSecurityResp
from quafka_proto.schema.quafka import OrgLimit
from quafka_telemetry.tracing import Tracer

LIMITS = TenantLimits(fetch_sessions=10, fetch_cache_bytes=10, fetch_backfill_bytes=1)
OWN = 1


class Client:
    """A connection."""

    def __init__(self) -> None:
        self.closed = ""

    def close(self, reason: str) -> None:
        self.closed = reason


class Gateway:
    """As much of a gateway as its orgs need."""

    def __init__(self, most: int = 10, labels: int = 10) -> None:
        self.directory = Directory()
        self.memory = OrgsMemory(LIMITS, ResponseMemory(1 << 20))
        self.tenants = Tenants(self._make, OWN, self.directory, most, labels)
        self._version = 0

    def _make(self, org: int) -> Tenant:
        client = cast(MeshClient, cast(Any, object()))
        table = to_one("b:1")
        return make_tenant(org, table, lambda _: client, LIMITS, self.memory, Tracer())

    def record(
        self, org: int, state: str = "active", *, most: float | None = None, removed: bool = False
    ) -> None:
        limits = [] if most is None else [OrgLimit("max.connections", most)]
        self._version += 1
        change = SecurityChange(removed, OrgRecord(org, f"org-{org}", state, limits))
        self.directory.learn(WatchSecurityResp(b"i", self._version, False, False, [change]))


async def test_a_client_enters_an_org_that_is_recorded_or_named_by_the_settings() -> None:
    gateway = Gateway()
    tenants = gateway.tenants
    assert tenants.enter(OWN, Client()) is tenants.own
    with pytest.raises(OrgRefusedError, match="no such org"):
        tenants.enter(2, Client())
    assert tenants.named_by_settings("2") == 2
    assert tenants.named_by_settings("org-3") is None
    assert tenants.enter(2, Client()).name == "2"
    gateway.record(3)
    assert tenants.named_by_settings("org-3") == 3
    assert tenants.enter(3, Client()).name == "org-3"
    gateway.record(4, "suspended")
    with pytest.raises(OrgRefusedError, match="suspended"):
        tenants.enter(4, Client())
    assert [tenant.org_id for tenant in tenants] == [1, 2, 3]
    await tenants.close()


async def test_connections_of_a_suspended_org_are_closed_and_its_tenant_stays() -> None:
    gateway = Gateway()
    for org in (2, 3):
        gateway.record(org)
    two, three = Client(), Client()
    tenant = gateway.tenants.enter(2, two)
    gateway.tenants.enter(3, three)
    gateway.record(2, "suspended")
    assert (two.closed, three.closed) == ("the org is suspended", "")
    assert gateway.tenants.find(2) is tenant
    gateway.tenants.leave(tenant, two)
    gateway.record(2)
    assert gateway.tenants.enter(2, Client()) is tenant
    await gateway.tenants.close()


@pytest.mark.parametrize("removed", [False, True])
async def test_a_deleted_org_loses_connections_and_tenant(removed: bool) -> None:
    gateway = Gateway()
    gateway.record(2)
    client = Client()
    tenant = gateway.tenants.enter(2, client)
    gateway.record(2, "deleting", removed=removed)
    assert client.closed
    assert gateway.tenants.find(2) is None
    gateway.tenants.leave(tenant, client)
    assert gateway.tenants.find(2) is None
    await gateway.tenants.close()


async def test_orgs_that_are_gone_after_a_new_beginning_lose_their_clients() -> None:
    gateway = Gateway()
    gateway.record(2)
    own, other = Client(), Client()
    gateway.tenants.enter(OWN, own)
    gateway.tenants.enter(2, other)
    gateway.directory.learn(WatchSecurityResp(b"j", 1, True, False, []))
    assert (own.closed, other.closed) == ("", "no such org")
    await gateway.tenants.close()


async def test_an_org_has_as_many_connections_as_its_limit() -> None:
    gateway = Gateway()
    gateway.record(2, most=2)
    clients = [Client() for _ in range(3)]
    tenant, _ = [gateway.tenants.enter(2, client) for client in clients[:2]]
    with pytest.raises(OrgRefusedError, match="connections=2 of the org"):
        gateway.tenants.enter(2, clients[2])
    gateway.tenants.leave(tenant, clients[0])
    gateway.tenants.enter(2, clients[2])
    await gateway.tenants.close()


async def test_tenants_without_clients_make_room_and_end_after_a_while() -> None:
    gateway = Gateway(most=3)
    for org in (2, 3, 4):
        gateway.record(org)
    tenants, client = gateway.tenants, Client()
    own = tenants.enter(OWN, client)
    two, three = tenants.enter(2, client), tenants.enter(3, client)
    with pytest.raises(OrgRefusedError, match="orgs=3 orgs"):
        tenants.enter(4, client)
    tenants.leave(three, client)
    tenants.leave(two, client)
    tenants.leave(own, client)
    tenants.enter(4, client)
    assert [tenant.org_id for tenant in tenants] == [1, 2, 4]
    tenants.sweep(asyncio.get_running_loop().time() + 61)
    assert [tenant.org_id for tenant in tenants] == [1, 4]
    await tenants.close()


async def test_orgs_without_a_label_are_counted_together_for_good() -> None:
    gateway = Gateway(most=3, labels=1)
    for org in (2, 3):
        gateway.record(org)
    tenants, client = gateway.tenants, Client()
    for org, requests in ((OWN, 1), (2, 20), (3, 300)):
        tenants.enter(org, client).traffic.requests = requests

    def counted() -> dict[str, tuple[int, int]]:
        return {label: (many, one.requests) for label, many, one in tenants.traffic()}

    assert counted() == {"1": (1, 1), "other": (2, 320)}
    two = tenants.find(2)
    assert two is not None
    tenants.leave(two, client)
    tenants.sweep(asyncio.get_running_loop().time() + 61)
    assert counted() == {"1": (1, 1), "other": (1, 320)}
    await tenants.close()


async def test_orgs_share_the_descriptors_of_a_brokers_files() -> None:
    limits = replace(LIMITS, records_by_place=True)
    memory = OrgsMemory(limits, ResponseMemory(1 << 20))
    client = cast(MeshClient, cast(Any, object()))
    one, two = (
        make_tenant(org, to_one("b:1"), lambda _: client, limits, memory, Tracer())
        for org in (1, 2)
    )
    (first,), (second,) = one.reader.readers, two.reader.readers
    assert first.files is not None
    assert first.files is second.files
    await one.close()
    await two.close()
    await memory.close()
