"""Users, ACLs and orgs over a real mesh: what gateways know, how soon, and after kill -9."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from quafka_broker.config.settings import BrokerConfig
from quafka_broker.server import Broker
from quafka_gateway.cluster.broker_link import BrokerLink
from quafka_gateway.security.directory import Directory
from quafka_gateway.security.watch import SecurityWatch
from quafka_gateway.security.writer import SecurityWriter
from quafka_mesh_ops.client import MeshClient
from quafka_mesh_ops.identity import Identity
from quafka_mesh_ops.ops.security import AlterOrg, UserChange, WatchSecurity
from quafka_telemetry.tracing import Tracer
from tests.support.cluster import Cluster
from tests.unit.broker.test_security import SHA256, rule, user

pytestmark = pytest.mark.long


class Edge:
    """What a gateway has of users and rules: a copy, the watch that feeds it, and a writer."""

    def __init__(self, client: MeshClient, org: int = 1) -> None:
        self.directory = Directory()
        self._link = BrokerLink(client, org)
        self.watch = SecurityWatch(self._link, self.directory, wants_secret=True)
        self.writer = SecurityWriter(self.directory, lambda _, org: BrokerLink(client, org))

    async def reaches_the_broker(self) -> None:
        """Wait until an op is answered: one that only reads is sent again if its connection died.

        The first op after a restart may be what finds out that the connection is of no use. If it
        writes, that is reported: nobody knows what has become of it.
        """
        await self._link.call(WatchSecurity(b"", -1, 0), None)

    async def knows(self, fact: Callable[[Directory], bool]) -> None:
        """Wait until the copy says so."""
        async with asyncio.timeout(10):
            while not fact(self.directory):
                await asyncio.sleep(0.001)


@asynccontextmanager
async def edge(client: MeshClient, org: int = 1) -> AsyncIterator[Edge]:
    """A gateway's copy, while its client is connected."""
    made = Edge(client, org)
    await client.start()
    made.watch.start()
    try:
        yield made
    finally:
        await made.watch.close()
        await client.close()


def has_user(name: str, org: int = 1) -> Callable[[Directory], bool]:
    return lambda directory: directory.user(org, name) is not None


def lacks_user(name: str, org: int = 1) -> Callable[[Directory], bool]:
    return lambda directory: directory.complete and directory.user(org, name) is None


async def test_gateways_learn_of_changes_at_once_and_outlive_the_broker(tmp_path: Path) -> None:
    nodes = [Identity.load_or_create(tmp_path / f"{name}.key") for name in ("one", "two")]
    allowed = tmp_path / "allowed"
    allowed.write_text(f"{nodes[0].node_id} orgs=*\n{nodes[1].node_id} orgs=1-2\n")
    allowed.chmod(0o600)
    settings = BrokerConfig(
        data=tmp_path / "data", mesh_listen="127.0.0.1:0", mesh_allowed_file=allowed,
        ops_listen="127.0.0.1:0",
    )  # fmt: skip
    broker = Broker(settings, Tracer())
    await broker.start()
    described = broker.describe()
    host, port = described["mesh"].rsplit(":", 1)
    clients = [MeshClient(host, int(port), who, {described["node_id"]}, Tracer()) for who in nodes]
    try:
        async with edge(clients[0]) as one, edge(clients[1]) as two:
            made = await one.writer.alter_org(1, AlterOrg(3, "blue", "", None, create=True))
            assert made.org is not None
            assert one.directory.org_named("blue") == made.org
            for org in (1, 2, 3):
                answer = await one.writer.alter_users(org, [user("alice")])
                assert answer.error_codes == [0]
                assert one.directory.user(org, "alice") is not None  # its own write
            await two.knows(has_user("alice", 2))
            assert two.directory.user(3, "alice") is None
            assert two.directory.org(3) is None
            took: list[float] = []
            for _ in range(5):
                await one.writer.alter_users(1, [user("bob")])
                await two.knows(has_user("bob"))
                began = time.perf_counter()
                await one.writer.alter_users(1, [UserChange("bob", SHA256)])
                await two.knows(lacks_user("bob"))
                took.append(time.perf_counter() - began)
            assert sorted(took)[1] < 3, took
            allowed.write_text(f"{nodes[0].node_id} orgs=*\n{nodes[1].node_id} orgs=1\n")
            await two.knows(lacks_user("alice", 2))
            assert two.directory.user(1, "alice") is not None

            await broker.close()
            assert one.directory.complete
            assert two.directory.user(1, "alice") is not None
            again = BrokerConfig(
                data=tmp_path / "data", mesh_listen=described["mesh"], mesh_allowed_file=allowed,
                ops_listen="127.0.0.1:0",
            )  # fmt: skip
            broker = Broker(again, Tracer())
            await broker.start()
            assert (await one.writer.create_acls(1, [rule()])).error_codes == [0]
            assert list(one.directory.acls(1)) == [rule()]
            await two.knows(lambda directory: bool(directory.acls(1)))
            assert two.directory.user(1, "alice") is not None
    finally:
        await broker.close()


async def test_kill_9_keeps_users_rules_and_deletions(tmp_path: Path) -> None:
    with Cluster(tmp_path) as cluster:
        node = Identity.load_or_create(tmp_path / "gateway.key")
        known = {Identity.load_or_create(tmp_path / "broker.key").node_id}
        async with edge(MeshClient(*cluster.mesh_address, node, known, Tracer())) as one:
            await one.writer.alter_users(1, [user("alice"), user("bob")])
            await one.writer.create_acls(1, [rule("t"), rule("u")])
            await one.writer.alter_users(1, [UserChange("bob", SHA256)])
            secret = one.directory.secret
            assert len(secret) == 32
            cluster.broker.kill()
            await asyncio.to_thread(cluster.start_broker)
            await one.reaches_the_broker()
            await one.writer.alter_users(1, [user("carol")])
            assert one.directory.secret == secret
        async with edge(MeshClient(*cluster.mesh_address, node, known, Tracer())) as fresh:
            await fresh.knows(has_user("carol"))
            assert fresh.directory.secret == secret
            assert {each.name for each in fresh.directory.users(1)} == {"alice", "carol"}
            assert set(fresh.directory.acls(1)) == {rule("t"), rule("u")}
            answer = await fresh.writer.alter_org(1, AlterOrg(1, "", "deleting", None))
            assert not answer.error_code
            await fresh.knows(lambda directory: not directory.orgs() and not directory.users(1))
