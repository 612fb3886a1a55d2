"""A member of a share group that moves to another connection or gateway before its old one ends.

Gateways and broker are whole, in one process.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from quafka_mesh_ops.ops.base import AnyOp, Op, R
from quafka_mesh_ops.ops.shares import AcknowledgeRecords, AcquireRecords, ReleaseRecords
from quafka_proto.errors import ErrorCode
from quafka_proto.schema.produce import ProduceResponse
from quafka_proto.schema.share_fetch import (
    AcknowledgementBatch,
    AcknowledgePartition,
    AcknowledgeTopic,
    ShareAcknowledgeRequest,
    ShareAcknowledgeResponse,
    ShareFetchPartition,
    ShareFetchRequest,
    ShareFetchResponse,
    ShareFetchTopic,
)
from quafka_proto.schema.topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from tests.support.joined import Connected, Joined, Mesh
from tests.support.kafka_calls import produce_request
from tests.unit.broker.tools import ORG

ACCEPT = 1
FINAL = -1


class OlderMesh(Mesh):
    """That of a gateway which names no sessions, if it is told to."""

    def __init__(self) -> None:
        super().__init__()
        self.is_older = False

    async def call(self, op: Op[R], *, org_id: int, **more: Any) -> R:
        if self.is_older:
            self._forget_session(op)
        return await super().call(op, org_id=org_id, **more)

    @staticmethod
    def _forget_session(op: AnyOp) -> None:
        if isinstance(op, AcquireRecords | AcknowledgeRecords | ReleaseRecords):
            object.__setattr__(op, "session", b"")


class Member:
    """A member of group "g" at one connection."""

    def __init__(self, client: Connected, topic_id: bytes, name: str = "m") -> None:
        self.client = client
        self._topic_id = topic_id
        self._name = name
        self._epoch = 0

    async def fetch(self, most: int = 500) -> list[tuple[int, int, int]]:
        """The records acquired: first, last, and deliveries."""
        request = ShareFetchRequest(
            group_id="g", member_id=self._name, share_session_epoch=self._epoch, min_bytes=1,
            max_bytes=1 << 20, max_records=most, share_acquire_mode=1,
            topics=[]
            if self._epoch
            else [ShareFetchTopic(self._topic_id, [ShareFetchPartition(0)])],
        )  # fmt: skip
        answer = await self.client.call(request, ShareFetchResponse, 2)
        assert answer.error_code == 0
        self._epoch += 1
        parts = [each for topic in answer.responses for each in topic.partitions]
        assert not any(each.error_code for each in parts)
        return [
            (each.first_offset, each.last_offset, each.delivery_count)
            for its in parts
            for each in its.acquired_records
        ]

    async def accept(self, first: int, last: int, *, final: bool = False) -> int:
        batch = AcknowledgementBatch(first, last, [ACCEPT])
        request = ShareAcknowledgeRequest(
            group_id="g",
            member_id=self._name,
            share_session_epoch=FINAL if final else self._epoch,
            topics=[AcknowledgeTopic(self._topic_id, [AcknowledgePartition(0, [batch])])],
        )
        answer = await self.client.call(request, ShareAcknowledgeResponse, 2)
        assert answer.error_code == 0
        self._epoch += 1
        return answer.responses[0].partitions[0].error_code

    async def leave(self) -> None:
        """Lose the connection, and wait until the gateway has told the broker."""
        self.client.connection.connection_lost(None)
        await self.client.connection.wait_ended()


class Moving(Joined):
    """With a topic "t", and a group that begins before its records."""

    mesh: OlderMesh

    def __init__(self) -> None:
        super().__init__(mesh=OlderMesh())
        self._topic_id = b""

    async def begin(self) -> None:
        await self.start_broker()
        new = CreatableTopic(name="t", num_partitions=1, replication_factor=1)
        await self.connect().call(CreateTopicsRequest(topics=[new]), CreateTopicsResponse, 5)
        assert self.mesh.state is not None
        topic = self.mesh.state.registry.find(ORG, "t", b"")
        assert topic is not None
        self._topic_id = topic.uuid
        assert await self.member("first").fetch() == []

    def member(self, name: str = "m") -> Member:
        return Member(self.connect(), self._topic_id, name)

    async def put(self, count: int) -> None:
        request = produce_request("t", *[b"1"] * count)
        answer = await self.connect().call(request, ProduceResponse, 9)
        assert answer.responses[0].partition_responses[0].error_code == 0


@pytest.fixture
async def moving() -> AsyncIterator[Moving]:
    both = Moving()
    await both.begin()
    yield both
    await both.services.tenant.close()
    await both.stop_broker()


@pytest.mark.parametrize("older", [True, False], ids=["from an earlier version", "of one version"])
@pytest.mark.parametrize("how", ["connection", "final", "gateway"])
async def test_the_end_of_the_old_session_leaves_the_records_of_the_new_one(
    moving: Moving, how: str, older: bool
) -> None:
    await moving.put(6)
    moving.mesh.is_older = older
    old, gateway = moving.member(), moving.services.tenant
    assert await old.fetch(2) == [(0, 1, 1)]
    moving.mesh.is_older = False
    moving.start_gateway()
    new = moving.member()
    assert await new.fetch(2) == [(2, 3, 1)]
    moving.mesh.is_older = older
    if how == "connection":
        await old.leave()
    elif how == "final":
        assert await old.accept(0, 0, final=True) == 0
    await gateway.close()
    moving.mesh.is_older = False
    others = [(1, 1, 2), (4, 5, 1)] if how == "final" else [(0, 1, 2), (4, 5, 1)]
    assert await moving.member("other").fetch() == others
    assert await new.accept(2, 3) == 0
    assert await new.accept(0, 1) == ErrorCode.INVALID_RECORD_STATE, "the other member has them"


async def test_a_member_may_accept_at_one_gateway_what_it_got_at_another(moving: Moving) -> None:
    await moving.put(2)
    assert await moving.member().fetch() == [(0, 1, 1)]
    moving.start_gateway()
    new = moving.member()
    assert await new.fetch() == []
    assert await new.accept(0, 1) == 0


async def test_a_session_that_is_begun_anew_keeps_its_records_until_it_ends(moving: Moving) -> None:
    """On another connection to the same gateway, which ends after the first."""
    await moving.put(4)
    old = moving.member()
    assert await old.fetch(2) == [(0, 1, 1)]
    new, other = moving.member(), moving.member("other")
    assert await new.fetch(1) == [(2, 2, 1)]
    await old.leave()
    assert await other.fetch(0) == []
    assert await new.accept(0, 0) == 0
    await new.leave()
    await moving.services.tenant.shares.close()
    assert await other.fetch() == [(1, 2, 2), (3, 3, 1)]
