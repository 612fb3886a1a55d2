"""Each org has its own routes, ops, sessions and caches, all made in one place."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, cast

import quafka_gateway
from quafka_gateway.cluster.routes import parse
from quafka_gateway.memory import ResponseMemory
from quafka_gateway.tenant import OrgsMemory, Tenant, TenantLimits, make_tenant
from quafka_mesh_ops.client import MeshClient
from quafka_mesh_ops.ops.base import AnyOp
from quafka_mesh_ops.ops.groups import Heartbeat, HeartbeatResp
from quafka_telemetry.tracing import Tracer

TABLE = parse("2/* = b:1, logs.* = b:1, * = a:1")
LIMITS = TenantLimits(fetch_sessions=1, fetch_cache_bytes=10, fetch_backfill_bytes=1)
_KNOW_ORGS = {
    "config.py",  # the setting
    "server.py",  # makes the tenant from the setting
    "tenant.py",
    "tenants.py",  # one tenant for each org
    "status.py",  # shows it
    "cluster/broker_link.py",  # sends it with each op, for its tenant
    "cluster/follower.py",  # asks where shards are, which concerns no org
    "edge/authentication.py",  # the user's record has it
    "edge/connection.py",  # from there to the tenants
    "handlers/describe_orgs.py",  # for operators
    "handlers/alter_org.py",
    "edge/request_trace.py",  # reads it from the tenant
}


class Client:
    """A mesh client that records the org of each op."""

    connected = True

    def __init__(self, address: str) -> None:
        self.address = address
        self.orgs: list[int] = []

    async def call(self, op: AnyOp, *, org_id: int, **_: Any) -> HeartbeatResp:
        self.orgs.append(org_id)
        return HeartbeatResp(0)


class Gateway:
    """As much of a gateway as two tenants share."""

    def __init__(self) -> None:
        self.clients: dict[str, Client] = {}
        self.memory = OrgsMemory(LIMITS, ResponseMemory(1 << 20))

    def client_of(self, address: str) -> MeshClient:
        return cast(MeshClient, self.clients.setdefault(address, Client(address)))

    def tenant(self, org_id: int) -> Tenant:
        return make_tenant(org_id, TABLE, self.client_of, LIMITS, self.memory, Tracer())


async def test_tenants_share_mesh_clients_and_nothing_else() -> None:
    gateway = Gateway()
    one, two = gateway.tenant(1), gateway.tenant(2)
    assert (one.name, two.name) == ("1", "2")
    assert one.cluster.routes.brokers == ("b:1", "a:1")
    assert two.cluster.routes.brokers == ("b:1",)
    assert sorted(gateway.clients) == ["a:1", "b:1"]
    assert one.cluster.only is None
    assert two.cluster.only is two.cluster.home
    for tenant in (two, one):
        await tenant.groups.of("g").heartbeat(Heartbeat("g", 1, "m", ""), None)
    assert (gateway.clients["b:1"].orgs, gateway.clients["a:1"].orgs) == ([2], [1])
    assert one.fetch_sessions is not two.fetch_sessions
    assert one.response_cache is not two.response_cache
    assert not set(map(id, one.reader.readers)) & set(map(id, two.reader.readers))
    await one.close()
    await two.close()


def test_nothing_else_in_the_gateway_knows_an_org_s_id() -> None:
    package = Path(quafka_gateway.__file__).parent
    found = {
        str(path.relative_to(package))
        for path in package.rglob("*.py")
        if re.search(r"\borg_id\b", path.read_text())
    }
    # Records name their orgs, and these folders keep them by org.
    found = {path for path in found if not path.startswith(("security/", "quotas/"))}
    assert found == _KNOW_ORGS
