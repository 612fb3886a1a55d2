"""A directory with users, and clients of the mechanisms, for the tests of SASL."""

from __future__ import annotations

import base64
import hashlib
import hmac
from collections.abc import Callable

from quafka_gateway.security.directory import Directory
from quafka_gateway.security.sasl.accounts import Accounts
from quafka_gateway.security.sasl.passwords import HASHES, credential_of
from quafka_mesh_ops.ops.security import (
    OrgRecord,
    ScramCredential,
    SecurityChange,
    UserRecord,
    WatchSecurityResp,
)

SECRET = b"of this gateway"
SALT = b"1k3vyz0q8h2m5n7p9r1t3w5x7z"


def credential(
    password: str, mechanism: str = "SCRAM-SHA-256", iterations: int = 4_096, salt: bytes = SALT
) -> ScramCredential:
    salted = hashlib.pbkdf2_hmac(HASHES[mechanism], password.encode(), salt, iterations)
    return credential_of(mechanism, salt, iterations, salted)


def user(name: str, *credentials: ScramCredential, org: int = 1) -> SecurityChange:
    """A change that writes a user; without credentials one that removes it."""
    record = UserRecord(org_id=org, name=name, credentials=list(credentials))
    return SecurityChange(removed=not credentials, user=record)


def org(org_id: int, name: str, state: str = "active") -> SecurityChange:
    record = OrgRecord(org_id=org_id, name=name, state=state, limits=[])
    return SecurityChange(removed=False, org=record)


def learn(directory: Directory, *changes: SecurityChange, restart: bool = False) -> None:
    version = directory.version + 1
    directory.learn(WatchSecurityResp(b"i", version, restart, more=False, changes=list(changes)))


def directory_of(*changes: SecurityChange) -> Directory:
    directory = Directory()
    learn(directory, *changes, restart=True)
    return directory


def accounts_of(*changes: SecurityChange) -> Accounts:
    return Accounts(directory_of(*changes), 1, SECRET)


async def at_once(check: Callable[[], bool]) -> bool:
    """Runs a check without a thread."""
    return check()


class ScramClient:
    """A client by RFC 5802, apart from the server's code."""

    def __init__(self, mechanism: str, name: str, password: str, header: str = "n,,") -> None:
        self.hash = mechanism.removeprefix("SCRAM-").replace("-", "").lower()
        self.password = password.encode()
        self.header = header
        self.bare = f"n={name.replace('=', '=3D').replace(',', '=2C')},r=fyko+d2lbbFgONRv9qkxdawL"
        self.signature = b""

    def first(self) -> bytes:
        return (self.header + self.bare).encode()

    def final(self, server_first: bytes) -> bytes:
        nonce, salt, iterations = (part[2:] for part in server_first.decode().split(","))
        salted = hashlib.pbkdf2_hmac(
            self.hash, self.password, base64.b64decode(salt), int(iterations)
        )
        key = hmac.digest(salted, b"Client Key", self.hash)
        without = f"c={base64.b64encode(self.header.encode()).decode()},r={nonce}"
        message = f"{self.bare},{server_first.decode()},{without}".encode()
        signature = hmac.digest(hashlib.new(self.hash, key).digest(), message, self.hash)
        proof = bytes(a ^ b for a, b in zip(key, signature, strict=True))
        self.signature = hmac.digest(
            hmac.digest(salted, b"Server Key", self.hash), message, self.hash
        )
        return f"{without},p={base64.b64encode(proof).decode()}".encode()

    def accepts(self, server_final: bytes) -> bool:
        return server_final == b"v=" + base64.b64encode(self.signature)


def plain(name: str, password: str, authzid: str = "") -> bytes:
    return "\0".join((authzid, name, password)).encode()
