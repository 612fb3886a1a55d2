"""What is done with the bytes of a client that has not authenticated: frames, tokens, keys."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, TypeVar

from quafka_gateway.security.directory import Directory
from quafka_gateway.security.sasl import tokens
from quafka_gateway.security.sasl.accounts import Accounts
from quafka_gateway.security.sasl.authenticator import Authenticator, LoginOffer
from quafka_gateway.security.sasl.key_set import KeySetError, parse_keys
from quafka_gateway.security.sasl.mechanism import (
    WRONG_PASSWORD,
    Account,
    AuthenticationError,
)
from quafka_gateway.security.sasl.oauthbearer import OAuthBearerServer
from quafka_gateway.security.sasl.passwords import credential_of
from quafka_gateway.security.sasl.plain import PlainServer
from quafka_gateway.security.sasl.scram import ScramServer
from quafka_gateway.security.sasl.token_rules import TokenRules
from quafka_mesh_ops.ops.security import SecurityChange, UserRecord, WatchSecurityResp
from quafka_proto.headers import encode_request
from quafka_proto.message import Message
from quafka_proto.schema.api_versions import ApiVersionsRequest, ApiVersionsResponse
from quafka_proto.schema.sasl import SaslAuthenticateRequest, SaslHandshakeRequest

T = TypeVar("T")

FRAME, IN_TOKENS, SCRAM_FIRST, SCRAM_FINAL, BEARER, TOKEN, KEYS = range(7)
NOW = 1_700_000_000.0
# RFC 7517's example of a key.
_KEYS: dict[str, Any] = {
    "keys": [
        {
            "kty": "EC", "kid": "one", "crv": "P-256",
            "x": "f83OJ3D2xF1Bg8vub9tLe1gHMzV76e8Tus9uPHvRVEU",
            "y": "x_FEzRu9m36HLN_tue659LNpXW6pCyStikYjKIWI5a0",
        }
    ]
}  # fmt: skip
_KEY_SET = parse_keys("file:/keys", json.dumps(_KEYS).encode())
_RULES = TokenRules(("kafka",))


def _directory() -> Directory:
    salted = hashlib.pbkdf2_hmac("sha256", b"secret", b"salt", 4_096)
    held = credential_of("SCRAM-SHA-256", b"salt", 4_096, salted)
    change = SecurityChange(removed=False, user=UserRecord(1, "alice", [held]))
    directory = Directory()
    directory.learn(WatchSecurityResp(b"i", 0, restart=True, more=False, changes=[change]))
    return directory


_ACCOUNTS = Accounts(_directory(), 1, b"secret")


async def _right(check: Callable[[], bool]) -> bool:
    """In place of hashing, which a client pays for with its own time."""
    return True


async def _versions(header: object, request: object) -> Message:
    return ApiVersionsResponse()


async def _account_of(token: str) -> Account:
    claims = tokens.check(_RULES, token, _KEY_SET, NOW)
    return Account(1, claims.name)


_OFFER = LoginOffer(
    {
        "PLAIN": partial(PlainServer, _ACCOUNTS, _right),
        "SCRAM-SHA-256": partial(ScramServer, "SCRAM-SHA-256", _ACCOUNTS),
        "OAUTHBEARER": partial(OAuthBearerServer, _account_of),
    },
    _versions,
    lambda account: None,
)


def _done(work: Coroutine[Any, Any, T]) -> T:
    """The result of a coroutine that waits for nothing."""
    try:
        work.send(None)
    except StopIteration as end:
        result: T = end.value
        return result
    raise AssertionError("it waits")


def sasl(data: bytes) -> bool:
    """A frame, token or set of keys; the first byte says which."""
    if not data:
        return False
    kind, rest = data[0] % 7, data[1:]
    try:
        if kind in (FRAME, IN_TOKENS):
            return _frame(kind, rest)
        if kind == SCRAM_FIRST:
            return bool(_done(ScramServer("SCRAM-SHA-256", _ACCOUNTS).evaluate(rest)).token)
        if kind == SCRAM_FINAL:
            return _scram_final(rest)
        if kind == BEARER:
            return _done(OAuthBearerServer(_account_of).evaluate(rest)).token != b""
        if kind == TOKEN:
            tokens.check(_RULES, rest.decode("latin-1"), _KEY_SET, NOW)
            return True
        return bool(parse_keys("file:/keys", rest).keys)
    except (AuthenticationError, KeySetError):
        return False


def _frame(kind: int, frame: bytes) -> bool:
    authenticator = Authenticator(_OFFER)
    if kind == IN_TOKENS:
        _done(authenticator.receive(_request(SaslHandshakeRequest(mechanism="PLAIN"), 1)))
    step = _done(authenticator.receive(frame))
    if step.account is not None:
        assert kind == IN_TOKENS
        assert step.account[:2] == (1, "alice")
    return not step.failure


def _scram_final(message: bytes) -> bool:
    """A proof; NONCE in it stands for that of the exchange. Accepted: it was compared."""
    server = ScramServer("SCRAM-SHA-256", _ACCOUNTS)
    first = _done(server.evaluate(b"n,,n=alice,r=abc")).token
    nonce = first.partition(b",")[0].removeprefix(b"r=")
    try:
        _done(server.evaluate(message.replace(b"NONCE", nonce)))
    except AuthenticationError as e:
        return str(e) == WRONG_PASSWORD
    raise AssertionError("a forged proof was accepted")


def _request(request: Any, version: int) -> bytes:
    return b"".join(encode_request(1, "app", request, version))[4:]


def sasl_seeds() -> list[bytes]:
    """Valid inputs, but for the tokens, whose key nobody has."""
    proof = b"c=biws,r=NONCE,p=" + b"A" * 43 + b"="
    plain = SaslAuthenticateRequest(auth_bytes=b"\0alice\0secret")
    token = b"eyJhbGciOiJFUzI1NiIsImtpZCI6Im9uZSJ9.eyJzdWIiOiJhbGljZSJ9." + b"A" * 86
    return [
        *(bytes([FRAME]) + _request(ApiVersionsRequest(), v) for v in (0, 3)),
        *(bytes([FRAME]) + _request(SaslHandshakeRequest(mechanism="PLAIN"), v) for v in (0, 1)),
        *(bytes([IN_TOKENS]) + _request(plain, v) for v in (0, 1, 2)),
        bytes([SCRAM_FIRST]) + b"n,,n=alice,r=fyko+d2lbbFgONRv9qkxdawL",
        bytes([SCRAM_FIRST]) + b"y,a=a=2Cb,n=a=2Cb,r=fyko,tokenauth=false",
        bytes([SCRAM_FINAL]) + proof,
        bytes([BEARER]) + b"n,a=alice,\x01auth=Bearer " + token + b"\x01traceId=1\x01\x01",
        bytes([TOKEN]) + token,
        bytes([KEYS]) + json.dumps(_KEYS).encode(),
    ]
