# pyright: reportPrivateUsage=false
"""A right that is revoked while a request is parked, or between two that share what is kept.

Each case begins a request of alice's, loses her right, and lets the request end: the answer has the
error and nothing secret. Beside it, the same happens without the revocation. Gateway and broker are
whole, in one process.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, replace
from typing import Any, TypeVar
from unittest import mock

import pytest

from quafka_broker.state import BrokerState
from quafka_gateway.api import APIS
from quafka_gateway.handlers import authorized
from quafka_gateway.handlers import metadata as metadata_module
from quafka_gateway.responses.error_codes import error_codes
from quafka_gateway.security.authorizer import Authorizer
from quafka_gateway.security.principal import Principal
from quafka_mesh_ops.ops.base import AnyOp, Op, R
from quafka_mesh_ops.ops.consumer_groups import ConsumerHeartbeat
from quafka_mesh_ops.ops.security import AclRecord
from quafka_mesh_ops.ops.share_groups import ShareHeartbeat
from quafka_proto.acl_kinds import Operation, Pattern, ResourceKind
from quafka_proto.errors import ErrorCode
from quafka_proto.message import Message
from quafka_proto.schema.consumer_groups import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from quafka_proto.schema.fetch import FetchResponse
from quafka_proto.schema.groups import (
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
    SyncGroupRequest,
    SyncGroupRequestAssignment,
    SyncGroupResponse,
)
from quafka_proto.schema.metadata import MetadataRequest, MetadataResponse
from quafka_proto.schema.produce import ProduceResponse
from quafka_proto.schema.share_fetch import (
    ShareFetchPartition,
    ShareFetchRequest,
    ShareFetchResponse,
    ShareFetchTopic,
)
from quafka_proto.schema.share_groups import (
    ShareGroupHeartbeatRequest,
    ShareGroupHeartbeatResponse,
)
from quafka_proto.schema.topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from tests.support.acls import acl, change, directory_with
from tests.support.fetch_calls import LONG, part, request_of
from tests.support.joined import Connected, Joined, Mesh
from tests.support.kafka_calls import produce_request
from tests.unit.broker.tools import ORG

M = TypeVar("M", bound=Message)
TOPIC_DENIED = ErrorCode.TOPIC_AUTHORIZATION_FAILED
GROUP_DENIED = ErrorCode.GROUP_AUTHORIZATION_FAILED
SECRET = b"secret"
READS_TOPIC = acl("User:alice", Operation.READ, ResourceKind.TOPIC, "t")
READS_GROUP = acl("User:alice", Operation.READ, ResourceKind.GROUP, "g")
SEES_SECRET = acl("User:alice", Operation.DESCRIBE, ResourceKind.TOPIC, "secret")
SEES_OTHERS = acl(
    "User:alice", Operation.DESCRIBE, ResourceKind.TOPIC, "open-", pattern=Pattern.PREFIXED
)
MEMBER = "AAAAAAAAAAAAAAAAAAAAAQ"
Answer = tuple[Message, bytes]
"""A response, and its bytes."""
Play = Callable[["Guarded"], AsyncIterator[Answer | None]]
"""Begins requests, yields None, lets them end, and yields the answer."""


class HeldMesh(Mesh):
    """Holds up ops of one type."""

    def __init__(self) -> None:
        super().__init__()
        self.holds: type[AnyOp] | None = None
        self.arrived, self.go_on = asyncio.Event(), asyncio.Event()

    async def call(self, op: Op[R], *, org_id: int, **more: Any) -> R:
        answer = await super().call(op, org_id=org_id, **more)
        if type(op) is self.holds:
            self.arrived.set()
            await self.go_on.wait()
        return answer


class Guarded(Joined):
    """With a topic "t"; alice may read it, and read in group "g", and admin may do everything."""

    mesh: HeldMesh

    def __init__(self) -> None:
        super().__init__(mesh=HeldMesh(), lease_seconds=2.0)
        self._directory = directory_with(READS_TOPIC, READS_GROUP, SEES_SECRET, SEES_OTHERS)
        authorizer = Authorizer(self._directory, ORG, "User:admin")
        self.services = replace(self.services, authorizer=authorizer)
        self.topic_id = b""

    @property
    def state(self) -> BrokerState:
        assert self.mesh.state is not None
        return self.mesh.state

    def client(self, name: str = "alice") -> Connected:
        found = self.connect()
        found.connection._session.principal = Principal("User", name)
        return found

    async def create(self, *names: str) -> None:
        new = [CreatableTopic(name=each, num_partitions=1, replication_factor=1) for each in names]
        request = CreateTopicsRequest(topics=new)
        await self.client("admin").call(request, CreateTopicsResponse, 5)
        topic = self.state.registry.find(ORG, names[0], b"")
        assert topic is not None
        self.topic_id = topic.uuid

    async def produce(self, value: bytes = SECRET) -> None:
        answer = await self.client("admin").call(produce_request("t", value), ProduceResponse, 9)
        assert not error_codes(answer)

    async def hold_lease(self) -> None:
        """Fetch until the gateway holds a lease."""
        for _ in range(2):
            await self.client("admin").call(request_of("t", part()), FetchResponse, 12)
            await asyncio.sleep(0.1)

    def revoke(self, rule: AclRecord) -> None:
        change(self._directory, rule, removed=True)

    async def park(self, client: Connected, request: Message, version: int) -> None:
        """Send it, and wait until it is parked at the broker."""
        before = len(self.state.parked_fetches)
        client.begin(request, version)
        while len(self.state.parked_fetches) == before:
            await asyncio.sleep(0)


async def answered(client: Connected, kind: type[M], version: int) -> tuple[M, bytes]:
    while not client.transport.whole:
        client.transport.some.clear()
        await client.transport.some.wait()
    raw = client.transport.written
    return await client.receive(kind, version), raw


# --- fetches --------------------------------------------------------------------------------

FETCH = request_of("t", part(), wait=LONG)


async def fetch(guarded: Guarded) -> AsyncIterator[Answer | None]:
    alice = guarded.client()
    await guarded.park(alice, FETCH, 12)
    yield None
    await guarded.produce()
    yield await answered(alice, FetchResponse, 12)


async def joined_fetch(guarded: Guarded) -> AsyncIterator[Answer | None]:
    """Equal fetches of several clients are one op."""
    alice, admin = guarded.client(), guarded.client("admin")
    await guarded.hold_lease()
    await guarded.park(admin, FETCH, 12)
    alice.begin(FETCH, 12)
    await asyncio.sleep(0.1)
    assert len(guarded.state.parked_fetches) == 1
    yield None
    await guarded.produce()
    theirs, raw = await answered(admin, FetchResponse, 12)
    assert not error_codes(theirs)
    assert SECRET in raw
    yield await answered(alice, FetchResponse, 12)


async def _standing(guarded: Guarded) -> Connected:
    """A client whose fetch waits for an op that is parked for longer."""
    alice = guarded.client()
    reader = guarded.services.tenant.reader.only
    assert reader is not None
    while True:
        alice.begin(request_of("t", part(), wait=500), 12)
        await asyncio.sleep(0.1)
        if reader.standing.waiting:
            return alice
        await answered(alice, FetchResponse, 12)


async def repeated_fetch(guarded: Guarded) -> AsyncIterator[Answer | None]:
    alice = await _standing(guarded)
    yield None
    await guarded.produce()
    yield await answered(alice, FetchResponse, 12)


async def repeated_fetch_that_ends_empty(guarded: Guarded) -> AsyncIterator[Answer | None]:
    alice = await _standing(guarded)
    yield None
    yield await answered(alice, FetchResponse, 12)


async def fetch_from_memory(guarded: Guarded) -> AsyncIterator[Answer | None]:
    alice, now = guarded.client(), request_of("t", part())
    await guarded.produce()
    await guarded.hold_lease()
    reader = guarded.services.tenant.reader.only
    assert reader is not None
    hits = reader.hits
    alice.begin(now, 12)
    await answered(alice, FetchResponse, 12)
    assert reader.hits > hits
    yield None
    alice.begin(now, 12)
    yield await answered(alice, FetchResponse, 12)


# --- share groups ---------------------------------------------------------------------------


def _share_fetch(guarded: Guarded, member: str = "m", wait: int = LONG) -> ShareFetchRequest:
    topics = [ShareFetchTopic(guarded.topic_id, [ShareFetchPartition(0)])]
    return ShareFetchRequest(
        group_id="g", member_id=member, share_session_epoch=0, max_wait_ms=wait, min_bytes=1,
        max_bytes=1 << 20, max_records=500, topics=topics,
    )  # fmt: skip


async def share_fetch(guarded: Guarded) -> AsyncIterator[Answer | None]:
    alice, admin = guarded.client(), guarded.client("admin")
    await guarded.park(alice, _share_fetch(guarded), 2)
    yield None
    await guarded.produce()
    answer, raw = await answered(alice, ShareFetchResponse, 2)
    # What she did not get is available at once, as if it had not been delivered.
    admin.begin(_share_fetch(guarded, "other", 0), 2)
    others, _ = await answered(admin, ShareFetchResponse, 2)
    parts = [each for topic in others.responses for each in topic.partitions]
    found = [each.delivery_count for its in parts for each in its.acquired_records]
    assert found == ([1] if error_codes(answer) else [])
    yield answer, raw


async def share_fetch_that_reads(guarded: Guarded) -> AsyncIterator[Answer | None]:
    """The records are acquired already, and are being read."""
    alice, admin = guarded.client(), guarded.client("admin")
    reached, go_on = asyncio.Event(), asyncio.Event()
    reader = guarded.services.tenant.reader
    read = reader.fetch

    async def slowly(*arguments: Any) -> Any:
        found = await read(*arguments)
        reached.set()
        await go_on.wait()
        return found

    with mock.patch.object(type(reader), "fetch", side_effect=slowly):
        await guarded.park(alice, _share_fetch(guarded), 2)
        await guarded.produce()
        await reached.wait()
        yield None
        go_on.set()
        answer, raw = await answered(alice, ShareFetchResponse, 2)
    admin.begin(_share_fetch(guarded, "other", 0), 2)
    _, theirs = await answered(admin, ShareFetchResponse, 2)
    assert (SECRET in theirs) == bool(error_codes(answer))
    yield answer, raw


async def share_heartbeat(guarded: Guarded) -> AsyncIterator[Answer | None]:
    request = ShareGroupHeartbeatRequest(
        group_id="g", member_id=MEMBER, member_epoch=0, subscribed_topic_names=["t"]
    )
    alice = guarded.client()
    guarded.mesh.holds = ShareHeartbeat
    alice.begin(request, 1)
    await guarded.mesh.arrived.wait()
    yield None
    guarded.mesh.go_on.set()
    yield await answered(alice, ShareGroupHeartbeatResponse, 1)


# --- groups ---------------------------------------------------------------------------------


def _join(metadata: bytes = b"") -> JoinGroupRequest:
    return JoinGroupRequest(
        group_id="g", session_timeout_ms=30_000, rebalance_timeout_ms=30_000,
        protocol_type="consumer", protocols=[JoinGroupRequestProtocol("range", metadata)],
    )  # fmt: skip


async def join(guarded: Guarded) -> AsyncIterator[Answer | None]:
    """The leader's answer has what the other members sent."""
    alice, admin = guarded.client(), guarded.client("admin")
    alice.begin(_join(), 3)
    admin.begin(_join(SECRET), 3)
    await asyncio.sleep(0.1)
    yield None
    answer = await answered(alice, JoinGroupResponse, 3)
    yield answer


