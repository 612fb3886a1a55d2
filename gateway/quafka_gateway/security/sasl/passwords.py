"""Salted passwords: what a server derives and compares (RFC 5802, section 3). Pure.

Names and passwords are UTF-8 as they come, without SASLprep, as Kafka's clients and servers take
them.
"""

from __future__ import annotations

import hashlib
import hmac

from quafka_gateway.sasl_settings import SCRAM_256, SCRAM_512
from quafka_mesh_ops.ops.security import ScramCredential

HASHES = {SCRAM_256: "sha256", SCRAM_512: "sha512"}
"""The hash of each SCRAM mechanism, as hashlib names it."""
KEY_BYTES = {mechanism: hashlib.new(name).digest_size for mechanism, name in HASHES.items()}
"""The length of its keys and salted passwords."""


def credential_of(
    mechanism: str, salt: bytes, iterations: int, salted_password: bytes
) -> ScramCredential:
    """What the server stores of a salted password."""
    name = HASHES[mechanism]
    client_key = hmac.digest(salted_password, b"Client Key", name)
    return ScramCredential(
        mechanism=mechanism,
        salt=salt,
        iterations=iterations,
        stored_key=hashlib.new(name, client_key).digest(),
        server_key=hmac.digest(salted_password, b"Server Key", name),
    )


def has_password(credential: ScramCredential, password: bytes) -> bool:
    """Whether the credential is this password's. Takes milliseconds: call it in a thread."""
    name = HASHES[credential.mechanism]
    salted = hashlib.pbkdf2_hmac(name, password, credential.salt, credential.iterations)
    client_key = hmac.digest(salted, b"Client Key", name)
    return hmac.compare_digest(hashlib.new(name, client_key).digest(), credential.stored_key)
