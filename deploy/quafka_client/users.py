"""Users and their SCRAM credentials (KIP-554).

Passwords are salted here. The server receives only the salted password, which grants access to
this server and to no other.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from quafka_client.cluster import ClientCluster
from quafka_client.errors import RequestRefusedError, check
from quafka_client.scram import new_salt, salted_password
from quafka_proto.errors import ErrorCode
from quafka_proto.schema.scram import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
    UserName,
)

NUMBERS = {"SCRAM-SHA-256": 1, "SCRAM-SHA-512": 2}
"""The mechanisms, by Kafka's numbers."""
_NAMES = {number: name for name, number in NUMBERS.items()}


@dataclass(frozen=True, slots=True)
class Credential:
    """A credential that the server stores, without its secret parts."""

    mechanism: str
    iterations: int


@dataclass(frozen=True, slots=True)
class User:
    """A user with credentials."""

    user: str
    credentials: list[Credential]


async def users(cluster: ClientCluster) -> list[User]:
    """All users. Raises ClientError."""
    return await _described(cluster, None)


async def find(cluster: ClientCluster, name: str) -> User | None:
    """A user; None if there is none. Raises ClientError."""
    try:
        found = await _described(cluster, name)
    except RequestRefusedError as e:
        if e.code == ErrorCode.RESOURCE_NOT_FOUND:
            return None
        raise
    return found[0]


async def _described(cluster: ClientCluster, name: str | None) -> list[User]:
    request = DescribeUserScramCredentialsRequest(
        users=None if name is None else [UserName(name=name)]
    )
    answer = await cluster.call(request, DescribeUserScramCredentialsResponse)
    check(answer.error_code, "users", answer.error_message)
    for each in answer.results:
        check(each.error_code, f"user {each.user!r}", each.error_message)
    return [
        User(
            each.user,
            [
                Credential(
                    _NAMES.get(info.mechanism, f"mechanism {info.mechanism}"), info.iterations
                )
                for info in sorted(each.credential_infos, key=lambda info: info.mechanism)
            ],
        )
        for each in sorted(answer.results, key=lambda each: each.user)
    ]


def salted(
    name: str, password: str, mechanisms: Sequence[str], iterations: int
) -> list[ScramCredentialUpsertion]:
    """New credentials of a user. Takes CPU time: run it in a thread."""
    found: list[ScramCredentialUpsertion] = []
    for mechanism in mechanisms:
        salt = new_salt()
        found.append(
            ScramCredentialUpsertion(
                name=name,
                mechanism=NUMBERS[mechanism],
                iterations=iterations,
                salt=salt,
                salted_password=salted_password(mechanism, password, salt, iterations),
            )
        )
    return found


async def set_password(cluster: ClientCluster, credentials: list[ScramCredentialUpsertion]) -> None:
    """Store the credentials of a user. Raises ClientError."""
    for each in credentials:
        await _alter(cluster, AlterUserScramCredentialsRequest(upsertions=[each]))


async def remove(cluster: ClientCluster, name: str, mechanisms: Sequence[str]) -> None:
    """Remove credentials of a user; the last one removes the user. Raises ClientError."""
    for mechanism in mechanisms:
        deletion = ScramCredentialDeletion(name=name, mechanism=NUMBERS[mechanism])
        await _alter(cluster, AlterUserScramCredentialsRequest(deletions=[deletion]))


async def _alter(cluster: ClientCluster, request: AlterUserScramCredentialsRequest) -> None:
    """Send one change: Kafka accepts one of each user in a request."""
    for each in (await cluster.call(request, AlterUserScramCredentialsResponse)).results:
        check(each.error_code, f"user {each.user!r}", each.error_message)