async def sync(guarded: Guarded) -> AsyncIterator[Answer | None]:
    alice, admin = guarded.client(), guarded.client("admin")
    admin.begin(_join(), 3)
    alice.begin(_join(), 3)
    leader, _ = await answered(admin, JoinGroupResponse, 3)
    follower, _ = await answered(alice, JoinGroupResponse, 3)
    assert leader.leader == leader.member_id
    generation = leader.generation_id
    alice.begin(SyncGroupRequest("g", generation, follower.member_id), 0)
    await asyncio.sleep(0.1)
    yield None
    assignment = SyncGroupRequestAssignment(follower.member_id, SECRET)
    request = SyncGroupRequest("g", generation, leader.member_id, assignments=[assignment])
    await admin.call(request, SyncGroupResponse, 0)
    yield await answered(alice, SyncGroupResponse, 0)


async def heartbeat(guarded: Guarded) -> AsyncIterator[Answer | None]:
    """Held for others that leave together."""
    alice = guarded.client()
    alice.begin(_join(), 3)
    member, _ = await answered(alice, JoinGroupResponse, 3)
    mine = SyncGroupRequestAssignment(member.member_id, b"")
    request = SyncGroupRequest("g", member.generation_id, member.member_id, assignments=[mine])
    await alice.call(request, SyncGroupResponse, 0)
    alice.begin(HeartbeatRequest("g", member.generation_id, member.member_id), 0)
    yield None
    yield await answered(alice, HeartbeatResponse, 0)


