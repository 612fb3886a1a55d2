"""What Kafka accepts as an entity's quotas (`ClientQuotaControlManager`). Pure."""

from __future__ import annotations

from collections.abc import Sequence
from ipaddress import ip_address
from math import isfinite

from quafka_gateway.quotas.kinds import CLIENT_ID, CLIENT_KINDS, IP, USER, QuotaKind
from quafka_mesh_ops.ops.security import QuotaChange
from quafka_proto.schema.quotas import EntityData, ValueData

_LONG, _INT = (1 << 63) - 1, (1 << 31) - 1
_WHOLE = {
    QuotaKind.PRODUCE.value: _LONG,
    QuotaKind.FETCH.value: _LONG,
    QuotaKind.CONNECTIONS.value: _INT,
}
"""Keys whose values are whole numbers, with the greatest."""
_CLIENT_KEYS = frozenset(kind.value for kind in CLIENT_KINDS)
_ADDRESS_KEYS = frozenset({QuotaKind.CONNECTIONS.value})
_ALMOST_WHOLE = 1e-6
_LONGEST_NAME = 4_096


def change_problem(change: QuotaChange) -> str:
    """Why a change is refused; "": it is not."""
    problem = _entity_problem(change.entity)
    if problem:
        return problem
    keys = [*(value.key for value in change.values), *change.removed]
    if len(set(keys)) < len(keys):
        return "a quota of an entity can be changed once in a request"
    allowed = _ADDRESS_KEYS if change.entity[0].entity_type == IP else _CLIENT_KEYS
    for value in change.values:
        problem = _value_problem(value, allowed)
        if problem:
            return problem
    return next((_unknown_key(key) for key in change.removed if key not in allowed), "")


def _entity_problem(entity: Sequence[EntityData]) -> str:
    if not entity:
        return "Invalid empty client quota entity."
    kinds = [part.entity_type for part in entity]
    for part in entity:
        if part.entity_type not in (USER, CLIENT_ID, IP):
            return f"Unhandled client quota entity type: {part.entity_type[:64]}"
        if kinds.count(part.entity_type) > 1:
            return f"Invalid client quota entity: duplicate entity type {part.entity_type}"
        if part.entity_name == "":
            return f"Empty {part.entity_type} not supported"
        if part.entity_name is not None and len(part.entity_name) > _LONGEST_NAME:
            return f"{part.entity_type} is longer than {_LONGEST_NAME} characters"
    if IP in kinds:
        if len(kinds) > 1:
            return (
                "Invalid quota entity combination, IP entity should not be combined with User or "
                "ClientId"
            )
        return _address_problem(entity[0].entity_name)
    return ""


def _address_problem(name: str | None) -> str:
    if name is not None:
        try:
            ip_address(name)
        except ValueError:
            return f"{name[:64]} is not a valid IP"
    return ""


def _value_problem(value: ValueData, allowed: frozenset[str]) -> str:
    key, number = value.key, value.value
    if key not in allowed:
        return _unknown_key(key)
    if not isfinite(number) or number <= 0:
        return f"Quota {key} must be greater than 0"
    most = _WHOLE.get(key)
    if most is not None:
        if number > most:
            size = "an INT" if most == _INT else "a LONG"
            return f"Proposed value for {key} is too large for {size}."
        if abs(number - int(number)) > _ALMOST_WHOLE:
            return f"{key} cannot be a fractional value."
    return ""


def _unknown_key(key: str) -> str:
    return f"Invalid configuration key {key[:64]}"
