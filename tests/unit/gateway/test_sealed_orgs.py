"""What a client gets whose name, token or listener names an org that is known, or not.

Each case plays one client at one listener: which org it enters under which name, and what super
users, rules and quotas grant it there. No client may ever get what belongs to another org.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple, cast
from unittest import mock

import pytest

from quafka_gateway.api import APIS
from quafka_gateway.cluster.broker_link import BrokerLink
from quafka_gateway.config import EdgeSettings
from quafka_gateway.context import RequestContext, Services
from quafka_gateway.edge.connection import KafkaConnection
from quafka_gateway.listeners import KafkaListener, SecurityProtocol
from quafka_gateway.memory import RequestMemory, ResponseMemory
from quafka_gateway.security.authorizer import Authorizer, right
from quafka_gateway.security.directory import Directory
from quafka_gateway.security.principal import Principal
from quafka_gateway.security.sasl.service import SaslService, settings_of
from quafka_gateway.tenants import OrgRefusedError, Tenants
from quafka_mesh_ops.ops.security import (
    OrgRecord,
    QuotaRecord,
    SecurityChange,
)
from quafka_proto.acl_kinds import Operation, ResourceKind
from quafka_proto.codec import decode
from quafka_proto.headers import decode_response_header, encode_request
from quafka_proto.message import Message
from quafka_proto.schema.quotas import EntityData, ValueData
from quafka_proto.schema.sasl import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)
from quafka_telemetry.tracing import NO_SPAN, Tracer
from tests.support.acls import acl
from tests.support.memory_transport import MemoryTransport
from tests.support.tenants import tenant_over
from tests.unit.gateway.sasl.tokens import Issuer
from tests.unit.gateway.sasl.users import SECRET, credential, learn, org, plain, user
from tests.unit.gateway.test_connection import HeldBroker

OWN, ACME = 1, 7
SUPER = "User:root;User:alice@acme"
READ = right(Operation.READ, ResourceKind.TOPIC)
WHOLE = "alice@acme"
PROOFS = ("certificate", "password", "token")
ISSUER = Issuer(kind="EC")


def _gone(org_id: int, name: str) -> SecurityChange:
    return SecurityChange(removed=True, org=OrgRecord(org_id, name, "deleting", []))


STATES: dict[str, list[SecurityChange]] = {
    "known": [org(ACME, "acme")],
    "unknown": [],
    "deleted": [org(ACME, "acme"), org(ACME, "acme", "deleting"), _gone(ACME, "acme")],
    "deleting": [org(ACME, "acme"), org(ACME, "acme", "deleting")],
    "renamed": [org(ACME, "acme"), org(ACME, "other")],
    "suspended": [org(ACME, "acme"), org(ACME, "acme", "suspended")],
}


class Granted(NamedTuple):
    """What a client has in the org that it has entered.

    Attributes:
        topics: of the topics of `_records`, those that it may read.
        rate: of the quota that holds for it.
    """

    org_id: int
    name: str
    is_super: bool
    topics: tuple[str, ...]
    rate: float


def _quota(org_id: int, name: str, rate: float) -> SecurityChange:
    entity = [EntityData("user", name)]
    record = QuotaRecord(org_id, entity, [ValueData("producer_byte_rate", rate)])
    return SecurityChange(removed=False, quota=record)


ACCOUNTS = {(OWN, WHOLE): 10.0, (OWN, "alice"): 20.0, (ACME, "alice"): 30.0, (ACME, WHOLE): 40.0}
"""In each org an account under each name that the client may have there; the rate of its quota."""


def _records() -> Iterator[SecurityChange]:
    """A user, a rule and a quota of each account."""
    for (org_id, name), rate in ACCOUNTS.items():
        yield user(name, credential("secret"), org=org_id)
        topic = f"{org_id}/{name}"
        rule = acl(f"User:{name}", Operation.READ, ResourceKind.TOPIC, topic, org=org_id)
        yield SecurityChange(removed=False, acl=rule)
        yield _quota(org_id, name, rate)


def _expected(org_id: int, name: str, *, is_super: bool = False) -> Granted:
    every = tuple(f"{its}/{each}" for its, each in ACCOUNTS)
    topics = every if is_super else (f"{org_id}/{name}",)
    return Granted(org_id, name, is_super, topics, ACCOUNTS[org_id, name])


class Gateway:
    """A gateway of org 1 with records, and without a network."""

    def __init__(self, keys: Path, super_users: str = SUPER, **settings: Any) -> None:
        config = EdgeSettings(
            connection_failed_authentication_delay_ms=0,
            sasl_enabled_mechanisms=("PLAIN", "OAUTHBEARER"),
            sasl_oauthbearer_jwks_endpoint_url=keys.as_uri(),
            sasl_oauthbearer_expected_audience=("kafka",),
            **settings,
        )
        responses = ResponseMemory(1 << 20)
        link = cast(BrokerLink, HeldBroker())
        self.directory = Directory()
        self.tenants = Tenants(
            lambda org_id: tenant_over(link, responses, org_id), OWN, self.directory, most=10
        )
        self.sasl = SaslService(settings_of(config), self.directory, OWN, SECRET)
        self.authorizer = Authorizer(self.directory, OWN, super_users)
        self.services = Services(
            APIS, self.tenants, (), Tracer(), 1 << 20, RequestMemory(1 << 20), responses, config,
            sasl=self.sasl, authorizer=self.authorizer,
        )  # fmt: skip

        learn(self.directory, *_records(), restart=True)

    def restate(self) -> None:
        """The broker has restarted: the gateway reads all records anew."""
        copy = self.directory
        changes = [SecurityChange(removed=False, org=record) for record in copy.orgs().values()]
        for each in (OWN, ACME):
            changes += [SecurityChange(removed=False, user=user) for user in copy.users(each)]
            changes += [SecurityChange(removed=False, acl=rule) for rule in copy.acls(each)]
            changes += [
                SecurityChange(removed=False, quota=one) for one in copy.quotas(each).values()
            ]
        learn(copy, *changes, restart=True)

    async def granted(self, listener_org: str, proof: str, claim: str = "") -> Granted | None:
        """Connect a client; None: it was refused."""
        connection = await self.connect(listener_org, proof, claim)
        return connection.granted()

    async def connect(self, listener_org: str, proof: str, claim: str = "") -> Connection:
        """Connect alice@acme, by a proof of `PROOFS`. `claim`: the org that its token names."""
        protocol = SecurityProtocol.SSL if proof == "certificate" else SecurityProtocol.SASL_SSL
        listener = KafkaListener("L", protocol, "localhost", 1, ("localhost", 1), org=listener_org)
        self.tenants.named_by_settings(listener_org)  # as at the gateway's start
        connection = Connection(self, listener, WHOLE if proof == "certificate" else "")
        if proof == "password":
            await connection.log_in("PLAIN", plain(WHOLE, "secret"))
        elif proof == "token":
            token = ISSUER.token(sub=WHOLE, org=claim or None)
            await connection.log_in(
                "OAUTHBEARER", b"n,,\x01auth=Bearer %s\x01\x01" % token.encode()
            )
        return connection


class Connection:
    """One client."""

    def __init__(self, gateway: Gateway, listener: KafkaListener, certificate: str) -> None:
        self._gateway = gateway
        self.transport = MemoryTransport()
        self._connection = KafkaConnection(
            gateway.services, APIS, listener, 0, lambda _: None, certificate_name=certificate
        )
        self._connection.connection_made(self.transport)
        self.entered = not listener.protocol.sasl and not self.transport.gone

    async def log_in(self, mechanism: str, token: bytes) -> None:
        handshake = SaslHandshakeRequest(mechanism=mechanism)
        await self._ask(handshake, 1, SaslHandshakeResponse)
        answer = await self._ask(SaslAuthenticateRequest(token), 2, SaslAuthenticateResponse)
        # A refused token has an answer without an error, and an error after it.
        refused = (
            answer is None or answer.error_code or (mechanism != "PLAIN" and answer.auth_bytes)
        )
        self.entered = not refused

    async def _ask(self, request: Message, version: int, kind: type[Message]) -> Any:
        frame = b"".join(encode_request(7, "test", cast(Any, request), version))
        self._connection.data_received(frame)
        while not self.transport.written and not self.transport.gone:
            await asyncio.sleep(0.001)
        written, self.transport.written = self.transport.written[4:], b""
        if not written:
            return None
        _, at = decode_response_header(kind, version, written)
        return decode(kind, version, written, at)

    def granted(self) -> Granted | None:
        if not self.entered or self.transport.gone:
            return None
        gateway, session = self._gateway, self._connection._session
        context = RequestContext(gateway.services, session, 0, "c", 0, NO_SPAN, "/192.0.2.1")
        access = context.access
        assert access is not None, "the gateway has an authorizer"
        assert not context.is_operator, "alice is of acme"
        topics = tuple(
            topic for org_id, name in ACCOUNTS if access.allows(READ, topic := f"{org_id}/{name}")
        )
        quotas = context.quotas
        assert quotas is not None
        assert quotas.produce is not None
        rate = quotas.produce.burst / 10  # the windows are eleven samples of a second
        org_id, name = session.tenant.org_id, session.principal.name
        return Granted(org_id, name, access.is_super, topics, rate)


@pytest.fixture
def keys(tmp_path: Path) -> Path:
    path = tmp_path / "keys.json"
    path.write_bytes(ISSUER.jwks)
    return path


def _play(gateway: Gateway, state: str) -> None:
    for change in STATES[state]:
        learn(gateway.directory, change)
    if state == "deleted":  # its records have gone before it
        removed = [user(name, org=ACME) for org_id, name in ACCOUNTS if org_id == ACME]
        learn(gateway.directory, *removed)


ALICE = _expected(ACME, "alice", is_super=True)
WHOLE_IN_ACME = _expected(ACME, WHOLE)
WHOLE_IN_OWN = _expected(OWN, WHOLE)


@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("proof", ["certificate", "password"])
async def test_the_suffix_of_a_name_is_an_org_or_the_client_is_refused(
    keys: Path, state: str, proof: str
) -> None:
    gateway = Gateway(keys)
    _play(gateway, state)
    assert await gateway.granted("", proof) == (ALICE if state == "known" else None)


@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("proof", ["certificate", "password", "token"])
@pytest.mark.parametrize("restart", [False, True])
async def test_at_a_listener_with_an_org_names_are_whole(
    keys: Path, state: str, proof: str, restart: bool
) -> None:
    gateway = Gateway(keys)
    await gateway.sasl.start()
    _play(gateway, state)
    if restart:
        gateway.restate()
    by_name = WHOLE_IN_ACME if state == "known" else None
    by_id = WHOLE_IN_ACME if state in ("known", "renamed", "unknown", "deleted") else None
    if state == "deleted" and proof == "password":
        by_id = None  # its users are gone
    assert await gateway.granted("acme", proof) == by_name
    assert await gateway.granted("7", proof) == by_id
    assert await gateway.granted("1", proof) == WHOLE_IN_OWN
    await gateway.sasl.close()


@pytest.mark.parametrize("state", STATES)
async def test_the_name_of_a_token_is_whole_and_its_claim_is_an_org(keys: Path, state: str) -> None:
    without = Gateway(keys)
    await without.sasl.start()
    _play(without, state)
    assert await without.granted("", "token") == WHOLE_IN_OWN
    await without.sasl.close()

    gateway = Gateway(keys, sasl_oauthbearer_org_claim_name="org")
    await gateway.sasl.start()
    _play(gateway, state)
    by_name = WHOLE_IN_ACME if state == "known" else None
    by_id = WHOLE_IN_ACME if state in ("known", "renamed") else None
    assert await gateway.granted("", "token", "acme") == by_name
    assert await gateway.granted("", "token", "7") == by_id
    assert await gateway.granted("", "token", "1") == WHOLE_IN_OWN
    assert await gateway.granted("acme", "token", "acme") == by_name
    assert await gateway.granted("1", "token", "acme") is None
    assert await gateway.granted("acme", "token", "1") is None
    assert await gateway.granted("nobody", "token", "none") is None
    await gateway.sasl.close()


@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize(
    ("super_users", "org_id", "name", "states"),
    [
        ("User:alice@acme", ACME, "alice", {"known", "suspended", "deleting"}),
        ("User:alice@other", ACME, "alice", {"renamed"}),
        ("User:alice@7", ACME, "alice", set(STATES)),
        ("User:alice@acme", OWN, WHOLE, set()),
        ("User:alice@acme", OWN, "alice", set()),
        ("User:alice@acme", ACME, WHOLE, set()),
        ("User:alice@acme@acme", ACME, WHOLE, {"known", "suspended", "deleting"}),
        ("User:alice@acme@acme", OWN, WHOLE, set()),
        ("User:alice@acme@1", OWN, WHOLE, set(STATES)),
        ("User:alice@acme@1", ACME, WHOLE, set()),
        ("User:alice@acme@own", OWN, WHOLE, set(STATES)),
        ("User:alice@0", 0, "alice", set()),
        ("User:alice@99999999999999999999", 0, "alice", set()),
        ("User:alice", OWN, "alice", set(STATES)),
        ("User:alice", ACME, "alice", set()),
        ("User:CN=a@b,O=c", OWN, "CN=a@b,O=c", set(STATES)),
    ],
)  # fmt: skip
def test_whom_an_entry_of_super_users_means(
    state: str, super_users: str, org_id: int, name: str, states: set[str]
) -> None:
    directory = Directory()
    authorizer = Authorizer(directory, OWN, super_users)
    access = authorizer.access(org_id, Principal("User", name), "h")
    learn(directory, org(OWN, "own"), restart=True)
    for change in STATES[state]:
        learn(directory, change)
    assert access.is_super == (state in states)


@pytest.mark.parametrize("restart", [False, True])
@pytest.mark.parametrize("state", [state for state in STATES if state not in ("known", "unknown")])
async def test_open_connections_keep_nothing_that_a_new_one_would_not_get(
    keys: Path, state: str, restart: bool
) -> None:
    gateway = Gateway(keys)
    await gateway.sasl.start()
    learn(gateway.directory, org(ACME, "acme"))
    cases = [(listener, proof) for listener in ("", "acme", "7", "1") for proof in PROOFS]
    connections = [await gateway.connect(*case) for case in cases]
    assert all(each.granted() for each in connections)
    _play(gateway, state)
    if restart:
        gateway.restate()
    await asyncio.sleep(0.1)
    for case, connection in zip(cases, connections, strict=True):
        open_one, new = connection.granted(), await gateway.granted(*case)
        # An org that was deleted may be entered again by its id, but its former connections end.
        assert open_one == (None if state == "deleted" and case[0] == "7" else new), case
    await gateway.sasl.close()


async def test_a_name_of_another_org_now_is_not_that_of_its_former_clients(keys: Path) -> None:
    gateway = Gateway(keys)
    learn(gateway.directory, org(ACME, "acme"))
    before = await gateway.connect("", "certificate")
    assert before.granted() == ALICE
    learn(gateway.directory, org(ACME, "former"), org(8, "acme"))
    assert before.transport.gone
    after = await gateway.connect("", "certificate")
    assert after._connection._session.tenant.org_id == 8


async def test_a_login_that_began_before_a_renaming_is_refused_after_it(keys: Path) -> None:
    gateway = Gateway(keys)
    learn(gateway.directory, org(ACME, "acme"))
    account = gateway.sasl.accounts.find(WHOLE, ("SCRAM-SHA-256",))
    learn(gateway.directory, org(ACME, "other"))
    with pytest.raises(OrgRefusedError, match="another name"):
        gateway.tenants.enter(account.org_id, mock.Mock(), account.org_name)


def test_entries_of_unknown_orgs_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    directory = Directory()
    _ = Authorizer(directory, OWN, "User:root;User:alice@acme;User:bob@example.org")
    learn(directory, org(ACME, "acme"), restart=True)
    (record,) = caplog.records
    assert record.getMessage().endswith(": User:bob@example.org")
