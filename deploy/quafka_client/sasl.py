"""SASL mechanisms as a client: PLAIN, SCRAM-SHA-256, SCRAM-SHA-512 and OAUTHBEARER.

A login is a generator: it yields the client's messages, receives the server's by `send`, and
returns when the exchange is complete. It raises SaslError.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, cast

from quafka_client.scram import HASHES, ScramClient, ScramError

PLAIN, OAUTHBEARER = "PLAIN", "OAUTHBEARER"
MECHANISMS = (PLAIN, *HASHES, OAUTHBEARER)

Login = Generator[bytes, bytes, None]


class SaslError(Exception):
    """The login cannot continue; the message is one sentence."""


class Token(NamedTuple):
    """A bearer token. `expires_at`: seconds since the epoch."""

    value: str
    expires_at: float


def unverified_claims(token: str) -> Mapping[str, Any]:
    """What a JWT claims (RFC 7519): its signature is not checked here.

    Raises:
        ValueError: it is not a JWT.
    """
    parts = token.split(".")
    if len(parts) != 3:
        raise ValueError("a JWT has three parts")
    try:
        padded = parts[1] + "=" * (-len(parts[1]) % 4)
        claims: Any = json.loads(base64.urlsafe_b64decode(padded))
    except (binascii.Error, RecursionError) as e:
        raise ValueError("the claims are malformed") from e
    if not isinstance(claims, dict):
        raise ValueError("the claims are no object")  # noqa: TRY004 - it is the token's
    return cast("dict[str, Any]", claims)


@dataclass(frozen=True, slots=True)
class Credentials:
    """What a client logs in with.

    Attributes:
        token: for OAUTHBEARER: returns a valid token. Blocks; raises ClientError.
    """

    mechanism: str
    username: str = ""
    password: str = field(default="", repr=False)
    token: Callable[[], Token] | None = field(default=None, repr=False)

    def login(self) -> Login:
        """Begin a login. Takes time: call it and its `send` in a thread."""
        if self.mechanism == PLAIN:
            return _plain(self.username, self.password)
        if self.mechanism == OAUTHBEARER:
            assert self.token is not None
            return _bearer(self.token)
        return _scram(ScramClient(self.mechanism, self.username, self.password))


def _plain(username: str, password: str) -> Login:
    """RFC 4616."""
    if "\0" in username or "\0" in password:
        raise SaslError("PLAIN cannot carry a name or password with a NUL in it")
    yield b"\0".join((b"", username.encode(), password.encode()))


def _scram(client: ScramClient) -> Login:
    try:
        server_first = yield client.first()
        server_final = yield client.final(server_first)
        client.verify(server_final)
    except ScramError as e:
        raise SaslError(str(e)) from e


def _bearer(token: Callable[[], Token]) -> Login:
    """RFC 7628. A server that refuses sends JSON, which the client answers with a lone ^A."""
    value = token().value
    if not value or not value.isascii() or not value.isprintable() or " " in value:
        raise SaslError("the token is malformed: it must be printable ASCII without spaces")
    refusal = yield b"n,,\x01auth=Bearer " + value.encode() + b"\x01\x01"
    if refusal:
        yield b"\x01"
        raise SaslError(f"the server refuses the token: {_status(refusal)}")


def _status(refusal: bytes) -> str:
    try:
        status = cast("dict[str, Any]", json.loads(refusal))["status"]
    except (ValueError, KeyError, TypeError):
        return "without a reason"
    return str(status)[:80]
