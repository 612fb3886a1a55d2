"""Bytes of hostile peers: only the connection of that peer may suffer."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import AsyncIterator, Callable

import msgpack  # type: ignore[import-untyped]
import pytest

from quafka_loop import sockets
from quafka_mesh_ops import gateway_session, payloads
from quafka_mesh_ops.envelopes import encode_body, encode_request
from quafka_mesh_ops.errors import OutcomeUnknownError
from quafka_mesh_ops.frames import Tag, encode_goaway, encode_number, frame_header
from quafka_mesh_ops.ops.base import OpCode
from quafka_mesh_ops.ops.records import ProduceOps
from quafka_mesh_ops.ops.topics import DescribeTopics, DescribeTopicsResp
from quafka_mesh_ops.transport import connection as connection_module
from tests.unit.mesh_ops.memory import MB, at_most
from tests.unit.mesh_ops.mesh import Broker, Mesh, fetch_of, mesh
from tests.unit.mesh_ops.raw_quic import RawClient, credentials, raw_client


@pytest.fixture
async def pair() -> AsyncIterator[Mesh]:
    async with mesh() as m:
        yield m


def op(request_id: int, deadline_ms: int = 9000) -> bytes:
    body = encode_body(DescribeTopics(["park"]))
    return b"".join(
        encode_request(request_id, OpCode.DESCRIBE_TOPICS, 1, "", "", deadline_ms, body)
    )


def framed(tag: Tag, value: object) -> bytes:
    payload: bytes = msgpack.packb(value)
    return frame_header(tag, len(payload)) + payload


HOSTILE: list[tuple[str, Callable[[RawClient], None]]] = [
    ("tag", lambda c: c.send(0, b"GET / HTTP/1.1\r\n\r\n")),
    ("length", lambda c: c.send(0, b"\x01\xff\xff\xff\xff\x7f")),
    ("response", lambda c: c.send(0, framed(Tag.RESPONSE, [1, 0, [], ""]))),
    ("goaway", lambda c: c.send(0, encode_goaway())),
    ("envelope", lambda c: c.send(0, framed(Tag.OP, "x"))),
    (
        "bomb",
        lambda c: c.send(0, frame_header(Tag.OP, 500_000) + b"\xdd\x00\x01\xff\xff" * 100_000),
    ),
    ("id twice", lambda c: c.send(0, op(7) + op(7))),
    ("cancel", lambda c: c.send(0, framed(Tag.CANCEL, "x"))),
    ("fin", lambda c: c.send(0, encode_number(Tag.PING, 1), end_stream=True)),
    ("fin inside a frame", lambda c: c.send(4, b"\x01", end_stream=True)),
    ("sixth stream", lambda c: c.send(20, encode_number(Tag.PING, 1))),
    ("unidirectional stream", lambda c: c.send(2, encode_number(Tag.PING, 1))),
    ("reset", lambda c: c.reset(0)),
]


@pytest.mark.parametrize("attack", [a for _, a in HOSTILE], ids=[name for name, _ in HOSTILE])
async def test_a_hostile_client_loses_its_connection_and_disturbs_nobody(
    pair: Mesh, attack: Callable[[RawClient], None]
) -> None:
    async with raw_client(pair.port, credentials(pair.client_identity)) as client:
        attack(client)
        await asyncio.wait_for(client.end.wait(), 10)
        assert client.closed_with is not None
        assert client.closed_with.error_code == 0x0A  # PROTOCOL_VIOLATION
    answer = await pair.client.call(DescribeTopics(), org_id=1, deadline=2)
    assert isinstance(answer, DescribeTopicsResp)
    assert len(pair.server.sessions) == 1


@pytest.mark.parametrize(
    ("code", "body"), [(OpCode.FETCH, [1, 2]), (OpCode.PRODUCE, [["t"]]), (OpCode.JOIN_GROUP, [])]
)
async def test_an_op_whose_body_cannot_be_read_fails_alone(
    code: OpCode, body: list[object]
) -> None:
    async with mesh({OpCode.JOIN_GROUP: Broker().produce}) as m:
        async with raw_client(m.port, credentials(m.client_identity)) as client:
            client.send(0, framed(Tag.OP, [1, code, 1, "", "", 9, body]))
            await asyncio.wait_for(client.data.wait(), 30)
            assert bytes(client.received) == framed(Tag.RESPONSE, [1, 42, None, ""])
            assert client.closed_with is None
        assert await m.client.call(DescribeTopics(), org_id=1, deadline=2)


async def test_the_server_holds_to_the_deadline_of_the_envelope(pair: Mesh) -> None:
    async with raw_client(pair.port, credentials(pair.client_identity)) as client:
        client.send(0, op(5, deadline_ms=50))
        await asyncio.wait_for(client.data.wait(), 30)
        assert bytes(client.received) == framed(Tag.RESPONSE, [5, 7, None, ""])
        assert pair.broker.cancelled == ["park"]


async def test_too_many_ops_at_once(pair: Mesh, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gateway_session, "MAX_IN_FLIGHT", 10)
    async with raw_client(pair.port, credentials(pair.client_identity)) as client:
        client.send(0, b"".join(op(i) for i in range(10)))
        await asyncio.wait_for(pair.broker.parked.wait(), 30)
        client.send(0, op(10))
        await asyncio.wait_for(client.end.wait(), 10)
        assert "more than 10 ops" in getattr(client.closed_with, "reason_phrase", "")


async def test_too_many_request_bytes_at_once(pair: Mesh, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gateway_session, "MAX_REQUEST_BYTES", 100_000)
    async with raw_client(pair.port, credentials(pair.client_identity)) as client:
        client.send(0, op(1))
        client.send(4, frame_header(Tag.OP, 200_000) + bytes(150_000))
        await asyncio.wait_for(client.end.wait(), 10)
        assert "bytes of requests" in getattr(client.closed_with, "reason_phrase", "")


async def test_data_with_gaps_is_bounded(pair: Mesh, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection_module, "MAX_DATA", 1 << 20)
    async with raw_client(pair.port, credentials(pair.client_identity)) as client:
        client._quic.send_stream_data(4, b"")
        sender = client._quic._streams[4].sender
        sender._buffer_start = sender._buffer_stop = 2 << 20  # the first two MiB are never sent
        client.send(4, b"x")
        await asyncio.wait_for(client.end.wait(), 10)
        assert "out of order" in getattr(client.closed_with, "reason_phrase", "")


async def test_noise_on_the_socket_is_ignored(pair: Mesh) -> None:
    with sockets.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        for length in (0, 1, 8, 20, 1200, 1500, 9000):
            for first in (b"\xc0", b"\xff"):
                noise = (first + os.urandom(length))[:length]
                sock.sendto(noise, ("127.0.0.1", pair.port))
        version = b"\xc0\xfa\xce\xb0\x0c\x08" + bytes(8) + b"\x08" + bytes(8)
        sock.setblocking(False)
        sock.sendto(version.ljust(1200, b"\0"), ("127.0.0.1", pair.port))
        offer = await asyncio.wait_for(asyncio.get_running_loop().sock_recv(sock, 2000), 30)
    assert offer[1:5] == bytes(4)
    assert offer.endswith((1).to_bytes(4, "big"))
    assert await pair.client.call(DescribeTopics(), org_id=1, deadline=2)


@pytest.mark.parametrize("size", [0, 1, 9, 21, 22, 30, 60, 1500, 9000])
async def test_packets_of_no_connection_are_answered_with_less(pair: Mesh, size: int) -> None:
    """A forger gains no amplification and cannot keep two nodes answering each other."""
    with sockets.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.setblocking(False)
        sock.sendto(b"\x40" + os.urandom(size), ("127.0.0.1", pair.port))
        answer = asyncio.get_running_loop().sock_recv(sock, 2000)
        if size < 21:
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(answer, 0.05)
        else:
            reset = await asyncio.wait_for(answer, 30)
            assert 21 <= len(reset) <= size
            assert reset[0] & 0xC0 == 0x40
    assert await pair.client.call(DescribeTopics(), org_id=1, deadline=2)


async def test_a_reset_that_does_not_know_the_token_is_ignored(pair: Mesh) -> None:
    session = pair.client._connector.session
    assert session is not None
    server = ("127.0.0.1", pair.port)
    session.connection.receive([b"\x40" + os.urandom(size) for size in (16, 20, 41)], server)
    assert not session.connection.is_over
    assert await pair.client.call(DescribeTopics(), org_id=1, deadline=2)


async def test_a_broker_that_speaks_nonsense_loses_its_connection() -> None:
    async with mesh() as m:
        call = asyncio.ensure_future(m.client.call(DescribeTopics(["park"]), org_id=1, deadline=3))
        await asyncio.wait_for(m.broker.parked.wait(), 30)
        (session,) = m.server.sessions
        session.connection.write(0, [framed(Tag.RESPONSE, [1, 0, 5, ""])])
        with pytest.raises(OutcomeUnknownError):
            await call
        assert await m.client.call(DescribeTopics(), org_id=1, deadline=2)


async def test_an_answer_of_another_shape_fails_its_call_alone() -> None:
    async def wrong(context: object, op: object) -> ProduceOps:
        return ProduceOps([])

    async with mesh({OpCode.DESCRIBE_TOPICS: wrong}) as m:
        with pytest.raises(OutcomeUnknownError, match="could not be read"):
            await m.client.call(DescribeTopics(), org_id=1, deadline=2)
        assert await m.client.call(fetch_of(10), org_id=1, deadline=2)
        assert m.client.counters().reconnects == 0


async def test_small_values_that_become_large_are_counted_while_they_are_made(
    pair: Mesh, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Half a million empty lists: 500 kB on the wire, 36 MB once decoded."""
    monkeypatch.setattr(payloads, "_MAX_COST", 200_000)
    inner = b"\xdc" + (50_000).to_bytes(2, "big") + b"\x90" * 50_000
    body = b"\x9a" + inner * 10
    payload = b"\x97\x01" + bytes([OpCode.FETCH]) + b"\x01\xa0\xa0\x09" + body
    async with raw_client(pair.port, credentials(pair.client_identity)) as client:
        with at_most(16 * MB):
            client.send(0, frame_header(Tag.OP, len(payload)) + payload)
            await asyncio.wait_for(client.end.wait(), 10)
        assert "too many values" in getattr(client.closed_with, "reason_phrase", "")
    assert await pair.client.call(DescribeTopics(), org_id=1, deadline=2)


