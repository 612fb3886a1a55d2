"""Heartbeats leave together: when, in which order, what sends them at once, and their answers."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from quafka_gateway.cluster import joint_heartbeats
from quafka_gateway.cluster.broker_link import BrokerLink, BrokerUnavailableError
from quafka_gateway.cluster.joint_heartbeats import MOST, JointHeartbeats
from quafka_gateway.cluster.parked_time import begin_request
from quafka_loop.eager_task import EagerTask
from quafka_mesh_ops.client import MeshClient
from quafka_mesh_ops.errors import PeerUnavailableError
from quafka_mesh_ops.ops.base import AnyOp
from quafka_mesh_ops.ops.groups import Heartbeat, HeartbeatResp, JoinedHeartbeat
from quafka_mesh_ops.ops.records import FetchOps, FetchOpsResp, ProduceOps, ProduceOpsResp
from quafka_proto.message import Message
from quafka_proto.schema.api_versions import ApiVersionsRequest
from quafka_proto.schema.groups import HeartbeatRequest, LeaveGroupRequest
from quafka_telemetry.tracing import TraceContext
from tests.support.joined import Joined

LONG = 60.0
TRACE = TraceContext(1, 1)


class Recording:
    """A mesh client that answers at once: the generation is the error code."""

    def __init__(self) -> None:
        self.connected = True
        self.older = False
        """Whether the broker knows nothing of joint heartbeats."""
        self.error: Exception | None = None
        self.sent: list[AnyOp] = []

    async def call(self, op: AnyOp, **_: Any) -> Any:
        self.sent.append(op)
        if self.error is not None:
            raise self.error
        if isinstance(op, Heartbeat):
            others = [each.generation for each in op.others or ()]
            return HeartbeatResp(op.generation, None if self.older or not others else others)
        return FetchOpsResp([]) if isinstance(op, FetchOps) else ProduceOpsResp([])


def beat(number: int, *others: int) -> Heartbeat:
    together = [JoinedHeartbeat("g", each, "m", "i") for each in others]
    return Heartbeat("g", number, "m", "i", together or None)


@pytest.fixture
def client() -> Recording:
    return Recording()


@pytest.fixture
def link(client: Recording) -> BrokerLink:
    return BrokerLink(cast(MeshClient, client), 1)


@pytest.fixture
def held_for_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(joint_heartbeats, "HOLD_SECONDS", LONG)


def begin(link: BrokerLink, number: int, trace: TraceContext | None = None) -> EagerTask[int]:
    return EagerTask(link.heartbeat(beat(number), trace))


async def test_they_leave_together_when_the_time_is_over(
    client: Recording, link: BrokerLink, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(joint_heartbeats, "HOLD_SECONDS", 0.02)
    waiting = [begin(link, number) for number in range(3)]
    assert client.sent == []
    await asyncio.sleep(0.1)
    assert client.sent == [beat(0, 1, 2)]
    assert [task.result() for task in waiting] == [0, 1, 2]
    begin(link, 3)
    await asyncio.sleep(0.1)
    assert client.sent[1:] == [beat(3)]


@pytest.mark.parametrize("number", [0, 1, 2, 3])
@pytest.mark.usefixtures("held_for_long")
async def test_every_other_op_takes_them_along(
    client: Recording, link: BrokerLink, number: int
) -> None:
    waiting = [begin(link, each) for each in range(2)]
    if number == 0:
        await link.fetch(FetchOps([]), None)
    elif number == 1:
        await link.produce(ProduceOps([]), 0, 1.0, None)
    elif number == 2:
        await link.call(beat(9), None)
    else:
        link.hurry()
    assert client.sent[0] == beat(0, 1)
    assert all(task.done() for task in waiting)


@pytest.mark.usefixtures("held_for_long")
async def test_many_do_not_wait(client: Recording, link: BrokerLink) -> None:
    waiting = [begin(link, number) for number in range(MOST + 8)]
    assert client.sent == [beat(*range(MOST))]
    assert [task.result() for task in waiting[:MOST]] == list(range(MOST))
    assert not any(task.done() for task in waiting[MOST:])


@pytest.mark.usefixtures("held_for_long")
async def test_an_older_broker_gets_them_one_by_one(client: Recording, link: BrokerLink) -> None:
    client.older = True
    waiting = [begin(link, number) for number in range(3)]
    link.hurry()
    assert client.sent == [beat(0, 1, 2), beat(1), beat(2)]
    assert [task.result() for task in waiting] == [0, 1, 2]


@pytest.mark.usefixtures("held_for_long")
async def test_without_an_answer_each_of_them_fails(client: Recording, link: BrokerLink) -> None:
    client.error = PeerUnavailableError("away")
    waiting = [begin(link, number) for number in range(3)]
    link.hurry()
    for task in waiting:
        with pytest.raises(BrokerUnavailableError):
            await task


@pytest.mark.usefixtures("held_for_long")
async def test_a_traced_one_leaves_at_once_and_so_does_one_without_a_connection(
    client: Recording, link: BrokerLink
) -> None:
    assert begin(link, 0, TRACE).done()
    client.connected = False
    assert begin(link, 1).done()


@pytest.mark.usefixtures("held_for_long")
async def test_one_that_is_cancelled_is_not_sent(client: Recording, link: BrokerLink) -> None:
    gone = begin(link, 0)
    kept = [begin(link, number) for number in (1, 2)]
    gone.cancel()
    await asyncio.sleep(0)
    link.hurry()
    assert client.sent == [beat(1, 2)]
    assert [task.result() for task in kept] == [1, 2]


async def test_the_time_counts_as_parked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(joint_heartbeats, "HOLD_SECONDS", 0.05)
    parked = begin_request()
    client = Recording()
    assert await JointHeartbeats(client.call).send(beat(7)) == 7
    assert 0.04 < parked.seconds < 5.0


@pytest.mark.usefixtures("held_for_long")
@pytest.mark.parametrize("next_", [LeaveGroupRequest(group_id="g"), ApiVersionsRequest()])
async def test_a_request_behind_a_heartbeat_sends_it(next_: Message) -> None:
    """Also one that could run at once: its response must wait for the heartbeat's."""
    joined = Joined()
    await joined.start_broker()
    client = joined.connect()
    client.begin(HeartbeatRequest(group_id="g", generation_id=1, member_id="m"), 3)
    await asyncio.sleep(0.05)
    assert client.transport.written == b""
    client.begin(next_, 3)
    await asyncio.sleep(0.05)
    heartbeat = int.from_bytes(client.transport.written[:4], "big")
    assert len(client.transport.written) > 4 + heartbeat, "both are answered"
    await joined.stop_broker()
