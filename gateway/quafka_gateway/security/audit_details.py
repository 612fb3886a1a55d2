"""A request's fields, and the errors in its response, as short JSON without secrets. Pure.

A request of a hundred thousand topics makes a line as short as one of fifty: what is left out is
counted.
"""

from __future__ import annotations

import re
from enum import IntEnum
from typing import Any, cast

from quafka_proto.acl_kinds import Operation, Pattern, Permission, ResourceKind
from quafka_proto.errors import ErrorCode
from quafka_proto.message import Encoded, Struct
from quafka_proto.schema.acls import AclCreation, DeleteAclsFilter

_MOST_VALUES = 200
_MOST_ITEMS = 50
_MOST_ERRORS = 50
_MOST_LOOKED_AT = 1_000
_LONGEST_TEXT = 256
# Up to the last @: a password that is not escaped may contain / and @.
_USER_OF_URL = re.compile(r"(?<=://)\S*(?=@)")
_SECRET_CONFIG = re.compile(r"password|secret|token|credential|jaas|\.key$", re.IGNORECASE)
_HIDDEN = "<hidden>"
_NIL = bytes(16)
_NOT_A_NAME = frozenset({"error_code", "error_message", "throttle_time_ms"})


class _Budget:
    """How many values may still be looked at."""

    def __init__(self, values: int) -> None:
        self.left = values


def request_fields(request: Struct) -> dict[str, Any]:
    """The fields that differ from their defaults, at most 200 values; secret ones are left out."""
    return _fields(request, _Budget(_MOST_VALUES))


def _fields(value: Struct, budget: _Budget) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, field in value.FIELDS.items():
        own: Any = getattr(value, name)
        if field.secret or (not isinstance(own, list) and own == field.fresh_default()):
            continue
        if own == []:
            continue
        if budget.left <= 0:
            found["more"] = True
            break
        found[name] = _shown(own, budget)
        if name == "value" and own and _SECRET_CONFIG.search(getattr(value, "name", "")):
            found[name] = _HIDDEN  # a config of Kafka's that has no meaning here, such as a key
        if isinstance(value, AclCreation | DeleteAclsFilter) and name in _WORDS:
            found[name] = _word(_WORDS[name], cast("int", own))
    return found


_WORDS: dict[str, type[IntEnum]] = {
    "resource_type": ResourceKind,
    "resource_type_filter": ResourceKind,
    "resource_pattern_type": Pattern,
    "pattern_type_filter": Pattern,
    "operation": Operation,
    "permission_type": Permission,
}
"""The numbers in rules and in filters of rules, by the names of their fields."""


def _word(kind: type[IntEnum], number: int) -> str | int:
    try:
        return kind(number).name
    except ValueError:
        return number


def _shown(value: Any, budget: _Budget) -> Any:
    if isinstance(value, Struct):
        return _fields(value, budget)
    if isinstance(value, list):
        return _items(cast("list[Any]", value), budget)
    budget.left -= 1
    return _scalar(value)


def _items(values: list[Any], budget: _Budget) -> list[Any]:
    found: list[Any] = []
    for each in values[:_MOST_ITEMS]:
        if budget.left <= 0:
            break
        found.append(_shown(each, budget))
    if len(found) < len(values):
        found.append(f"and {len(values) - len(found)} more")
    return found


def _scalar(value: Any) -> Any:
    if isinstance(value, str):
        text = _USER_OF_URL.sub(_HIDDEN, value)
        return text if len(text) <= _LONGEST_TEXT else f"{text[:_LONGEST_TEXT]}…"
    if isinstance(value, bytes | bytearray | memoryview):
        data = bytes(cast("bytes", value))
        return data.hex() if len(data) == len(_NIL) else f"<{len(data)} bytes>"
    return value


# --- errors -----------------------------------------------------------------------------------


def errors_in(response: Struct) -> list[dict[str, Any]]:
    """What failed, at most 50 of it: the names in each struct that has an error code.

    Looks at a thousand structs at most, as it does not yield to the loop.
    """
    found: list[dict[str, Any]] = []
    _collect(response, {}, found, _Budget(_MOST_LOOKED_AT))
    return found


def _collect(
    value: Struct, above: dict[str, Any], found: list[dict[str, Any]], budget: _Budget
) -> None:
    budget.left -= 1
    names = above | _names(value)
    code = getattr(value, "error_code", 0)
    if code and len(found) < _MOST_ERRORS:
        found.append({**names, "error": ErrorCode.name_of(code)})
    for name in value.FIELDS:
        items = getattr(value, name)
        if isinstance(items, Encoded) or not isinstance(items, list):
            continue
        for item in cast("list[Any]", items):
            if len(found) >= _MOST_ERRORS or budget.left <= 0:
                return
            if isinstance(item, Struct):
                _collect(item, names, found, budget)


def _names(value: Struct) -> dict[str, Any]:
    """The fields that name the topic, partition, user or rule of a struct."""
    found: dict[str, Any] = {}
    for name, field in value.FIELDS.items():
        own = getattr(value, name)
        named = field.kind == "string" or name.endswith("index")
        if named and name not in _NOT_A_NAME and not field.secret and own not in (None, ""):
            found[name] = _scalar(own)
    return found
