"""Users of a real gateway, and Kafka clients that log in as one of them."""

from __future__ import annotations

import hashlib
import time
from typing import Any

from quafka_client.sasl import Credentials
from quafka_proto.schema.sasl import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)
from quafka_proto.schema.scram import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from tests.support.raw_client import RawClient
from tests.support.raw_group import Connection

MECHANISMS = {"SCRAM-SHA-256": (1, "sha256"), "SCRAM-SHA-512": (2, "sha512")}


def upsertion(
    name: str, password: str, mechanism: str = "SCRAM-SHA-256", iterations: int = 4_096
) -> ScramCredentialUpsertion:
    number, hash_name = MECHANISMS[mechanism]
    salt = hashlib.sha256(name.encode()).digest()
    return ScramCredentialUpsertion(
        name=name,
        mechanism=number,
        iterations=iterations,
        salt=salt,
        salted_password=hashlib.pbkdf2_hmac(hash_name, password.encode(), salt, iterations),
    )


def deletion(name: str, mechanism: str = "SCRAM-SHA-256") -> ScramCredentialDeletion:
    return ScramCredentialDeletion(name=name, mechanism=MECHANISMS[mechanism][0])


def alter_users(
    address: tuple[str, int], *changes: ScramCredentialUpsertion | ScramCredentialDeletion
) -> None:
    """Change users through a listener at which everybody may."""
    with RawClient(address) as client:
        for change in changes:  # a request changes one credential of a user
            request = (
                AlterUserScramCredentialsRequest(deletions=[change])
                if isinstance(change, ScramCredentialDeletion)
                else AlterUserScramCredentialsRequest(upsertions=[change])
            )
            response = client.call(request, AlterUserScramCredentialsResponse, 0)
            for each in response.results:
                assert each.error_code == 0, each


def log_in_plain(client: RawClient, name: str, password: str) -> Any:
    """SaslHandshake and SaslAuthenticate by PLAIN; returns the last response."""
    shaken = client.call(SaslHandshakeRequest(mechanism="PLAIN"), SaslHandshakeResponse, 1)
    assert shaken.error_code == 0
    token = f"\0{name}\0{password}".encode()
    return client.call(SaslAuthenticateRequest(auth_bytes=token), SaslAuthenticateResponse, 2)


async def log_in(connection: Connection, credentials: Credentials) -> None:
    """SaslHandshake and SaslAuthenticate by any mechanism."""
    shake = SaslHandshakeRequest(mechanism=credentials.mechanism)
    assert not (await connection.call(shake, SaslHandshakeResponse, 1)).error_code
    steps = credentials.login()
    message = next(steps)
    while True:
        asked = SaslAuthenticateRequest(auth_bytes=message)
        answer = await connection.call(asked, SaslAuthenticateResponse, 2)
        assert not answer.error_code, answer.error_message
        try:
            message = steps.send(answer.auth_bytes)
        except StopIteration:
            return


def seconds_until_closed(client: RawClient) -> float:
    """Wait until the gateway closes the connection."""
    began = time.monotonic()
    try:
        while client.socket.recv(1 << 16):
            pass
    except ConnectionResetError:
        pass
    return time.monotonic() - began
