"""Peers that get a connection and peers that are refused, in both directions."""

from __future__ import annotations

import asyncio
import base64
import logging
import socket
import ssl
from collections.abc import AsyncIterator, Callable
from datetime import timedelta
from itertools import pairwise
from typing import Any

import pytest
from aioquic.asyncio.client import connect
from aioquic.asyncio.server import serve
from aioquic.quic.configuration import QuicConfiguration
from aioquic.tls import SessionTicket
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

from quafka_loop import clock, sockets
from quafka_mesh_ops.client import MeshClient
from quafka_mesh_ops.errors import PeerUnavailableError
from quafka_mesh_ops.frames import Tag, encode_number
from quafka_mesh_ops.identity import Identity, make_certificate
from quafka_mesh_ops.ops.topics import DescribeTopics
from quafka_mesh_ops.server import MeshServer
from quafka_mesh_ops.transport.aioquic_adapter.mutual_tls import quic_configuration
from quafka_telemetry.tracing import Tracer
from tests.support.quic_flood import client_hello
from tests.unit.mesh_ops.mesh import Broker, mesh, new_identity
from tests.unit.mesh_ops.raw_quic import Credentials, RawClient, credentials, raw_client

KEY = Ed25519PrivateKey.generate()
ALLOWED = Identity(KEY)
HOUR = timedelta(hours=1)


def allowed_peer() -> Credentials:
    return credentials(ALLOWED)


def stranger() -> Credentials:
    return credentials(new_identity())


def expired() -> Credentials:
    return make_certificate(KEY, clock.utc_now() - 2 * HOUR, clock.utc_now() - HOUR), KEY


def not_yet_valid() -> Credentials:
    return make_certificate(KEY, clock.utc_now() + HOUR, clock.utc_now() + 2 * HOUR), KEY


def stolen_certificate() -> Credentials:
    """The allowed node's certificate, without its key."""
    return credentials(ALLOWED)[0], Ed25519PrivateKey.generate()


def _named(
    issuer: str, key: ec.EllipticCurvePrivateKey | Ed25519PrivateKey
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "node")]))
        .issuer_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, issuer)]))
        .serial_number(1)
        .public_key(key.public_key())
        .not_valid_before(clock.utc_now() - HOUR)
        .not_valid_after(clock.utc_now() + HOUR)
    )


def from_an_authority() -> Credentials:
    key = Ed25519PrivateKey.generate()
    return _named("rogue authority", key).sign(Ed25519PrivateKey.generate(), None), key


def other_kind_of_key() -> Credentials:
    key = ec.generate_private_key(ec.SECP256R1())
    return _named("node", key).sign(key, SHA256()), key


REFUSED: list[tuple[Callable[[], Credentials] | None, str]] = [
    (None, "presented no certificate"),
    (stranger, "not on the allow-list"),
    (expired, "has expired"),
    (not_yet_valid, "not valid yet"),
    (from_an_authority, "not signed by its own key"),
    (other_kind_of_key, "not an Ed25519 key"),
]


@pytest.fixture
async def server_port() -> AsyncIterator[int]:
    server = MeshServer(new_identity(), {ALLOWED.node_id}, Broker().handlers(), Tracer())
    _, port = await server.start("127.0.0.1", 0)
    yield port
    await server.close(0)


async def test_an_allowed_client_is_served(server_port: int) -> None:
    async with raw_client(server_port, allowed_peer()) as client:
        client.send(0, encode_number(Tag.PING, 5))
        await asyncio.wait_for(client.data.wait(), 30)
        assert bytes(client.received) == encode_number(Tag.PONG, 5)


@pytest.mark.parametrize(("shown", "reason"), REFUSED)
async def test_clients_that_the_server_refuses(
    server_port: int,
    shown: Callable[[], Credentials] | None,
    reason: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "quafka.mesh")
    async with raw_client(server_port, shown() if shown else None) as client:
        client.send(0, encode_number(Tag.PING, 5))
        await asyncio.wait_for(client.end.wait(), 30)
        assert client.closed_with is not None
        assert client.closed_with.error_code == 0x100 + 49  # TLS access_denied
        assert not client.received
    assert [r.getMessage() for r in caplog.records if reason in r.getMessage()]
    assert not [r for r in caplog.records if "connected" in r.getMessage()]


async def test_a_certificate_without_its_key_is_refused(server_port: int) -> None:
    async with raw_client(server_port, stolen_certificate()) as client:
        client.send(0, encode_number(Tag.PING, 5))
        await asyncio.wait_for(client.end.wait(), 30)
        assert client.closed_with is not None
        assert client.closed_with.error_code == 0x100 + 51  # TLS decrypt_error
        assert not client.received


