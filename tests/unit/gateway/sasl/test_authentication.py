"""A connection at a listener with SASL, from its first byte to the end of its session."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

import pytest

from quafka_gateway.api import APIS
from quafka_gateway.cluster.broker_link import BrokerLink
from quafka_gateway.config import EdgeSettings
from quafka_gateway.context import Services
from quafka_gateway.edge.connection import KafkaConnection
from quafka_gateway.handlers.kafka_api import AnyApi
from quafka_gateway.listeners import KafkaListener, SecurityProtocol
from quafka_gateway.memory import RequestMemory, ResponseMemory
from quafka_gateway.security.principal import Principal
from quafka_gateway.security.sasl.service import SaslService, settings_of
from quafka_mesh_ops.ops.security import SecurityChange
from quafka_proto.codec import decode
from quafka_proto.errors import ErrorCode
from quafka_proto.headers import decode_response_header, encode_request
from quafka_proto.message import Message
from quafka_proto.schema.api_versions import ApiVersionsRequest, ApiVersionsResponse
from quafka_proto.schema.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from quafka_proto.schema.sasl import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)
from quafka_telemetry.tracing import Tracer
from tests.support.memory_transport import MemoryTransport
from tests.support.tenants import only, tenant_over
from tests.unit.gateway.sasl.tokens import Issuer
from tests.unit.gateway.sasl.users import SECRET, ScramClient, credential, learn, plain, user
from tests.unit.gateway.test_connection import HeldBroker

LISTENER = KafkaListener("SASL", SecurityProtocol.SASL_PLAINTEXT, "localhost", 1, ("localhost", 1))
ALICE = user("alice", credential("secret"))


class Gateway:
    """A gateway with users, and without a network."""

    def __init__(self, *changes: SecurityChange, **settings: Any) -> None:
        settings = {"sasl_enabled_mechanisms": ("PLAIN", "SCRAM-SHA-256"), **settings}
        config = EdgeSettings(connection_failed_authentication_delay_ms=0, **settings)
        self.broker = HeldBroker()
        memory = ResponseMemory(1 << 20)
        tenants = only(tenant_over(cast(BrokerLink, self.broker), memory))
        self.directory = tenants.directory
        self.sasl = SaslService(settings_of(config), self.directory, 1, SECRET)
        self.memory = RequestMemory(1 << 20)
        self.services = Services(
            APIS, tenants, (LISTENER,), Tracer(), 1 << 20, self.memory, memory, config,
            sasl=self.sasl,
        )  # fmt: skip
        self.serial = 0
        if changes:
            learn(self.directory, *changes, restart=True)

    def client(self) -> Client:
        self.serial += 1
        return Client(self, self.serial)


class Client:
    """One connection."""

    def __init__(self, gateway: Gateway, serial: int = 0) -> None:
        self.gateway = gateway
        self.transport = MemoryTransport()
        self.decoded: list[str] = []
        apis = {key: cast(AnyApi, _Watched(api, self.decoded)) for key, api in APIS.items()}
        self.connection = KafkaConnection(
            gateway.services, apis, LISTENER, serial, lambda connection: None
        )
        self.connection.connection_made(self.transport)

    def send(self, request: Message, version: int) -> None:
        self.receive(framed(request, version))

    def receive(self, data: bytes) -> None:
        self.connection.data_received(data)

    def responses(self) -> Iterator[bytes]:
        written, self.transport.written = self.transport.written, b""
        while written:
            end = 4 + int.from_bytes(written[:4])
            yield written[4:end]
            written = written[end:]

    async def answer(self, kind: type[Message], version: int) -> Any:
        for _ in range(500):
            if self.transport.written or self.transport.gone:
                break
            await asyncio.sleep(0.001)
        (frame,) = self.responses()
        _, at = decode_response_header(kind, version, frame)
        return decode(kind, version, frame, at)

    async def ask(self, request: Message, version: int, kind: type[Message]) -> Any:
        self.send(request, version)
        return await self.answer(kind, version)

    async def shake(self, mechanism: str = "SCRAM-SHA-256", version: int = 1) -> Any:
        request = SaslHandshakeRequest(mechanism=mechanism)
        return await self.ask(request, version, SaslHandshakeResponse)

    async def token(self, token: bytes, version: int = 2) -> Any:
        request = SaslAuthenticateRequest(auth_bytes=token)
        return await self.ask(request, version, SaslAuthenticateResponse)

    async def scram(self, name: str = "alice", password: str = "secret") -> Any:
        client = ScramClient("SCRAM-SHA-256", name, password)
        assert (await self.shake()).error_code == 0
        first = await self.token(client.first())
        answer = await self.token(client.final(first.auth_bytes))
        assert answer.error_code or client.accepts(answer.auth_bytes)
        return answer


class _Watched:
    """An API that records that a request of it was decoded."""

    def __init__(self, api: AnyApi, decoded: list[str]) -> None:
        self._api = api
        self._decoded = decoded

    def __getattr__(self, name: str) -> Any:
        if name == "request":
            self._decoded.append(self._api.name)
        return getattr(self._api, name)


def framed(request: Message, version: int) -> bytes:
    return b"".join(encode_request(7, "test", cast(Any, request), version))


def produce() -> bytes:
    data = PartitionProduceData(index=0, records=b"batch")
    topics = [TopicProduceData(name="t", partition_data=[data])]
    return framed(ProduceRequest(acks=-1, topic_data=topics), 9)


async def until(condition: Callable[[], object]) -> None:
    for _ in range(500):
        if condition():
            return
        await asyncio.sleep(0.002)
    raise AssertionError("it did not come true")


# --- success --------------------------------------------------------------------------------


async def test_versions_handshake_scram_and_then_requests() -> None:
    gateway = Gateway(ALICE)
    client = gateway.client()
    versions = await client.ask(ApiVersionsRequest(), 3, ApiVersionsResponse)
    assert {each.api_key for each in versions.api_keys} >= {0, 1, 17, 36}
    answer = await client.scram()
    assert (answer.error_code, answer.session_lifetime_ms) == (0, 0)
    client.receive(produce())
    await until(lambda: gateway.broker.produced)
    session = client.connection._session
    assert (session.principal, session.mechanism) == (Principal("User", "alice"), "SCRAM-SHA-256")
    assert gateway.sasl.counts[("SCRAM-SHA-256", "success")] == 1
    assert len(gateway.sasl.unauthenticated) == 0
    assert len(gateway.sasl.logins) == 1
    client.connection.connection_lost(None)
    assert len(gateway.sasl.logins) == 0
    assert gateway.memory.held == len(produce()) - 4  # the produce is completed


@pytest.mark.parametrize("version", [0, 1, 2])
async def test_plain(version: int) -> None:
    client = Gateway(ALICE).client()
    assert (await client.shake("PLAIN")).mechanisms == ["PLAIN", "SCRAM-SHA-256"]
    assert (await client.token(plain("alice", "secret"), version)).error_code == 0
    assert client.connection._session.principal.name == "alice"


async def test_tokens_without_headers_after_handshake_0() -> None:
    client = Gateway(ALICE).client()
    await client.shake(version=0)
    scram = ScramClient("SCRAM-SHA-256", "alice", "secret")
    client.receive(len(scram.first()).to_bytes(4) + scram.first())
    await until(lambda: client.transport.written)
    (challenge,) = client.responses()
    final = scram.final(challenge)
    client.receive(len(final).to_bytes(4) + final)
    await until(lambda: client.transport.written)
    assert scram.accepts(next(client.responses()))
    client.receive(produce())
    await until(lambda: client.gateway.broker.produced)


async def test_byte_by_byte() -> None:
    client = Gateway(ALICE).client()
    for byte in framed(SaslHandshakeRequest(mechanism="PLAIN"), 1):
        client.receive(bytes([byte]))
    assert (await client.answer(SaslHandshakeResponse, 1)).error_code == 0


async def test_a_later_version_of_api_versions_may_be_asked_again() -> None:
    client = Gateway(ALICE).client()
    client.receive(b"\0\0\0\x0c" + b"\0\x12\0\x63\0\0\0\x01\xff\xff\0\0")
    assert (await client.answer(ApiVersionsResponse, 0)).error_code == ErrorCode.UNSUPPORTED_VERSION
    assert (await client.ask(ApiVersionsRequest(), 3, ApiVersionsResponse)).error_code == 0


# --- nothing runs before ---------------------------------------------------------------------


async def test_a_produce_behind_the_proof_waits_undecoded_and_then_runs() -> None:
    gateway = Gateway(ALICE)
    client = gateway.client()
    await client.shake("PLAIN")
    client.receive(
        framed(SaslAuthenticateRequest(auth_bytes=plain("alice", "secret")), 1) + produce()
    )
    assert (client.decoded, gateway.broker.produced) == ([], [])
    await until(lambda: gateway.broker.produced)
    assert client.decoded == ["Produce"]


async def test_a_produce_behind_a_wrong_proof_is_never_decoded() -> None:
    gateway = Gateway(ALICE)
    client = gateway.client()
    await client.shake("PLAIN")
    wrong = framed(SaslAuthenticateRequest(auth_bytes=plain("alice", "wrong")), 1)
    client.receive(wrong + produce() + produce())
    answer = await client.answer(SaslAuthenticateResponse, 1)
    assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
    await until(lambda: client.transport.gone)
    client.receive(produce())
    client.connection.connection_lost(None)
    await client.connection.wait_ended()
    assert (client.decoded, gateway.broker.produced, gateway.memory.held) == ([], [], 0)


@pytest.mark.parametrize("first", [True, False])
async def test_other_requests_close_the_connection_undecoded(first: bool) -> None:
    client = Gateway(ALICE).client()
    if not first:
        await client.shake()
    client.receive(produce())
    await until(lambda: client.transport.gone)
    assert (client.decoded, client.transport.written) == ([], b"")


@pytest.mark.parametrize(
    "data",
    [
        b"GET / HTTP/1.1\r\n\r\n", b"\x7f\xff\xff\xff", b"\0\0\0\0", b"\xff\xff\xff\xff",
        b"\0\0\0\x01\0", b"\0\0\0\x02\0\x12", b"\0\x01\0\x01" + bytes(100),
        framed(SaslAuthenticateRequest(auth_bytes=b""), 2),
        framed(SaslHandshakeRequest(mechanism="x" * 9_000), 1),
        b"\0\0\0\x0a\0\x11\0\x09\0\0\0\x01\xff\xff",
    ],
)  # fmt: skip
async def test_bytes_that_are_no_beginning(data: bytes) -> None:
    gateway = Gateway(ALICE)
    client = gateway.client()
    client.receive(data)
    await until(lambda: client.transport.gone)
    assert client.transport.written == b""
    client.connection.connection_lost(None)
    assert gateway.memory.held == 0


async def test_api_versions_twice_closes_the_connection() -> None:
    client = Gateway(ALICE).client()
    await client.ask(ApiVersionsRequest(), 0, ApiVersionsResponse)
    client.send(ApiVersionsRequest(), 0)
    await until(lambda: client.transport.gone)


async def test_a_connection_has_few_requests_before_it_authenticates() -> None:
    client = Gateway(ALICE).client()
    client.receive((b"\0\0\0\x0c" + b"\0\x12\0\x63\0\0\0\x01\xff\xff\0\0") * 100)
    await until(lambda: client.transport.gone)
    assert len(list(client.responses())) == 16


async def test_an_unknown_mechanism_is_answered_with_those_there_are() -> None:
    client = Gateway(ALICE).client()
    answer = await client.shake("GSSAPI")
    assert answer.error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM
    assert answer.mechanisms == ["PLAIN", "SCRAM-SHA-256"]
    await until(lambda: client.transport.gone)


async def test_reading_stops_while_much_waits_behind_an_exchange() -> None:
    gateway = Gateway(ALICE, sasl_server_max_receive_size=1_024)
    client = gateway.client()
    await client.shake("PLAIN")
    client.receive(framed(SaslAuthenticateRequest(auth_bytes=plain("alice", "secret")), 1))
    client.receive(produce() * 30)
    assert client.transport.paused == 1
    await until(lambda: len(gateway.broker.produced) == 30)
    assert client.transport.paused == 0


# --- limits ---------------------------------------------------------------------------------


async def test_a_connection_that_does_not_authenticate_in_time() -> None:
    client = Gateway(ALICE, connection_authentication_timeout_ms=100).client()
    await client.shake()
    await until(lambda: client.transport.gone)
    client.connection.connection_lost(None)
    assert len(client.gateway.sasl.unauthenticated) == 0


async def test_the_oldest_unauthenticated_connection_gives_way() -> None:
    gateway = Gateway(ALICE, max_unauthenticated_connections=2)
    clients = [gateway.client() for _ in range(3)]
    assert [each.transport.gone for each in clients] == [True, False, False]
    assert (len(gateway.sasl.unauthenticated), gateway.sasl.unauthenticated.evicted) == (2, 1)


async def test_too_many_failures_of_an_address() -> None:
    gateway = Gateway(ALICE, max_failed_authentications_per_ip=2)
    for _ in range(2):
        client = gateway.client()
        assert (await client.scram(password="wrong")).error_code
    assert gateway.client().transport.gone
    assert gateway.services.stats.refused == 1


async def test_without_a_copy_of_the_users_clients_must_come_again() -> None:
    client = Gateway().client()
    client.send(SaslHandshakeRequest(mechanism="PLAIN"), 1)
    await until(lambda: client.transport.gone)
    assert client.transport.written == b""


async def test_a_refusal_has_its_delay() -> None:
    gateway = Gateway(ALICE)
    object.__setattr__(gateway.sasl.settings, "delay", 0.05)
    client = gateway.client()
    await client.shake("PLAIN")
    began = asyncio.get_running_loop().time()
    assert (await client.token(plain("alice", "wrong"))).error_code
    assert asyncio.get_running_loop().time() - began == pytest.approx(0.05)


# --- sessions -------------------------------------------------------------------------------


async def test_a_changed_or_removed_credential_ends_its_connections() -> None:
    gateway = Gateway(ALICE, user("bob", credential("secret")))
    alice, bob = gateway.client(), gateway.client()
    await alice.scram()
    await bob.scram("bob")
    learn(gateway.directory, ALICE)  # written again, unchanged
    await asyncio.sleep(0.01)
    assert not alice.transport.gone
    learn(gateway.directory, user("alice"))
    await until(lambda: alice.transport.gone)
    learn(gateway.directory, user("bob", credential("other")), restart=True)
    await until(lambda: bob.transport.gone)


async def test_reauthentication_renews_a_session() -> None:
    gateway = Gateway(ALICE, connections_max_reauth_ms=60_000)
    client = gateway.client()
    answer = await client.scram()
    assert answer.session_lifetime_ms == 60_000
    session = client.connection._session
    session.expires_at = asyncio.get_running_loop().time() - 1
    client.receive(framed(SaslHandshakeRequest(mechanism="SCRAM-SHA-256"), 1))
    assert (await client.answer(SaslHandshakeResponse, 1)).error_code == 0
    scram = ScramClient("SCRAM-SHA-256", "alice", "secret")
    first = await client.token(scram.first())
    client.receive(framed(SaslAuthenticateRequest(auth_bytes=scram.final(first.auth_bytes)), 2))
    client.receive(produce())
    await until(lambda: gateway.broker.produced)
    assert session.expires_at > asyncio.get_running_loop().time() + 50
    assert len(gateway.sasl.logins) == 1


async def test_a_request_after_the_session_closes_the_connection() -> None:
    gateway = Gateway(ALICE, connections_max_reauth_ms=60_000)
    client = gateway.client()
    await client.scram()
    session = client.connection._session
    session.expires_at = asyncio.get_running_loop().time() - 1
    assert not client.connection.expired(session.expires_at + 2)
    assert client.connection.expired(session.expires_at + 10)
    client.receive(produce())
    await until(lambda: client.transport.gone)
    assert (gateway.broker.produced, gateway.sasl.expired) == ([], 1)


@pytest.mark.parametrize(
    ("mechanism", "name"), [("PLAIN", "alice"), ("SCRAM-SHA-256", "bob"), ("SCRAM-SHA-256", "")]
)
async def test_reauthentication_may_change_nothing(mechanism: str, name: str) -> None:
    gateway = Gateway(ALICE, user("bob", credential("secret")), connections_max_reauth_ms=60_000)
    client = gateway.client()
    await client.scram()
    if mechanism == "PLAIN":
        assert (await client.shake(mechanism)).error_code == 0
        answer = await client.token(plain(name, "secret"))
    else:
        answer = await client.scram(name or "alice", "secret" if name else "wrong")
    assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
    await until(lambda: client.transport.gone)


async def test_without_an_end_of_the_session_a_handshake_is_an_illegal_state() -> None:
    client = Gateway(ALICE).client()
    await client.scram()
    assert (await client.shake()).error_code == ErrorCode.ILLEGAL_SASL_STATE


async def test_a_token_ends_its_session(tmp_path: Path) -> None:
    issuer = Issuer()
    keys = tmp_path / "keys.json"
    keys.write_bytes(issuer.jwks)
    gateway = Gateway(
        ALICE,
        sasl_enabled_mechanisms=("OAUTHBEARER",),
        sasl_oauthbearer_jwks_endpoint_url=keys.as_uri(),
        sasl_oauthbearer_expected_audience=("kafka",),
    )
    await gateway.sasl.start()
    client = gateway.client()
    await client.shake("OAUTHBEARER")
    answer = await client.token(b"n,,\x01auth=Bearer %s\x01\x01" % issuer.token().encode())
    assert answer.error_code == 0
    assert 50_000 < answer.session_lifetime_ms <= 60_000
    assert client.connection._session.principal.name == "alice"
    refused = gateway.client()
    await refused.shake("OAUTHBEARER")
    token = issuer.token(aud="other").encode()
    answer = await refused.token(b"n,,\x01auth=Bearer %s\x01\x01" % token)
    assert (answer.error_code, json.loads(answer.auth_bytes)) == (0, {"status": "invalid_token"})
    answer = await refused.token(b"\x01")
    assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
    await gateway.sasl.close()


async def test_a_request_behind_the_login_may_be_larger_than_the_login() -> None:
    gateway = Gateway(ALICE, sasl_server_max_receive_size=1_024)
    client = gateway.client()
    await client.shake("PLAIN")
    data = PartitionProduceData(index=0, records=bytes(100_000))
    topics = [TopicProduceData(name="t", partition_data=[data])]
    large = framed(ProduceRequest(acks=-1, topic_data=topics), 9)
    login = framed(SaslAuthenticateRequest(auth_bytes=plain("alice", "secret")), 1)
    client.receive(login + large[:60_000])
    assert client.transport.paused == 1
    await until(lambda: client.transport.paused == 0)
    client.receive(large[60_000:])
    await until(lambda: gateway.broker.produced)
