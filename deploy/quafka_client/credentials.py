"""Credentials as a broker stores them, derived from a password."""

from __future__ import annotations

from quafka_client.scram import new_salt, salted_password, stored_keys
from quafka_mesh_ops.ops.security import ScramCredential, UserChange


def stored_credential(name: str, password: str, mechanism: str, iterations: int) -> UserChange:
    """A user's new credential. Takes CPU time."""
    salt = new_salt()
    salted = salted_password(mechanism, password, salt, iterations)
    stored_key, server_key = stored_keys(mechanism, salted)
    made = ScramCredential(mechanism, salt, iterations, stored_key, server_key)
    return UserChange(name, mechanism, made)