def _consumer_heartbeat(epoch: int = 0) -> ConsumerGroupHeartbeatRequest:
    names = None if epoch else ["t"]
    owned = None if epoch else list[Any]()
    return ConsumerGroupHeartbeatRequest(
        group_id="g", member_id=MEMBER, member_epoch=epoch, subscribed_topic_names=names,
        rebalance_timeout_ms=-1 if epoch else 10_000, topic_partitions=owned,
    )  # fmt: skip


async def consumer_heartbeat(guarded: Guarded) -> AsyncIterator[Answer | None]:
    alice = guarded.client()
    guarded.mesh.holds = ConsumerHeartbeat
    alice.begin(_consumer_heartbeat(), 1)
    await guarded.mesh.arrived.wait()
    yield None
    guarded.mesh.go_on.set()
    yield await answered(alice, ConsumerGroupHeartbeatResponse, 1)


async def held_consumer_heartbeat(guarded: Guarded) -> AsyncIterator[Answer | None]:
    alice = guarded.client()
    alice.begin(_consumer_heartbeat(), 1)
    answer, _ = await answered(alice, ConsumerGroupHeartbeatResponse, 1)
    alice.begin(_consumer_heartbeat(answer.member_epoch), 1)
    yield None
    yield await answered(alice, ConsumerGroupHeartbeatResponse, 1)


