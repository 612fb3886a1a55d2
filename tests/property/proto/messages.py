"""Every described message, and Hypothesis strategies for their values."""

from __future__ import annotations

import random
from typing import Any, cast

from hypothesis import strategies as st

from quafka_proto.message import Field, Message, Struct
from quafka_proto.schema import MODULES, request_type, response_type

KEYS = sorted(key for keys in MODULES.values() for key in keys)
OURS = MODULES["quafka"]
"""The APIs that Kafka does not have."""
MESSAGES: list[type[Message]] = [
    message for key in KEYS for message in (request_type(key), response_type(key)) if message
]
CASES = [
    (message, version)
    for message in MESSAGES
    for version in range(message.versions.low, message.versions.high + 1)
]

_SIGNED = {"b": 8, "h": 16, "i": 32, "q": 64}


def structs(owner: type[Struct], version: int, flexible: bool) -> st.SearchStrategy[Any]:
    """Instances with any value in the fields that the version has; defaults in the others."""
    present = {
        name: _values(field, version, flexible)
        for name, field in owner.FIELDS.items()
        if version in field.versions and (field.tag is None or flexible)
    }
    return st.builds(owner, **present)


def messages(message: type[Message], version: int) -> st.SearchStrategy[Any]:
    return structs(message, version, version in message.flexible)


def _values(field: Field, version: int, flexible: bool) -> st.SearchStrategy[Any]:
    values = _present(field, version, flexible)
    return st.none() | values if version in field.nullable else values


def _present(field: Field, version: int, flexible: bool) -> st.SearchStrategy[Any]:
    if field.kind in _SIGNED:
        half = 1 << _SIGNED[field.kind] - 1
        return st.integers(-half, half - 1)
    if field.kind == "array":
        return st.lists(_values(field.element, version, flexible), max_size=3)
    if field.kind == "struct":
        return structs(cast("type[Struct]", field.element), version, flexible)
    simple: dict[str, st.SearchStrategy[Any]] = {
        "?": st.booleans(),
        "16s": st.binary(min_size=16, max_size=16),
        "string": st.text(max_size=200),
        "bytes": st.binary(max_size=200),
        "records": st.binary(max_size=300),
        "d": st.floats(allow_nan=False),
        "H": st.integers(0, 0xFFFF),
    }
    return simple[field.kind]


def random_message(owner: type[Struct], version: int, flexible: bool, chance: random.Random) -> Any:
    """An instance with some value in every field that the version has."""
    return owner(
        **{
            name: _random(field, version, flexible, chance)
            for name, field in owner.FIELDS.items()
            if version in field.versions and (field.tag is None or flexible)
        }
    )


def _random(field: Field, version: int, flexible: bool, chance: random.Random) -> Any:
    if version in field.nullable and chance.random() < 0.2:
        return None
    if field.kind in _SIGNED:
        half = 1 << _SIGNED[field.kind] - 1
        return chance.choice((0, -1, 1, half - 1, -half, chance.randrange(-half, half)))
    if field.kind == "array":
        count = chance.choice((0, 1, 3))
        return [_random(field.element, version, flexible, chance) for _ in range(count)]
    if field.kind == "struct":
        return random_message(field.element, version, flexible, chance)
    size = chance.choice((0, 1, 126, 127, 300))
    return {
        "?": chance.random() < 0.5,
        "d": chance.choice((0.0, -1.5, 1e300, chance.random())),
        "H": chance.randrange(1 << 16),
        "16s": chance.randbytes(16),
        "string": chance.choice(("", "naïve ✓", "x" * size)),
        "bytes": chance.randbytes(size),
        "records": chance.randbytes(size),
    }[field.kind]
