"""Who may open a TLS connection for bulk answers: exactly the peer of the QUIC connection, once."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from quafka_loop import clock
from quafka_mesh_ops.bulk import listener as listener_module
from quafka_mesh_ops.bulk import tls
from quafka_mesh_ops.bulk.broker_channel import BrokerChannel
from quafka_mesh_ops.bulk.carrier import BulkCarrier
from quafka_mesh_ops.bulk.chunks import OPENING, ChunkKind, empty_chunk
from quafka_mesh_ops.bulk.listener import MAX_STRANGERS, BulkListener
from quafka_mesh_ops.bulk.tls import Credentials, check_certificate, encoded
from quafka_mesh_ops.errors import OpFailedError, PeerRefusedError
from quafka_mesh_ops.identity import Identity, make_certificate
from quafka_mesh_ops.ops.bulk import OpenBulk, OpenBulkResp
from tests.unit.mesh_ops.mesh import fetch_of, mesh, new_identity, over_tls

READY = empty_chunk(ChunkKind.READY)
CLUSTER_AUTHORIZATION_FAILED = 31
DAY = timedelta(days=1)


@dataclass
class Port:
    """A broker's TCP port, without QUIC."""

    listener: BulkListener
    allowed: set[str]
    gateway: Identity
    number: int
    attached: list[BrokerChannel]

    def offer(self, shown: Credentials | None = None) -> OpenBulkResp:
        ours = shown or self.gateway.certificate(clock.utc_now())
        return self.listener.offer(encoded(ours), self.gateway.node_id, self.attached.append)


@asynccontextmanager
async def port(**options: float) -> AsyncGenerator[Port]:
    broker, gateway = new_identity(), new_identity()
    allowed = {gateway.node_id}
    listener = BulkListener(broker, allowed, **options)
    await listener.start("127.0.0.1", 0, any_port=True)
    assert listener._server is not None
    number = listener._server.sockets[0].getsockname()[1]
    try:
        yield Port(listener, allowed, gateway, number, [])
    finally:
        listener.close()


