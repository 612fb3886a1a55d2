"""PLAIN as a server (RFC 4616): the password is checked against the user's SCRAM credential."""

from __future__ import annotations

from functools import partial

from quafka_gateway.security.sasl.accounts import Accounts
from quafka_gateway.security.sasl.mechanism import (
    WRONG_PASSWORD,
    Account,
    AuthenticationError,
    Offload,
    SaslReply,
)
from quafka_gateway.security.sasl.passwords import HASHES, has_password

_LONGEST = 4 << 10
"""Bytes of the message: the hash of a longer password would cost more."""


class PlainServer:
    """One exchange: one message."""

    def __init__(self, accounts: Accounts, offload: Offload[bool], org: str = "") -> None:
        """`org`: the listener's, if it has one."""
        self._accounts = accounts
        self._offload = offload
        self._org = org

    async def evaluate(self, token: bytes) -> SaslReply:
        """See MechanismServer."""
        authzid, name, password = _parse(token)
        if authzid not in ("", name):
            raise AuthenticationError("a client may act for itself alone")
        found = self._accounts.find(name, tuple(HASHES), self._org)
        proven = await self._offload(partial(has_password, found.credential, password))
        # The record may have changed meanwhile.
        held = self._accounts.holds(found.org_id, found.name, found.credential)
        if not (proven and found.known and held):
            raise AuthenticationError(WRONG_PASSWORD, user=found.name)
        account = Account(found.org_id, found.name, found.credential, org_name=found.org_name)
        return SaslReply(b"", account)


def _parse(token: bytes) -> tuple[str, str, bytes]:
    if len(token) > _LONGEST:
        raise AuthenticationError("the PLAIN message is too long")
    parts = token.split(b"\0")
    if len(parts) != 3 or not parts[1] or not parts[2]:
        raise AuthenticationError("the PLAIN message is not a name and a password")
    try:
        return parts[0].decode(), parts[1].decode(), parts[2]
    except UnicodeDecodeError as e:
        raise AuthenticationError("the PLAIN message is not UTF-8") from e
