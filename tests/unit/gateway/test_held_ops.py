"""Heartbeats leave together: when, in which order, and what sends them at once."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from quafka_gateway.cluster import held_ops
from quafka_gateway.cluster.broker_link import BrokerLink
from quafka_gateway.cluster.held_ops import HeldOps
from quafka_gateway.cluster.parked_time import begin_request
from quafka_mesh_ops.client import MeshClient
from quafka_mesh_ops.ops.base import AnyOp
from quafka_mesh_ops.ops.groups import Heartbeat, HeartbeatResp
from quafka_mesh_ops.ops.records import FetchOps, FetchOpsResp, ProduceOps, ProduceOpsResp
from quafka_proto.message import Message
from quafka_proto.schema.api_versions import ApiVersionsRequest
from quafka_proto.schema.groups import HeartbeatRequest, LeaveGroupRequest
from quafka_telemetry.eager_task import EagerTask
from quafka_telemetry.tracing import TraceContext
from tests.support.joined import Joined

LONG = 60.0
TRACE = TraceContext(1, 1)


class Recording:
    """A mesh client that answers at once."""

    def __init__(self) -> None:
        self.connected = True
        self.sent: list[AnyOp] = []

    async def call(self, op: AnyOp, **_: Any) -> Any:
        self.sent.append(op)
        if isinstance(op, FetchOps):
            return FetchOpsResp([])
        return ProduceOpsResp([]) if isinstance(op, ProduceOps) else HeartbeatResp(0)


def beat(number: int) -> Heartbeat:
    return Heartbeat("g", number, "m")


@pytest.fixture
def client() -> Recording:
    return Recording()


@pytest.fixture
def link(client: Recording) -> BrokerLink:
    return BrokerLink(cast(MeshClient, client), 1)


@pytest.fixture
def held_for_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(held_ops, "HOLD_SECONDS", LONG)


def begin(link: BrokerLink, number: int, trace: TraceContext | None = None) -> EagerTask[Any]:
    return EagerTask(link.call_unhurried(beat(number), trace))


async def test_they_leave_together_when_the_time_is_over(
    client: Recording, link: BrokerLink, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(held_ops, "HOLD_SECONDS", 0.02)
    for number in range(3):
        begin(link, number)
        assert client.sent == []
    await asyncio.sleep(0.1)
    assert client.sent == [beat(0), beat(1), beat(2)]
    begin(link, 3)
    await asyncio.sleep(0.1)
    assert client.sent[3:] == [beat(3)]


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
    assert client.sent[:2] == [beat(0), beat(1)]
    assert all(task.done() for task in waiting)


@pytest.mark.usefixtures("held_for_long")
async def test_many_do_not_wait(client: Recording, link: BrokerLink) -> None:
    for number in range(40):
        begin(link, number)
    async with asyncio.timeout(5):
        while len(client.sent) < 32:  # they are woken in slices
            await asyncio.sleep(0)
    assert client.sent == [beat(number) for number in range(32)]


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
    begin(link, 1)
    gone.cancel()
    await asyncio.sleep(0)
    link.hurry()
    assert client.sent == [beat(1)]


async def test_the_time_counts_as_parked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(held_ops, "HOLD_SECONDS", 0.05)
    parked = begin_request()
    await HeldOps().wait()
    assert 0.04 < parked.seconds < 1.0


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