async def test_ops_of_many_small_parts_count_for_what_they_take(
    pair: Mesh, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gateway_session, "MAX_REQUEST_BYTES", 1 << 20)
    topics = ["park", *[""] * 5_000]
    async with raw_client(pair.port, credentials(pair.client_identity)) as client:
        client.send(0, op(1))
        client.send(0, framed(Tag.OP, [2, OpCode.DESCRIBE_TOPICS, 1, "", "", 9000, [topics]]))
        await asyncio.wait_for(client.end.wait(), 10)
        assert "bytes of requests" in getattr(client.closed_with, "reason_phrase", "")


async def test_a_frame_that_never_ends_is_held_and_nothing_more(pair: Mesh) -> None:
    """Received bytes count; an announced length takes no memory before its bytes arrive."""
    async with raw_client(pair.port, credentials(pair.client_identity)) as client:
        with at_most(8 * MB):
            for lane in range(5):
                client.send(4 * lane, frame_header(Tag.OP, 100 << 20) + bytes(10_000))
            async with asyncio.timeout(30):
                while sum(c.credit_used_bytes for c in pair.server.counters()) < 50_000:
                    await asyncio.sleep(0.01)
        assert await pair.client.call(DescribeTopics(), org_id=1, deadline=2)


async def test_a_broker_that_begins_replies_without_end_loses_its_connection() -> None:
    async with mesh() as m:
        (session,) = m.server.sessions
        connection = session.connection
        for _ in range(100):
            connection.write(connection.open_stream(unidirectional=True), [b"\x02"])
        async with asyncio.timeout(30):
            while not connection.is_over:
                await asyncio.sleep(0.01)
        assert "streams at once" in connection.quic.close_reason
        assert await m.client.wait_connected(30)
        assert await m.client.call(DescribeTopics(), org_id=1, deadline=2)
