"""OAUTHBEARER as a server (RFC 7628, KIP-255): the client shows a signed token.

A token that is refused is answered with a JSON object; the client sends one more message, an empty
one, and only then does the exchange fail.
"""

from __future__ import annotations

import json
import re
from collections.abc import Awaitable, Callable
from typing import NamedTuple

from quafka_gateway.security.sasl.mechanism import Account, AuthenticationError, SaslReply

_SEPARATOR = "\x01"
_AUTHZID = re.compile(r"n,(?:a=([^,]+))?,")
_PAIR = re.compile(r"([A-Za-z]+)=([\x21-\x7e \t\r\n]*)")
_BEARER = re.compile(r"(?i:bearer) +([-A-Za-z0-9._~+/]+=*) *")
_MOST_EXTENSIONS = 32


class BearerMessage(NamedTuple):
    """The client's message. `authzid`: whom it wants to act for; "": itself."""

    authzid: str
    token: str
    extensions: dict[str, str]


class OAuthBearerServer:
    """One exchange."""

    def __init__(self, account_of: Callable[[str], Awaitable[Account]]) -> None:
        """`account_of` checks a token and returns its account; raises AuthenticationError."""
        self._account_of = account_of
        self._refused = ""

    async def evaluate(self, token: bytes) -> SaslReply:
        """See MechanismServer."""
        if self._refused:
            raise AuthenticationError(self._refused, _refusal())
        message = parse_message(token)
        try:
            account = await self._account_of(message.token)
        except AuthenticationError as e:
            self._refused = str(e)
        else:
            if message.authzid in ("", account.name):
                return SaslReply(b"", account)
            self._refused = "a client may act for itself alone"
        return SaslReply(_refusal().encode())


def _refusal() -> str:
    return json.dumps({"status": "invalid_token"})


def parse_message(message: bytes) -> BearerMessage:
    """Parse a client's first message: `n,,^Aauth=Bearer TOKEN^Aname=value^A^A`.

    Raises:
        AuthenticationError: it is not one.
    """
    try:
        text = message.decode()
    except UnicodeDecodeError as e:
        raise AuthenticationError("the OAUTHBEARER message is not UTF-8") from e
    header, separator, rest = text.partition(_SEPARATOR)
    authzid = _AUTHZID.fullmatch(header)
    if authzid is None or not separator or not rest.endswith(_SEPARATOR):
        raise AuthenticationError("not an OAUTHBEARER message")
    pairs = rest[:-1].split(_SEPARATOR, _MOST_EXTENSIONS + 2)
    if pairs.pop() or len(pairs) > _MOST_EXTENSIONS + 1:
        raise AuthenticationError("the OAUTHBEARER message does not end as it must")
    found: dict[str, str] = {}
    for pair in pairs:
        match = _PAIR.fullmatch(pair)
        if match is None or match[1] in found:
            raise AuthenticationError("a key or value of the OAUTHBEARER message is malformed")
        found[match[1]] = match[2]
    bearer = _BEARER.fullmatch(found.pop("auth", ""))
    if bearer is None:
        raise AuthenticationError("the OAUTHBEARER message has no bearer token")
    name = (authzid[1] or "").replace("=2C", ",").replace("=3D", "=")
    return BearerMessage(name, bearer[1], found)
