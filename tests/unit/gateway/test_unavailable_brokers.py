"""Calls to brokers that are disconnected, or do not answer, end within a bounded time."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from quafka_gateway.cluster import group_coordinator
from quafka_gateway.cluster.admin import Admin
from quafka_gateway.cluster.broker_link import BrokerLink
from quafka_gateway.cluster.cluster import Cluster
from quafka_gateway.cluster.groups import Groups
from quafka_gateway.cluster.routes import OrgRoutes, parse
from quafka_gateway.cluster.topics import ClusterTopics
from quafka_gateway.context import RequestContext
from quafka_gateway.handlers import alter_replica_log_dirs
from quafka_mesh_ops.client import MeshClient
from quafka_mesh_ops.errors import PeerUnavailableError
from quafka_mesh_ops.ops.admin import CreatePartitions, PartitionsByTopic
from quafka_mesh_ops.ops.group_offsets import CommitOffset, CommitOffsets
from quafka_mesh_ops.ops.topics import CreateTopic, DeleteTopic
from quafka_proto.errors import ErrorCode
from quafka_proto.schema.log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
)
from quafka_telemetry.tracing import NO_SPAN

ROUTES = OrgRoutes(parse("logs.*=b:1,*=a:1"), 1)


class Disconnected:
    """A mesh client without a connection; records how long each call would have waited."""

    connected = False
    seconds_disconnected = 60.0

    def __init__(self) -> None:
        self.waits: list[float] = []

    async def call(self, *_args: object, deadline: float, **_more: object) -> object:
        self.waits.append(deadline)
        raise PeerUnavailableError("there is no connection")


class Silent:
    """A mesh client whose broker never answers."""

    connected = True
    seconds_disconnected = 0.0

    async def call(self, *_args: object, **_more: object) -> object:
        return await asyncio.get_running_loop().create_future()


def cluster(*clients: object) -> Cluster:
    return Cluster([BrokerLink(cast(MeshClient, client), 1) for client in clients], ROUTES)


async def test_administrators_wait_once_in_a_series_of_calls() -> None:
    gone = Disconnected()
    admin = Admin(cluster(gone, gone))
    for _ in range(3):
        answer = await admin.create_partitions(CreatePartitions("t", 2, False), None)
        assert answer.error_code == ErrorCode.REQUEST_TIMED_OUT
    assert gone.waits == [pytest.approx(1.0, abs=0.1)]
    await asyncio.sleep(0.3)  # a later call waits again: the broker may be back soon
    await admin.create_partitions(CreatePartitions("t", 2, False), None)
    assert len(gone.waits) == 2


async def test_a_series_of_topics_is_created_and_deleted_with_one_wait() -> None:
    gone = Disconnected()
    topics = ClusterTopics(cluster(gone, gone))
    for _ in range(2):
        created = await topics.create(CreateTopic("t", 1), None)
        assert created.error_code == ErrorCode.REQUEST_TIMED_OUT
        deleted = await topics.delete(DeleteTopic("t"), None)
        assert deleted.error_code == ErrorCode.REQUEST_TIMED_OUT
    assert len(gone.waits) == 1


class Context:
    """As much of a request context as the handler needs; its own tenant."""

    def __init__(self, admin: Admin) -> None:
        self.tenant = self
        self.admin = admin

    def may(self, _right: object, _name: str) -> bool:
        return True

    def child(self, _name: str) -> Any:
        return NO_SPAN


async def test_replicas_at_an_unavailable_broker_are_a_storage_error() -> None:
    admin = Admin(cluster(Disconnected(), Disconnected()))
    topic = AlterReplicaLogDirTopic(name="t", partitions=[0])
    request = AlterReplicaLogDirsRequest(dirs=[AlterReplicaLogDir(path="/x", topics=[topic])])
    context = cast(RequestContext, Context(admin))
    (result,) = (await alter_replica_log_dirs.handle(request, context)).results
    assert result.partitions[0].error_code == ErrorCode.KAFKA_STORAGE_ERROR
    assert [found.found.error_code for found in await admin.log_dirs(
        [PartitionsByTopic("t", [0])], None
    )] == [ErrorCode.KAFKA_STORAGE_ERROR] * 2  # fmt: skip


async def test_a_commit_waits_a_bounded_time_for_the_commit_before(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(group_coordinator, "SMALL_OP_SECONDS", 0.02)
    coordinator = Groups(cluster(Silent(), Silent())).of("g")
    op = CommitOffsets("g", -1, "", "", [CommitOffset("t", 0, 1)])
    first = asyncio.ensure_future(coordinator.commit_offsets(op, None))
    await asyncio.sleep(0)
    async with asyncio.timeout(5):
        assert await coordinator.commit_offsets(op, None) == [ErrorCode.NOT_COORDINATOR]
    first.cancel()
    await asyncio.wait([first])