async def test_there_is_no_resumption_and_so_no_0_rtt(server_port: int) -> None:
    """Data sent before the end of the handshake could be replayed by an observer."""
    tickets: list[SessionTicket] = []
    configuration = QuicConfiguration(
        alpn_protocols=["quafka-mesh/1"], verify_mode=ssl.CERT_NONE, is_client=True
    )
    configuration.certificate, configuration.private_key = allowed_peer()
    async with connect(
        "127.0.0.1",
        server_port,
        configuration=configuration,
        session_ticket_handler=tickets.append,
        create_protocol=RawClient,
    ) as client:
        assert isinstance(client, RawClient)
        client.send(0, encode_number(Tag.PING, 5))
        await asyncio.wait_for(client.data.wait(), 30)
    assert tickets == []


async def test_a_0_rtt_packet_opens_nothing() -> None:
    server = MeshServer(new_identity(), {ALLOWED.node_id}, Broker().handlers(), Tracer())
    _, port = await server.start("127.0.0.1", 0)
    packet = bytearray(client_hello())
    with sockets.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        for kind, connections in ((0xD0, 0), (0xC0, 1)):  # RFC 9000 section 17.2: 0-RTT, Initial
            packet[0] = kind | packet[0] & 0x0F
            sock.sendto(packet, ("127.0.0.1", port))
            await asyncio.sleep(0.05)
            assert len(server._listener._connections) == connections
    await server.close(0)


async def test_another_protocol_is_refused(
    server_port: int, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(ConnectionError):
        async with raw_client(server_port, allowed_peer(), alpn="quafka-mesh/2"):
            pass
    assert "upgrade brokers before gateways" in caplog.text


async def test_a_gateway_logs_what_to_do_about_a_broker_of_another_mesh(
    server_port: int, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.INFO, "quafka.mesh")

    def later(*args: Any, **options: Any) -> QuicConfiguration:
        configuration = quic_configuration(*args, **options)
        if options["is_client"]:
            configuration.alpn_protocols = ["quafka-mesh/2"]
        return configuration

    monkeypatch.setattr("quafka_mesh_ops.transport.endpoint.quic_configuration", later)
    client = MeshClient("127.0.0.1", server_port, ALLOWED, {ALLOWED.node_id}, Tracer())
    await client.start()
    await asyncio.sleep(10)
    await client.close()
    (line,) = {r.getMessage() for r in caplog.records if r.name == "quafka.mesh.client"}
    assert line.startswith(f"no connection to 127.0.0.1:{server_port}: the peer does not speak")
    assert "upgrade brokers before gateways" in line


async def test_refusals_are_logged_at_most_once_a_second(
    server_port: int, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(4):
        async with raw_client(server_port, stranger()) as client:
            await asyncio.wait_for(client.end.wait(), 30)
    logged = [record.created for record in caplog.records if "allow-list" in record.getMessage()]
    assert logged
    assert all(later - earlier > 0.99 for earlier, later in pairwise(logged))


@pytest.mark.parametrize(("shown", "reason"), REFUSED[1:])
async def test_servers_that_the_client_refuses(
    shown: Callable[[], Credentials], reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    configuration = QuicConfiguration(is_client=False, alpn_protocols=["quafka-mesh/1"])
    configuration.certificate, configuration.private_key = shown()
    server = await serve("127.0.0.1", 0, configuration=configuration)
    assert server._transport is not None
    port = server._transport.get_extra_info("sockname")[1]
    client = MeshClient("127.0.0.1", port, new_identity(), {ALLOWED.node_id}, Tracer())
    await client.start()
    try:
        with pytest.raises(PeerUnavailableError):
            await client.call(DescribeTopics(), org_id=1, deadline=0.3)
        assert not client.connected
        assert [r.getMessage() for r in caplog.records if reason in r.getMessage()]
    finally:
        await client.close()
        server.close()


async def test_a_client_that_is_refused_never_counts_as_connected(server_port: int) -> None:
    # TLS 1.3 completes at the client before the server has seen the client's certificate.
    with_stranger = MeshClient("127.0.0.1", server_port, new_identity(), set(), Tracer())
    await with_stranger.start()
    with pytest.raises(PeerUnavailableError):
        await with_stranger.call(DescribeTopics(), org_id=1, deadline=0.3)
    await with_stranger.close()


async def test_no_log_line_has_a_key_in_it(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    async with mesh() as m:
        assert await m.client.call(DescribeTopics(), org_id=1, deadline=2)
        async with raw_client(m.port, credentials(new_identity())) as stranger:
            await asyncio.wait_for(stranger.end.wait(), 30)
        said = caplog.text + repr(m.client_identity) + repr(vars(m.server_identity))
        for identity in (m.client_identity, m.server_identity):
            assert identity.node_id[:16] in said
            _, key = credentials(identity)
            raw = key.private_bytes(Encoding.Raw, PrivateFormat.Raw, NoEncryption())
            for form in (raw.hex(), repr(raw), base64.b64encode(raw).decode().rstrip("=")):
                assert form not in said
