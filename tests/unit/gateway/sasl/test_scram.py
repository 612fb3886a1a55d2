"""SCRAM as a server, against a client by the RFC."""

from __future__ import annotations

import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quafka_gateway.security.sasl.accounts import Accounts
from quafka_gateway.security.sasl.mechanism import AuthenticationError
from quafka_gateway.security.sasl.passwords import HASHES, credential_of
from quafka_gateway.security.sasl.scram import ScramServer
from tests.support.suites import examples
from tests.unit.gateway.sasl.users import (
    SECRET,
    ScramClient,
    accounts_of,
    credential,
    directory_of,
    learn,
    user,
)

NAMES = st.text(st.characters(exclude_characters="\0", codec="utf-8"), min_size=1, max_size=20)


async def log_in(
    server: ScramServer, client: ScramClient
) -> tuple[bytes, tuple[int, str] | None, bool]:
    challenge = (await server.evaluate(client.first())).token
    reply = await server.evaluate(client.final(challenge))
    account = None if reply.account is None else reply.account[:2]
    return challenge, account, client.accepts(reply.token)


@pytest.mark.parametrize("mechanism", HASHES)
@pytest.mark.parametrize("header", ["n,,", "y,,", "n,a=a=2Cb,"])
async def test_a_user_logs_in(mechanism: str, header: str) -> None:
    accounts = accounts_of(user("a,b", credential("pass", mechanism)))
    client = ScramClient(mechanism, "a,b", "pass", header)
    _, account, accepted = await log_in(ScramServer(mechanism, accounts), client)
    assert account == (1, "a,b")
    assert accepted


@examples(30)
@given(name=NAMES, password=NAMES)
async def test_any_name_and_password(name: str, password: str) -> None:
    accounts = Accounts(directory_of(user(name, credential(password))), 1, SECRET)
    client = ScramClient("SCRAM-SHA-256", name, password)
    assert (await log_in(ScramServer("SCRAM-SHA-256", accounts), client))[1:] == ((1, name), True)


@pytest.mark.parametrize(("name", "password"), [("alice", "wrong"), ("nobody", "pass")])
async def test_a_wrong_password_and_an_unknown_name_look_alike(name: str, password: str) -> None:
    accounts = accounts_of(user("alice", credential("pass")))
    server = ScramServer("SCRAM-SHA-256", accounts)
    client = ScramClient("SCRAM-SHA-256", name, password)
    challenge = (await server.evaluate(client.first())).token
    salt = base64.b64decode(challenge.decode().split(",")[1][2:])
    assert (len(salt), salt.isalnum()) == (26, True)
    assert challenge.endswith(b",i=4096")
    with pytest.raises(AuthenticationError, match="unknown user or wrong password") as refused:
        await server.evaluate(client.final(challenge))
    assert refused.value.told == ""


async def test_a_password_changed_during_the_exchange() -> None:
    directory = directory_of(user("alice", credential("pass")))
    server = ScramServer("SCRAM-SHA-256", Accounts(directory, 1, SECRET))
    client = ScramClient("SCRAM-SHA-256", "alice", "pass")
    challenge = (await server.evaluate(client.first())).token
    learn(directory, user("alice", credential("other")))
    with pytest.raises(AuthenticationError):
        await server.evaluate(client.final(challenge))


@pytest.mark.parametrize(
    "first",
    [
        b"", b"n", b"n,,", b"p=tls-unique,,n=a,r=b", b"n,,n=a", b"n,,r=b,n=a", b"n,,n=,r=b",
        b"n,,n=a,r=", b"n,,n=a=,r=b", b"n,,n=a=2D,r=b", b"n,,n=a,r=b\x7f", b"n,a=b,n=a,r=c",
        b"n,,m=x,n=a,r=b", b"n,,n=a,r=b,n=c", b"n,,n=\xff,r=b", b"n,,n=a,r=" + b"b" * 5_000,
        b"n,,n=a,r=b,tokenauth=true",
    ],
)  # fmt: skip
async def test_malformed_beginnings(first: bytes) -> None:
    server = ScramServer("SCRAM-SHA-256", accounts_of(user("a", credential("pass"))))
    with pytest.raises(AuthenticationError):
        await server.evaluate(first)


async def test_delegation_tokens_are_refused_by_name() -> None:
    server = ScramServer("SCRAM-SHA-256", accounts_of())
    with pytest.raises(AuthenticationError) as refused:
        await server.evaluate(b"n,,n=a,r=b,tokenauth=true")
    assert "delegation tokens" in refused.value.told


@pytest.mark.parametrize(
    "forge",
    [
        lambda _: b"",
        lambda _: b"c=biws,r=,p=",
        lambda final: final.replace(b"c=biws", b"c=eSws"),
        lambda final: final.replace(b"r=", b"r=x"),
        lambda final: final[:-4],
        lambda final: final + b"!",
        lambda final: final.partition(b",p=")[0],
        lambda final: final.partition(b",p=")[0] + b",p=" + base64.b64encode(bytes(32)),
        lambda final: final.partition(b",p=")[0] + b",p=" + base64.b64encode(bytes(31)),
    ],
)
async def test_forged_proofs(forge: object) -> None:
    assert callable(forge)
    server = ScramServer("SCRAM-SHA-256", accounts_of(user("a", credential("pass"))))
    client = ScramClient("SCRAM-SHA-256", "a", "pass")
    challenge = (await server.evaluate(client.first())).token
    with pytest.raises(AuthenticationError):
        await server.evaluate(forge(client.final(challenge)))


def test_the_example_of_rfc_7677() -> None:
    import hashlib

    salt = base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
    salted = hashlib.pbkdf2_hmac("sha256", b"pencil", salt, 4_096)
    made = credential_of("SCRAM-SHA-256", salt, 4_096, salted)
    assert base64.b64encode(made.stored_key) == b"WG5d8oPm3OtcPnkdi4Uo7BkeZkBFzpcXkuLmtbsT4qY="
    assert base64.b64encode(made.server_key) == b"wfPLwcE6nTWhTAmQ7tl2KeoiWGPlZqQxSrmfPwDl2dU="
