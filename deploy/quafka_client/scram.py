"""The client side of SCRAM (RFC 5802), bytes in, bytes out; and the salting of new passwords.

Kafka's clients take names and passwords as UTF-8, without SASLprep; so does this one.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import os
from dataclasses import dataclass, field

HASHES = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
LEAST_ITERATIONS, MOST_ITERATIONS = 4_096, 1_000_000
"""The minimum is RFC 7677's and Kafka's; the maximum bounds the CPU cost of a hostile server."""
_NO_BINDING = "n,,"
_NONCE_BYTES = 24
_SALT_BYTES = 32


class ScramError(Exception):
    """The server's message is wrong, or the server does not know the password."""


@dataclass(slots=True)
class ScramClient:
    """One login: `first`, then `final` for the server's first message, then `verify`."""

    mechanism: str
    username: str
    password: str = field(repr=False)
    nonce: str = field(default_factory=lambda: base64.b64encode(os.urandom(_NONCE_BYTES)).decode())
    _signature: bytes = field(default=b"", repr=False)

    def first(self) -> bytes:
        """The client's first message."""
        return (_NO_BINDING + self._bare()).encode()

    def _bare(self) -> str:
        return f"n={self.username.replace('=', '=3D').replace(',', '=2C')},r={self.nonce}"

    def final(self, server_first: bytes) -> bytes:
        """The client's proof. Takes milliseconds to seconds of CPU time: see `MOST_ITERATIONS`.

        Raises:
            ScramError: the message is malformed, or asks for too few or too many iterations.
        """
        parts = _attributes(server_first)
        nonce, salt, iterations = parts.get("r", ""), _base64(parts.get("s")), parts.get("i", "")
        if not nonce.startswith(self.nonce) or nonce == self.nonce or not salt:
            raise ScramError("the server's first SCRAM message does not belong to this login")
        if not iterations.isdecimal() or len(iterations) > len(str(MOST_ITERATIONS)):
            raise ScramError("the server's number of SCRAM iterations is malformed")
        if not LEAST_ITERATIONS <= int(iterations) <= MOST_ITERATIONS:
            raise ScramError(
                f"the server asks for {iterations} SCRAM iterations; {LEAST_ITERATIONS} to "
                f"{MOST_ITERATIONS} are accepted"
            )
        without_proof = f"c={base64.b64encode(_NO_BINDING.encode()).decode()},r={nonce}"
        message = b",".join((self._bare().encode(), server_first, without_proof.encode()))
        salted = salted_password(self.mechanism, self.password, salt, int(iterations))
        name = HASHES[self.mechanism]
        client_key = hmac.digest(salted, b"Client Key", name)
        stored_key = hashlib.new(name, client_key).digest()
        signature = hmac.digest(stored_key, message, name)
        proof = bytes(a ^ b for a, b in zip(client_key, signature, strict=True))
        self._signature = hmac.digest(hmac.digest(salted, b"Server Key", name), message, name)
        return f"{without_proof},p={base64.b64encode(proof).decode()}".encode()

    def verify(self, server_final: bytes) -> None:
        """Check that the server knows the password, too.

        Raises:
            ScramError: it does not, or it refuses the login.
        """
        parts = _attributes(server_final)
        if "e" in parts:
            raise ScramError(f"the server refuses the login: {parts['e'][:80]}")
        if not self._signature or not hmac.compare_digest(_base64(parts.get("v")), self._signature):
            raise ScramError("the server's SCRAM signature is wrong: it does not know the password")


def salted_password(mechanism: str, password: str, salt: bytes, iterations: int) -> bytes:
    """SaltedPassword of RFC 5802, section 3."""
    return hashlib.pbkdf2_hmac(HASHES[mechanism], password.encode(), salt, iterations)


def stored_keys(mechanism: str, salted: bytes) -> tuple[bytes, bytes]:
    """StoredKey and ServerKey of RFC 5802, which a server stores."""
    name = HASHES[mechanism]
    client_key = hmac.digest(salted, b"Client Key", name)
    return hashlib.new(name, client_key).digest(), hmac.digest(salted, b"Server Key", name)


def new_salt() -> bytes:
    """A random salt."""
    return os.urandom(_SALT_BYTES)


def _attributes(message: bytes) -> dict[str, str]:
    try:
        text = message.decode()
    except UnicodeDecodeError as e:
        raise ScramError("the server's SCRAM message is not UTF-8") from e
    found: dict[str, str] = {}
    for part in text.split(","):
        name, equals, value = part.partition("=")
        if len(name) != 1 or not equals or name in found:
            raise ScramError("the server's SCRAM message is malformed")
        if name == "m":
            raise ScramError("the server asks for an unknown SCRAM extension")
        found[name] = value
    return found


def _base64(text: str | None) -> bytes:
    try:
        return base64.b64decode(text or "", validate=True)
    except (binascii.Error, ValueError) as e:
        raise ScramError("the server's SCRAM message is malformed") from e
