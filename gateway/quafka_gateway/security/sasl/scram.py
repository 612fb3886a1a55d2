"""SCRAM as a server (RFC 5802, RFC 7677), as Kafka speaks it: without channel binding.

An unknown name gets a whole exchange, over the credential that `accounts` makes up for it.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import secrets

from quafka_gateway.security.sasl.accounts import Accounts, Candidate
from quafka_gateway.security.sasl.mechanism import (
    WRONG_PASSWORD,
    Account,
    AuthenticationError,
    SaslReply,
)
from quafka_gateway.security.sasl.passwords import HASHES

_LONGEST = 4 << 10
"""Bytes of one message: a name of 255 characters needs 1 KiB at most."""
_NONCE_BYTES = 24


class ScramServer:
    """One exchange: the client's first message, then its proof."""

    def __init__(self, mechanism: str, accounts: Accounts, org: str = "") -> None:
        """`org`: the listener's, if it has one."""
        self._mechanism = mechanism
        self._hash = HASHES[mechanism]
        self._accounts = accounts
        self._org = org
        self._candidate: Candidate | None = None
        self._header = ""
        self._nonce = self._client_nonce = ""
        self._messages = b""  # client-first-message-bare "," server-first-message ","

    async def evaluate(self, token: bytes) -> SaslReply:
        """See MechanismServer."""
        if len(token) > _LONGEST:
            raise AuthenticationError("a SCRAM message is too long")
        try:
            message = token.decode()
        except UnicodeDecodeError as e:
            raise AuthenticationError("a SCRAM message is not UTF-8") from e
        if self._candidate is None:
            return self._first(message)
        return self._final(message, self._candidate)

    def _first(self, message: str) -> SaslReply:
        header, name, nonce, bare = _parse_first(message)
        self._header = header
        self._candidate = candidate = self._accounts.find(name, (self._mechanism,), self._org)
        credential = candidate.credential
        self._client_nonce = nonce
        self._nonce = nonce + secrets.token_urlsafe(_NONCE_BYTES)
        salt = base64.b64encode(credential.salt).decode()
        answer = f"r={self._nonce},s={salt},i={credential.iterations}"
        self._messages = f"{bare},{answer},".encode()
        return SaslReply(answer.encode())

    def _final(self, message: str, candidate: Candidate) -> SaslReply:
        without_proof, _, proof_text = message.rpartition(",p=")
        attributes = _attributes(without_proof)
        binding, nonce = attributes.get("c", ""), attributes.get("r", "")
        if _decode(binding) != self._header.encode():
            raise AuthenticationError("the proof is of another channel binding")
        # librdkafka before 2.6.1, such as Debian's kcat has, repeats its own part.
        if nonce not in (self._nonce, self._client_nonce + self._nonce):
            raise AuthenticationError("the proof is of another exchange")
        proof = _decode(proof_text)
        credential = candidate.credential
        signed = self._messages + without_proof.encode()
        signature = hmac.digest(credential.stored_key, signed, self._hash)
        if len(proof) != len(signature):
            raise AuthenticationError("the proof has a wrong length")
        client_key = bytes(a ^ b for a, b in zip(proof, signature, strict=True))
        stored_key = hashlib.new(self._hash, client_key).digest()
        proven = hmac.compare_digest(stored_key, credential.stored_key)
        answer = hmac.digest(credential.server_key, signed, self._hash)
        held = self._accounts.holds(candidate.org_id, candidate.name, credential)
        if not (proven and candidate.known and held):
            raise AuthenticationError(WRONG_PASSWORD, user=candidate.name)
        account = Account(candidate.org_id, candidate.name, credential, org_name=candidate.org_name)
        return SaslReply(b"v=" + base64.b64encode(answer), account)


def _parse_first(message: str) -> tuple[str, str, str, str]:
    """The GS2 header, the name, the client's nonce, and the message without the header."""
    flag, comma, rest = message.partition(",")
    authzid, second_comma, bare = rest.partition(",")
    if not comma or not second_comma or flag not in ("n", "y"):
        raise AuthenticationError("not a SCRAM message, or one that asks for channel binding")
    attributes = _attributes(bare)
    if list(attributes)[:2] != ["n", "r"]:
        raise AuthenticationError("not the first message of SCRAM")
    name, nonce = _unescape(attributes["n"]), attributes["r"]
    if authzid and (not authzid.startswith("a=") or _unescape(authzid[2:]) != name):
        raise AuthenticationError("a client may act for itself alone")
    if not nonce or not all("!" <= each <= "~" for each in nonce):
        raise AuthenticationError("the client's nonce is malformed")
    if attributes.get("tokenauth", "").lower() == "true":
        refusal = "delegation tokens are not served: log in with a user's password"
        raise AuthenticationError(refusal, refusal)
    return f"{flag},{authzid},", name, nonce, bare


def _attributes(text: str) -> dict[str, str]:
    """Attributes and extensions in their order. Kafka's extensions have long names."""
    found: dict[str, str] = {}
    for part in text.split(","):
        name, equals, value = part.partition("=")
        if not equals or not name.isascii() or not name.isalpha() or name in found:
            raise AuthenticationError("a SCRAM message is malformed")
        if name == "m":
            raise AuthenticationError("the client asks for an unknown SCRAM extension")
        found[name] = value
    return found


def _unescape(text: str) -> str:
    """A saslname's text. Raises AuthenticationError if it is empty or escapes anything else."""
    if not text or "\0" in text or text.count("=") != text.count("=2C") + text.count("=3D"):
        raise AuthenticationError("the user's name is malformed")
    return text.replace("=2C", ",").replace("=3D", "=")


def _decode(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as e:
        raise AuthenticationError("a SCRAM message is malformed") from e
