"""Detection of peers that are killed, frozen or cut off, and its delay."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import AsyncIterator, Callable

import pytest

from quafka_loop import clock
from quafka_mesh_ops import broker_session
from quafka_mesh_ops.ops.topics import DescribeTopics
from quafka_mesh_ops.transport import liveness
from quafka_mesh_ops.transport.connection import QuicSocketConnection
from quafka_mesh_ops.transport.silence import Silence
from tests.unit.mesh_ops.mesh import Mesh, mesh

PARK = DescribeTopics(["park"])


@pytest.fixture
async def parked() -> AsyncIterator[Mesh]:
    """A pair with one op in flight and no other traffic."""
    async with mesh() as m:
        call = asyncio.ensure_future(m.client.call(PARK, org_id=1, deadline=20))
        await asyncio.wait_for(m.broker.parked.wait(), 30)
        await asyncio.sleep(0.3)
        yield m
        call.cancel()
        await asyncio.gather(call, return_exceptions=True)


def gateway_end(m: Mesh) -> QuicSocketConnection:
    session = m.client._connector.session
    assert session is not None
    return session.connection


async def seconds_until(condition: Callable[[], bool], at_most: float) -> float:
    """How long it takes, to two milliseconds."""
    began = clock.monotonic()
    while not condition():
        assert clock.monotonic() - began < at_most, f"not within {at_most} s"
        await asyncio.sleep(0.002)
    return clock.monotonic() - began


def freeze(m: Mesh) -> None:
    """Stop reading and sending at the gateway's end."""
    udp = gateway_end(m)._socket
    udp._loop.remove_reader(udp._sock.fileno())
    udp.send = lambda datagrams: None  # type: ignore[method-assign]


async def test_a_killed_gateway_is_noticed_at_once(parked: Mesh) -> None:
    gateway_end(parked)._socket.close()  # without a close frame
    (session,) = parked.server.sessions
    assert await seconds_until(lambda: session not in parked.server.sessions, 2) < 0.25
    await seconds_until(lambda: parked.broker.cancelled == ["park"], 1)


async def test_a_frozen_gateway_is_given_up_after_two_seconds(parked: Mesh) -> None:
    (session,) = parked.server.sessions
    freeze(parked)
    assert 1.7 < await seconds_until(lambda: session not in parked.server.sessions, 5) < 2.8
    await seconds_until(lambda: parked.broker.cancelled == ["park"], 1)


async def test_an_idle_gateway_is_not_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(liveness, "SILENT_SECONDS", 1.5)  # its pings come every second
    async with mesh() as m:
        (session,) = m.server.sessions
        await asyncio.sleep(1.8)
        assert m.server.sessions.keys() == {session}
        assert m.client.counters().reconnects == 0


async def test_a_broker_that_stood_still_itself_blames_nobody(
    parked: Mesh, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(liveness, "SILENT_SECONDS", 0.5)
    (session,) = parked.server.sessions
    clock.sleep(0.8)
    await asyncio.sleep(0.2)
    assert parked.server.sessions.keys() == {session}


async def test_a_gateway_that_stood_still_itself_blames_nobody(
    parked: Mesh, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stalled process sees its ping unanswered until it reads its socket."""
    monkeypatch.setattr(broker_session, "SILENT_SECONDS", 0.5)
    session = parked.client._connector.session
    assert session is not None
    for _ in range(3):
        session._ping()
        clock.sleep(0.8)  # stalls both ends: no answer before the first observation
        session._tick_timer.cancel()
        session._tick()  # runs before the socket is read
        await asyncio.sleep(0.15)
    assert parked.client._connector.session is session
    assert parked.client.counters().reconnects == 0


async def test_a_frozen_broker_is_given_up_after_two_seconds(parked: Mesh) -> None:
    session = parked.client._connector.session
    assert session is not None
    udp = parked.server._listener._udp
    assert udp is not None
    udp._loop.remove_reader(udp._sock.fileno())
    udp.send = lambda datagrams: None  # type: ignore[method-assign]
    assert (
        1.7 < await seconds_until(lambda: parked.client._connector.session is not session, 5) < 2.8
    )


async def test_a_forged_refusal_does_not_end_a_connection(parked: Mesh) -> None:
    (session,) = parked.server.sessions
    address = session.connection.quic.get_peer_address()
    refused = OSError(errno.ECONNREFUSED, "Connection refused")
    for _ in range(3):
        parked.server._listener._failed(refused, address)
        await asyncio.sleep(0.15)
    assert parked.server.sessions.keys() == {session}


def test_silence_is_what_was_listened_to() -> None:
    silence = Silence(0.1, 10.0)
    assert silence.observe(10.1, 9.0) == pytest.approx(0.1)
    assert silence.observe(10.25, 9.0) == pytest.approx(0.25)  # slightly late: counts in full
    assert silence.observe(20.0, 9.0) == pytest.approx(0.45)  # a stall is one observation
    assert silence.observe(20.1, 20.05) == 0.0
    assert silence.observe(20.2, 20.05) == pytest.approx(0.1)