def client_context(shown: Credentials | None) -> ssl.SSLContext:
    """Trusts anybody."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    if shown is not None:
        tls._load_key(context, *shown)
    return context


async def knock(
    number: int, name: bytes, context: ssl.SSLContext, token: bytes, opening: bytes = OPENING
) -> bytes:
    """What the broker sends, inside TLS, to a client that behaves like this; b"": it closed."""
    loop = asyncio.get_running_loop()
    reader, writer = await asyncio.open_connection("127.0.0.1", number)
    writer.write(opening + name)
    protocol = writer.transport.get_protocol()
    try:
        async with asyncio.timeout(5):
            transport = await loop.start_tls(writer.transport, protocol, context)
            assert transport is not None
            transport.write(token)
            return await reader.read(len(READY))
    except (OSError, asyncio.IncompleteReadError):
        return b""
    finally:
        writer.transport.abort()


def other_certificate(key: Ed25519PrivateKey, begin: timedelta, end: timedelta) -> Credentials:
    return make_certificate(key, clock.utc_now() + begin, clock.utc_now() + end), key


async def test_the_peer_itself_is_accepted_once() -> None:
    async with port() as p:
        ours = p.gateway.certificate(clock.utc_now())
        offer = p.offer()
        assert await knock(p.number, offer.name, client_context(ours), offer.token) == READY
        assert len(p.attached) == 1
        # Neither the name nor the token is worth anything now.
        assert await knock(p.number, offer.name, client_context(ours), offer.token) == b""
        assert len(p.attached) == 1


@pytest.mark.parametrize("case", ["none", "another node's", "the same key's", "expired"])
async def test_another_certificate_than_the_announced_one_is_refused(case: str) -> None:
    async with port() as p:
        announced, key = p.gateway.certificate(clock.utc_now())
        shown = {
            "none": None,
            "another node's": new_identity().certificate(clock.utc_now()),
            "the same key's": other_certificate(key, -DAY, DAY),
            "expired": other_certificate(key, -2 * DAY, -DAY),
        }[case]
        offer = p.offer((announced, key))
        assert await knock(p.number, offer.name, client_context(shown), offer.token) == b""
        assert not p.attached


@pytest.mark.parametrize("token", [bytes(32), b"short"])
async def test_a_wrong_token_is_refused(token: bytes) -> None:
    async with port(handshake_seconds=0.5) as p:
        ours = p.gateway.certificate(clock.utc_now())
        offer = p.offer()
        assert await knock(p.number, offer.name, client_context(ours), token) == b""
        assert not p.attached


async def test_an_unknown_an_expired_and_a_withdrawn_offer_are_refused() -> None:
    async with port(offer_seconds=0.05) as p:
        context = client_context(p.gateway.certificate(clock.utc_now()))
        assert await knock(p.number, bytes(16), context, bytes(32)) == b""
        offer = p.offer()
        await asyncio.sleep(0.1)
        assert await knock(p.number, offer.name, context, offer.token) == b""
        offer = p.offer()
        p.listener.withdraw(offer.name)
        assert await knock(p.number, offer.name, context, offer.token) == b""
        assert not p.attached


async def test_two_offers_cannot_be_mixed() -> None:
    """The name of one session with the token of another one of the same node."""
    async with port() as p:
        one, two = p.offer(), p.offer()
        context = client_context(p.gateway.certificate(clock.utc_now()))
        assert await knock(p.number, one.name, context, two.token) == b""
        assert not p.attached


async def test_an_older_tls_is_refused() -> None:
    async with port() as p:
        context = client_context(p.gateway.certificate(clock.utc_now()))
        context.maximum_version = ssl.TLSVersion.TLSv1_2
        offer = p.offer()
        assert await knock(p.number, offer.name, context, offer.token) == b""
        assert not p.attached


@pytest.mark.parametrize("begin", [b"", b"Q", OPENING, OPENING + bytes(15)])
async def test_a_peer_that_goes_no_further_is_closed_at_the_deadline(begin: bytes) -> None:
    async with port(handshake_seconds=0.2) as p:
        reader, writer = await asyncio.open_connection("127.0.0.1", p.number)
        writer.write(begin)
        async with asyncio.timeout(20):
            with suppress(ConnectionResetError):
                assert await reader.read() == b""
        writer.close()


@pytest.mark.parametrize("begin", [b"GET / HTTP/1.1\r\n", b"\x16\x03\x01", OPENING + b"x" * 400])
async def test_a_stranger_gets_no_tls_handshake(begin: bytes) -> None:
    async with port() as p:
        reader, writer = await asyncio.open_connection("127.0.0.1", p.number)
        writer.write(begin)
        async with asyncio.timeout(20):
            with suppress(ConnectionResetError):
                assert await reader.read() == b""
        writer.close()


async def test_strangers_are_bounded_and_do_not_keep_the_peer_out() -> None:
    async with port() as p:
        strangers = [
            await asyncio.open_connection("127.0.0.1", p.number) for _ in range(2 * MAX_STRANGERS)
        ]
        await asyncio.sleep(0.05)
        assert len(p.listener._pending) == MAX_STRANGERS
        ours = p.gateway.certificate(clock.utc_now())
        offer = p.offer()
        assert await knock(p.number, offer.name, client_context(ours), offer.token) == READY
        for _, writer in strangers:
            writer.transport.abort()


# --- what is said over QUIC -------------------------------------------------------------------


def damaged(identity: Identity) -> bytes:
    return encoded(identity.certificate(clock.utc_now()))[:-1]


def anothers(_identity: Identity) -> bytes:
    return encoded(new_identity().certificate(clock.utc_now()))


def expired(identity: Identity) -> bytes:
    _, key = identity.certificate(clock.utc_now())
    return encoded(other_certificate(key, -2 * DAY, -DAY))


@pytest.mark.parametrize("announce", [damaged, anothers, expired])
async def test_a_broker_offers_nothing_to_a_bad_certificate(
    announce: Callable[[Identity], bytes],
) -> None:
    async with mesh(bulk=BulkCarrier.TLS) as m:
        await over_tls(m)
        await asyncio.sleep(0.1)
        op = OpenBulk(announce(m.client_identity))
        with pytest.raises(OpFailedError) as failed:
            await m.client.call(op, org_id=1, deadline=5)
        assert failed.value.error_code == CLUSTER_AUTHORIZATION_FAILED


async def test_a_gateway_that_asks_all_the_time_gets_few_offers() -> None:
    async with mesh(bulk=BulkCarrier.TLS) as m:
        await over_tls(m)
        await asyncio.sleep(0.1)
        op = OpenBulk(encoded(m.client_identity.certificate(clock.utc_now())))
        calls = [m.client.call(op, org_id=1, deadline=5) for _ in range(500)]
        found = await asyncio.gather(*calls, return_exceptions=True)
        offers = [one for one in found if isinstance(one, OpenBulkResp)]
        assert 1 <= len(offers) <= 10
        assert len(m.server._bulk._offers) == 1  # type: ignore[union-attr]
        await m.client.call(fetch_of(100_000), org_id=1, deadline=5)
        assert m.client.counters().bulk_over_tls


@pytest.mark.parametrize("announce", [damaged, anothers, expired])
def test_a_gateway_uses_no_bad_certificate(announce: Callable[[Identity], bytes]) -> None:
    identity = new_identity()
    certificate = announce(identity)
    with pytest.raises(PeerRefusedError):
        check_certificate(certificate, identity.node_id, {identity.node_id})


def test_a_certificate_of_a_node_that_is_not_allowed_is_refused() -> None:
    identity = new_identity()
    certificate = encoded(identity.certificate(clock.utc_now()))
    check_certificate(certificate, identity.node_id, {identity.node_id})
    with pytest.raises(PeerRefusedError, match="not on the allow-list"):
        check_certificate(certificate, identity.node_id, ())


@pytest.mark.parametrize("case", ["another node's", "the same key's", "expired"])
async def test_a_gateway_sends_no_token_to_another_server(
    case: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever took the broker's TCP port lacks the certificate that the broker announced."""
    tokens: list[bytes] = []
    real = tls.tls_context

    def false_server(ours: Credentials, certificate: bytes, *, server_side: bool) -> ssl.SSLContext:
        _, key = ours
        shown = {
            "another node's": new_identity().certificate(clock.utc_now()),
            "the same key's": other_certificate(key, -DAY, DAY),
            "expired": other_certificate(key, -2 * DAY, -DAY),
        }[case]
        return real(shown, certificate, server_side=server_side)

    def seen(channel: BrokerChannel, plain: bytes) -> bytes:
        tokens.append(plain)
        return b""

    monkeypatch.setattr(listener_module, "tls_context", false_server)
    monkeypatch.setattr(BrokerChannel, "_token", seen)
    async with mesh(bulk=BulkCarrier.TLS) as m:
        await asyncio.sleep(0.3)
        assert not m.client.counters().bulk_over_tls
        assert not any(tokens)
        answer = await m.client.call(fetch_of(100_000), org_id=1, deadline=5)
        assert len(answer.partitions[0].records[0]) == 100_000


async def test_a_right_server_is_used_by_the_same_path() -> None:
    """The counterpart of the test above: only the certificate makes the difference."""
    async with mesh(bulk=BulkCarrier.TLS) as m:
        await over_tls(m)
