"""PLAIN as a server."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from quafka_gateway.security.sasl.accounts import Accounts
from quafka_gateway.security.sasl.mechanism import AuthenticationError
from quafka_gateway.security.sasl.plain import PlainServer
from tests.unit.gateway.sasl.users import (
    SECRET,
    accounts_of,
    at_once,
    credential,
    directory_of,
    learn,
    plain,
    user,
)


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512"])
async def test_a_password_is_checked_against_the_scram_credential(mechanism: str) -> None:
    server = PlainServer(accounts_of(user("alice", credential("pä,ss", mechanism))), at_once)
    for token in (plain("alice", "pä,ss"), plain("alice", "pä,ss", authzid="alice")):
        reply = await server.evaluate(token)
        assert reply.token == b""
        assert reply.account is not None
        assert reply.account[:2] == (1, "alice")


@pytest.mark.parametrize(
    "token",
    [
        plain("alice", "wrong"), plain("nobody", "pass"), plain("alice", "pass", authzid="bob"),
        b"", b"alice", b"\0alice", b"\0alice\0", b"\0\0pass", b"\0alice\0pass\0", b"\0\xff\0pass",
        plain("alice", "p" * 5_000),
    ],
)  # fmt: skip
async def test_all_else_is_refused(token: bytes) -> None:
    server = PlainServer(accounts_of(user("alice", credential("pass"))), at_once)
    with pytest.raises(AuthenticationError):
        await server.evaluate(token)


async def test_a_password_changed_while_it_is_checked() -> None:
    directory = directory_of(user("alice", credential("pass")))

    async def change(check: Callable[[], bool]) -> bool:
        learn(directory, user("alice"))
        return check()

    server = PlainServer(Accounts(directory, 1, SECRET), change)
    with pytest.raises(AuthenticationError):
        await server.evaluate(plain("alice", "pass"))
