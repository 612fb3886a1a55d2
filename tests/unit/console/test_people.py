"""Who uses the console: shared connections, sign-ins, and their limits."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest
from joserfc.errors import JoseError

from quafka_client.cluster import ClientCluster
from quafka_client.errors import ClientError, LoginError
from quafka_client.sasl import Credentials
from quafka_client.security import NONE, ClientProtocol, ClientSecurity
from quafka_console import session
from quafka_console.session import People, TooManyFailuresError
from quafka_loop import clock
from tests.unit.gateway.sasl.tokens import Issuer

LOGIN = ClientSecurity(ClientProtocol.SASL_PLAINTEXT)
ALICE = Credentials("PLAIN", "alice", "right")


ISSUER = Issuer()


class Server:
    """Accepts one password, and tokens of one issuer. `left`: how many connections were closed."""

    def __init__(self) -> None:
        self.left = 0

    async def enter(self, cluster: Any) -> Any:
        credentials = cluster._security.credentials
        if credentials is not None and credentials.token is not None:
            try:
                ISSUER.check(credentials.token().value)
            except JoseError as e:
                raise LoginError("the server refuses the token") from e
        elif credentials is not None and credentials.password != "right":
            raise LoginError("the server refuses the login")
        return cluster

    async def leave(self, _cluster: Any, *_: object) -> None:
        self.left += 1


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Server:
    found = Server()
    monkeypatch.setattr(ClientCluster, "__aenter__", lambda self: found.enter(self))  # noqa: PLW0108
    monkeypatch.setattr(ClientCluster, "__aexit__", lambda self, *_: found.leave(self))
    return found


async def test_everybody_shares_one_user_if_nobody_has_to_sign_in(server: Server) -> None:
    people = People([("here", 9092)], NONE)
    assert not people.must_sign_in
    first, second = await people.find("a"), await people.find("b")
    assert first is second is not None
    await people.close()
    assert server.left == 1


async def test_a_person_signs_in_and_out(server: Server, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "quafka.console.audit")
    people = People([("here", 9092)], LOGIN)
    assert people.must_sign_in
    assert await people.find("a") is None
    first = await people.sign_in("a", ALICE)
    assert people.claim(first.session, "a")
    assert await people.find(first.session) is first
    assert first.user == "alice"
    assert await people.find("b") is None, "another browser"
    again = await people.sign_in(first.session, ALICE)
    assert people.claim(again.session, first.session)
    assert server.left == 1, "the first sign-in of this browser"
    await people.sign_out(again.session)
    assert await people.find(again.session) is None
    assert server.left == 2
    assert [record.message.partition(": ")[2] for record in caplog.records] == [
        "signed in", "signed in", "signed out", "signed out",
    ]  # fmt: skip


async def test_a_session_that_others_know_never_becomes_signed_in(server: Server) -> None:
    people = People([("here", 9092)], LOGIN)
    person = await people.sign_in("given by another site", ALICE)
    assert await people.find("given by another site") is None
    assert not people.claim("guessed", "given by another site")
    assert not people.claim(person.session, "another browser")
    assert not people.claim(person.session, "given by another site"), "claims are for one try"
    person = await people.sign_in("a", ALICE)
    assert people.claim(person.session, "a")
    assert not people.claim(person.session, "a")
    await people.sign_in("b", ALICE)
    left = server.left
    await people.sign_in("b", ALICE)
    assert server.left == left + 1, "the session that was not claimed"


async def test_guesses_of_passwords_are_limited(server: Server) -> None:
    people = People([("here", 9092)], LOGIN)
    for _ in range(10):
        with pytest.raises(LoginError):
            await people.sign_in("a", Credentials("PLAIN", "alice", "wrong"))
    with pytest.raises(TooManyFailuresError):
        await people.sign_in("a", ALICE)
    await asyncio.sleep(61)
    await people.sign_in("a", ALICE)
    assert server.left == 0


async def test_guesses_at_the_same_time_are_limited(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried = 0

    async def refuse(_self: object) -> None:
        nonlocal tried
        tried += 1
        await asyncio.sleep(1)
        raise LoginError("the server refuses the login")

    people = People([("here", 9092)], LOGIN)
    wrong = Credentials("PLAIN", "alice", "wrong")
    with monkeypatch.context() as patched:
        patched.setattr(ClientCluster, "__aenter__", refuse)
        results = await asyncio.gather(
            *(people.sign_in("a", wrong) for _ in range(1_000)), return_exceptions=True
        )
    assert tried == 10
    assert sum(isinstance(each, TooManyFailuresError) for each in results) == 990
    await asyncio.sleep(61)
    for _ in range(20):
        await people.sign_in("a", ALICE)
    assert server.left == 19, "those that succeed do not count"


async def test_those_who_signed_in_first_leave_first(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session, "MOST_SIGNED_IN", 3)
    people = People([("here", 9092)], LOGIN)
    first, *others = [await people.sign_in(browser, ALICE) for browser in "abcd"]
    assert await people.find(first.session) is None
    assert [await people.find(each.session) for each in others] == others
    assert server.left == 1


async def test_a_cluster_that_cannot_be_reached_is_tried_again(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    people = People([("here", 9092)], NONE)

    async def away(_self: object) -> None:
        raise ClientError("nothing listens there")

    with monkeypatch.context() as patched:
        patched.setattr(ClientCluster, "__aenter__", away)
        with pytest.raises(ClientError):
            await people.find("a")
    assert await people.find("a") is not None


async def test_one_user_s_failures_leave_the_others_alone(server: Server) -> None:
    people = People([("here", 9092)], LOGIN)
    for _ in range(10):
        with pytest.raises(LoginError):
            await people.sign_in("a", Credentials("PLAIN", "bob", "wrong"))
    await people.sign_in("b", ALICE)
    for number in range(90):
        with pytest.raises(LoginError):
            await people.sign_in("a", Credentials("PLAIN", f"user-{number}", "wrong"))
    with pytest.raises(TooManyFailuresError):
        await people.sign_in("c", ALICE)


async def test_browsers_that_come_at_once_share_one_connection(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    entered: list[object] = []

    async def slow(self: ClientCluster) -> ClientCluster:
        entered.append(self)
        await asyncio.sleep(1)
        return self

    monkeypatch.setattr(ClientCluster, "__aenter__", slow)
    people = People([("here", 9092)], NONE)
    found = await asyncio.gather(*(people.find(str(number)) for number in range(20)))
    assert len(entered) == len(set(map(id, found))) == 1


async def test_a_session_ends_with_its_token(
    server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "quafka.console.audit")
    people = People([("here", 9092)], LOGIN, "sub")
    found = await people.sign_in_with_token("a", ISSUER.token(exp=clock.time() + 60))
    assert found.user == "alice"
    await asyncio.sleep(59)
    assert await people.find(found.session) is found
    await asyncio.sleep(2)
    assert await people.find(found.session) is None
    assert server.left == 1
    assert people.has_expired(found.session)
    assert not people.has_expired("b")
    await people.sign_in_with_token(found.session, ISSUER.token())
    assert not people.has_expired(found.session)
    assert [record.message for record in caplog.records] == [
        "'alice': signed in", "'alice': the token has expired", "'alice': signed out",
        "'alice': signed in",
    ]  # fmt: skip


async def test_a_newer_token_lasts_beyond_the_end_of_the_last_one(server: Server) -> None:
    people = People([("here", 9092)], LOGIN, "sub")
    first = await people.sign_in_with_token("a", ISSUER.token(exp=clock.time() + 60))
    last = await people.sign_in_with_token(first.session, ISSUER.token(exp=clock.time() + 600))
    assert server.left == 1
    await asyncio.sleep(300)
    assert await people.find(last.session) is last
    await people.sign_out(last.session)
    await asyncio.sleep(600)
    assert not people.has_expired(last.session), "they have signed out themselves"


@pytest.mark.parametrize(
    ("token", "says"),
    [
        ("", "not a JWT"), ("a.b.c", "not a JWT"), ("\N{SNOWMAN}.e30.", "not a JWT"),
        ("a.W10.c", "not a JWT"), (ISSUER.token(exp=None), "not a JWT"),
        (ISSUER.token(exp="soon"), "not a JWT"), (ISSUER.token(sub=None), "not a JWT"),
        (ISSUER.token(exp=1), "has expired"), (Issuer().token(), "refuses the token"),
    ],
)  # fmt: skip
async def test_tokens_that_are_refused(server: Server, token: str, says: str) -> None:
    people = People([("here", 9092)], LOGIN, "sub")
    with pytest.raises(LoginError, match=says):
        await people.sign_in_with_token("a", token)
    assert await people.find("a") is None


async def test_the_claim_of_the_gateway_names_the_user(server: Server) -> None:
    people = People([("here", 9092)], LOGIN, "email")
    person = await people.sign_in_with_token("a", ISSUER.token(email="a@b.example"))
    assert person.user == "a@b.example"
