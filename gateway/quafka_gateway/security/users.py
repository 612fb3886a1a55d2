"""Reading and changing the users of one org, by the rules of Kafka's requests (KIP-554)."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass

from quafka_gateway.sasl_settings import SCRAM_256, SCRAM_512
from quafka_gateway.security.directory import Directory
from quafka_gateway.security.sasl.passwords import KEY_BYTES, credential_of
from quafka_gateway.security.writer import SecurityWriter
from quafka_gateway.tenant import Tenant
from quafka_mesh_ops.ops.security import ChangedResp, UserChange, UserRecord
from quafka_proto.errors import ErrorCode
from quafka_telemetry.tracing import TraceContext

MECHANISMS = {1: SCRAM_256, 2: SCRAM_512}
"""Kafka's numbers of SCRAM mechanisms."""
NUMBERS = {name: number for number, name in MECHANISMS.items()}
LEAST_ITERATIONS, MOST_ITERATIONS = 4_096, 16_384

Problem = tuple[int, str]
"""A Kafka error code and its message."""

_TWICE: Problem = (
    ErrorCode.DUPLICATE_RESOURCE,
    "the credentials of a user can be changed once in a request",
)
_PER_STEP = 100
_NO_NAME: Problem = (ErrorCode.UNACCEPTABLE_CREDENTIAL, "a user has a name")
_NO_MECHANISM: Problem = (ErrorCode.UNSUPPORTED_SASL_MECHANISM, "unknown SCRAM mechanism")
_NOT_FOUND: Problem = (ErrorCode.RESOURCE_NOT_FOUND, "the user has no such credential")
_MALFORMED: Problem = (
    ErrorCode.UNACCEPTABLE_CREDENTIAL,
    "the salt or the salted password has a wrong length",
)


@dataclass(frozen=True, slots=True)
class Alteration:
    """A credential that a request sets, or removes if it has no salted password."""

    name: str
    mechanism: int
    iterations: int = 0
    salt: bytes = b""
    salted_password: bytes | None = None


def users_of(directory: Directory, tenant: Tenant) -> list[UserRecord]:
    """The users of an org, as this gateway knows them."""
    return directory.users(tenant.org_id)


def user_of(directory: Directory, tenant: Tenant, name: str) -> UserRecord | None:
    """A user of an org, as this gateway knows it."""
    return directory.user(tenant.org_id, name)


async def alter(
    writer: SecurityWriter, tenant: Tenant, changes: list[UserChange], trace: TraceContext | None
) -> ChangedResp:
    """Change users of an org, durably. Raises BrokerUnavailableError."""
    return await writer.alter_users(tenant.org_id, changes, trace)


def problems(
    alterations: Iterable[Alteration], directory: Directory, tenant: Tenant
) -> Generator[None, None, dict[str, Problem]]:
    """The first problem of each user that has one: none of its alterations counts. In steps."""
    found: dict[str, Problem] = {}
    seen: set[str] = set()
    for number, each in enumerate(alterations):
        if number % _PER_STEP == 0:
            yield
        if each.name in found:
            continue
        problem = _TWICE if each.name in seen else _problem(each, directory, tenant)
        seen.add(each.name)
        if problem is not None:
            found[each.name] = problem
    return found


def _problem(each: Alteration, directory: Directory, tenant: Tenant) -> Problem | None:
    if not each.name:
        return _NO_NAME
    mechanism = MECHANISMS.get(each.mechanism)
    if mechanism is None:
        return _NO_MECHANISM
    if each.salted_password is None:
        user = user_of(directory, tenant, each.name)
        held = [] if user is None else [one.mechanism for one in user.credentials]
        return None if mechanism in held else _NOT_FOUND
    if not LEAST_ITERATIONS <= each.iterations <= MOST_ITERATIONS:
        few = each.iterations < LEAST_ITERATIONS
        limit = f"at least {LEAST_ITERATIONS}" if few else f"at most {MOST_ITERATIONS}"
        return ErrorCode.UNACCEPTABLE_CREDENTIAL, f"there must be {limit} iterations"
    # A password in place of a salted one would be stored as one fast hash, and can be guessed.
    fits = each.salt and len(each.salted_password) == KEY_BYTES[mechanism]
    return None if fits else _MALFORMED


def changes_of(alterations: Sequence[Alteration]) -> Iterator[UserChange]:
    """What the broker is to store: keys instead of salted passwords. Some 10 µs of CPU each."""
    for each in alterations:
        mechanism = MECHANISMS[each.mechanism]
        made = None
        if each.salted_password is not None:
            made = credential_of(mechanism, each.salt, each.iterations, each.salted_password)
        yield UserChange(each.name, mechanism, made)