# --- kept responses -------------------------------------------------------------------------


async def metadata(guarded: Guarded) -> AsyncIterator[Answer | None]:
    """A long list of topics is kept; it was begun by rules that end while it is made."""
    await guarded.create("secret", *(f"open-{number}" for number in range(150)))
    alice, every = guarded.client(), MetadataRequest(topics=None)
    reached, go_on = asyncio.Event(), asyncio.Event()
    visible = authorized.visible

    async def slowly(*arguments: Any) -> Any:
        found = await visible(*arguments)
        reached.set()
        await go_on.wait()
        return found

    with mock.patch.object(metadata_module, "visible", side_effect=slowly):
        alice.begin(every, 9)
        await reached.wait()
        yield None
        go_on.set()
        await answered(alice, MetadataResponse, 9)
    alice.begin(every, 9)
    yield await answered(alice, MetadataResponse, 9)


@dataclass(frozen=True)
class Case:
    """A play, the right that it depends on, and the error without it; 0: there is none."""

    play: Play
    key: int
    right: AclRecord
    code: int
    shows: bool = True
    """Whether the answer has the secret if the right is not revoked."""

    def __str__(self) -> str:
        return f"{self.play.__name__}-{ResourceKind(self.right.resource_type).name}"


CASES = [
    Case(fetch, 1, READS_TOPIC, TOPIC_DENIED),
    Case(joined_fetch, 1, READS_TOPIC, TOPIC_DENIED),
    Case(repeated_fetch, 1, READS_TOPIC, TOPIC_DENIED),
    Case(repeated_fetch_that_ends_empty, 1, READS_TOPIC, TOPIC_DENIED, shows=False),
    Case(fetch_from_memory, 1, READS_TOPIC, TOPIC_DENIED),
    Case(share_fetch, 78, READS_TOPIC, TOPIC_DENIED),
    Case(share_fetch, 78, READS_GROUP, GROUP_DENIED),
    Case(share_fetch_that_reads, 78, READS_TOPIC, TOPIC_DENIED),
    Case(share_fetch_that_reads, 78, READS_GROUP, GROUP_DENIED),
    Case(share_heartbeat, 76, READS_TOPIC, TOPIC_DENIED, shows=False),
    Case(share_heartbeat, 76, READS_GROUP, GROUP_DENIED, shows=False),
    Case(join, 11, READS_GROUP, GROUP_DENIED),
    Case(sync, 14, READS_GROUP, GROUP_DENIED),
    Case(heartbeat, 12, READS_GROUP, GROUP_DENIED, shows=False),
    Case(consumer_heartbeat, 68, READS_TOPIC, TOPIC_DENIED, shows=False),
    Case(consumer_heartbeat, 68, READS_GROUP, GROUP_DENIED, shows=False),
    Case(held_consumer_heartbeat, 68, READS_GROUP, GROUP_DENIED, shows=False),
    Case(metadata, 3, SEES_SECRET, 0),
]


def test_every_api_that_parks_or_holds_has_a_case() -> None:
    waits = {api.key for api in APIS.values() if api.long_poll or api.held}
    assert waits <= {case.key for case in CASES}


@pytest.fixture
async def guarded() -> AsyncIterator[Guarded]:
    both = Guarded()
    await both.start_broker()
    await both.create("t")
    yield both
    await both.services.tenant.close()
    await both.stop_broker()


@pytest.mark.parametrize("revoked", [True, False])
@pytest.mark.parametrize("case", CASES, ids=str)
async def test_a_revoked_right(case: Case, revoked: bool, guarded: Guarded) -> None:
    play = case.play(guarded)
    assert await anext(play) is None
    if revoked:
        guarded.revoke(case.right)
    answer = await anext(play)
    assert answer is not None
    response, raw = answer
    assert set(error_codes(response)) == ({case.code} - {0} if revoked else set())
    assert (SECRET in raw) == (case.shows and not revoked)
