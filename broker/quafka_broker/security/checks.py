"""Checks users, rules, quotas and orgs. Pure.

Gateways check requests as Kafka does. The broker checks again, since a record goes to every
gateway.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import isfinite
from typing import NamedTuple

from quafka_mesh_ops.ops.security import (
    AclRecord,
    AlterOrg,
    QuotaChange,
    UserChange,
)
from quafka_mesh_ops.org_limits import is_org_name, limit_problem
from quafka_proto.errors import ErrorCode
from quafka_proto.schema.quotas import EntityData, ValueData

MOST_CHANGES = 2_000
"""Changes in one op; Kafka's clients send far fewer."""
LONGEST_NAME = 1_024
"""Characters of a user, a client id, a host, a principal or a resource."""
LEAST_ITERATIONS, MOST_ITERATIONS = 4_096, 16_384
_KEY_BYTES = {"SCRAM-SHA-256": 32, "SCRAM-SHA-512": 64}
_SALT_BYTES = range(1, 257)
STATES = ("active", "suspended", "deleting")
LAST_ORG = 0xFFFFFFFF
FIRST_FREE_ORG = 1_000
"""Orgs without a given id get ids from here on: gateways' settings name smaller ids, which the
broker may not know yet."""

_RESOURCES = frozenset({2, 3, 4, 5, 6, 7})  # topic, group, cluster, transactional id, token, user
_PATTERNS = frozenset({3, 4})  # literal, prefixed
_OPERATIONS = frozenset(range(2, 16))  # all, read, ..., two-phase commit
_PERMISSIONS = frozenset({2, 3})  # deny, allow

_OF_CLIENTS = frozenset({
    "producer_byte_rate", "consumer_byte_rate", "request_percentage", "controller_mutation_rate",
})  # fmt: skip
_OF_ADDRESSES = frozenset({"connection_creation_rate"})
_WHOLE = frozenset({"producer_byte_rate", "consumer_byte_rate", "connection_creation_rate"})
_MAX_LONG = (1 << 63) - 1
_ALMOST_WHOLE = 1e-6
"""Kafka's tolerance: clients compute rates in floating point."""


class Refusal(NamedTuple):
    """Why a change is refused: a Kafka error code, and a message."""

    code: ErrorCode
    message: str = ""


def _is_name(text: str) -> bool:
    return 0 < len(text) <= LONGEST_NAME


def user_refusal(change: UserChange, *, known: bool) -> Refusal | None:
    """Why a user's credential cannot be changed like this. `known`: the user has one to remove."""
    if not _is_name(change.name):
        return Refusal(ErrorCode.UNACCEPTABLE_CREDENTIAL, "a user's name has 1 to 1024 characters")
    size = _KEY_BYTES.get(change.mechanism)
    if size is None:
        return Refusal(ErrorCode.UNSUPPORTED_SASL_MECHANISM, "unknown SCRAM mechanism")
    made = change.credential
    if made is None:
        return None if known else Refusal(ErrorCode.RESOURCE_NOT_FOUND, "no such credential")
    if made.mechanism != change.mechanism:
        return Refusal(ErrorCode.INVALID_REQUEST, "the credential is of another mechanism")
    if not LEAST_ITERATIONS <= made.iterations <= MOST_ITERATIONS:
        few = made.iterations < LEAST_ITERATIONS
        message = "Too few iterations" if few else "Too many iterations"
        return Refusal(ErrorCode.UNACCEPTABLE_CREDENTIAL, message)
    if len(made.salt) not in _SALT_BYTES or {len(made.stored_key), len(made.server_key)} != {size}:
        return Refusal(ErrorCode.UNACCEPTABLE_CREDENTIAL, "salt or keys have a wrong length")
    return None


def acl_refusal(org: int, acl: AclRecord) -> Refusal | None:
    """Why an org cannot have this rule."""
    kind, colon, name = acl.principal.partition(":")
    problem = ""
    if acl.org_id != org:
        problem = "the rule is of another org"
    elif acl.resource_type not in _RESOURCES or not _is_name(acl.resource_name):
        problem = "unknown resource type, or no name of 1 to 1024 characters"
    elif acl.pattern_type not in _PATTERNS:
        problem = "the pattern type must be literal or prefixed"
    elif acl.operation not in _OPERATIONS or acl.permission_type not in _PERMISSIONS:
        problem = "unknown operation or permission type"
    elif not (kind and colon and name) or not _is_name(acl.principal):
        problem = "a principal has the form Type:name"
    elif not _is_name(acl.host):
        problem = "a host is an address or *"
    return Refusal(ErrorCode.INVALID_REQUEST, problem) if problem else None


def quota_refusal(change: QuotaChange) -> Refusal | None:
    """Why quotas cannot be changed like this."""
    problem = _entity_problem(change.entity)
    if not problem:
        keys = _OF_ADDRESSES if change.entity[0].entity_type == "ip" else _OF_CLIENTS
        named = [value.key for value in change.values] + change.removed
        if len(set(named)) < len(named):
            problem = "a quota occurs twice"
        elif not keys.issuperset(named):
            problem = f"known quotas of this entity are {', '.join(sorted(keys))}"
        else:
            problems = (_value_problem(value) for value in change.values)
            problem = next((each for each in problems if each), "")
    return Refusal(ErrorCode.INVALID_REQUEST, problem) if problem else None


def _entity_problem(entity: Sequence[EntityData]) -> str:
    kinds = [part.entity_type for part in entity]
    if sorted(kinds) not in (["user"], ["client-id"], ["client-id", "user"], ["ip"]):
        return "an entity is a user, a client id, both, or an ip"
    if any(part.entity_name is not None and not _is_name(part.entity_name) for part in entity):
        return "a name in an entity has 1 to 1024 characters"
    return ""


def _value_problem(quota: ValueData) -> str:
    if not isfinite(quota.value) or not 0 < quota.value <= _MAX_LONG:
        return f"Quota {quota.key} must be greater than 0"
    if quota.key in _WHOLE and abs(quota.value - round(quota.value)) > _ALMOST_WHOLE:
        return f"Quota {quota.key} must be a whole number"
    return ""


def org_refusal(op: AlterOrg) -> Refusal | None:
    """Why an org cannot be changed by the op. An empty name or state: unchanged."""
    problem = ""
    if not 0 <= op.org_id <= LAST_ORG or (not op.org_id and not op.create):
        problem = f"an org's id is 1 to {LAST_ORG}"
    elif (op.name or op.create) and not is_org_name(op.name):
        problem = "an org's name has 1 to 63 of a-z, A-Z, 0-9, '.', '_', '-'"
    elif op.state and op.state not in STATES:
        problem = f"an org is {', '.join(STATES)}"
    else:
        problem = limit_problem(op.limits or ())
    return Refusal(ErrorCode.INVALID_REQUEST, problem) if problem else None
