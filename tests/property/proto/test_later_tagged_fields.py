"""KIP-482: tagged fields of a later Kafka are skipped, in every struct of every flexible message.

The later Kafka is made here: each description with two more tagged fields in every struct.
"""

from __future__ import annotations

import random
from dataclasses import replace
from functools import cache
from typing import Any

import pytest

from quafka_proto.codec import decode, encode
from quafka_proto.message import Field, Message, Struct, array, int32, string
from tests.property.proto.messages import CASES, random_message

DESCRIPTION: Any = type(Struct)
FLEXIBLE = [(message, version) for message, version in CASES if version in message.flexible]


@pytest.mark.parametrize(("message", "version"), FLEXIBLE)
def test_skipped(message: type[Message], version: int) -> None:
    chance = random.Random(f"{message.__name__}{version}")
    for _ in range(3):
        later = random_message(later_message(message), version, True, chance)
        later.later_name = "later"
        data = b"".join(encode(later, version))
        assert decode(type(later), version, data) == later
        assert decode(message, version, data) == without(later, message, version)


@cache
def later_message(message: type[Message]) -> Any:
    flexible = f"{message.flexible.low}+"
    versions = f"{message.versions.low}-{message.versions.high}"
    options = {"key": message.api_key, "versions": versions, "flexible": flexible}
    later = DESCRIPTION(message.__name__, (Message,), later_fields(message), **options)
    later.item_limit = message.item_limit
    return later


@cache
def later_struct(struct: type[Struct]) -> Any:
    return DESCRIPTION(struct.__name__, (Struct,), later_fields(struct))


def later_fields(struct: type[Struct]) -> dict[str, Field]:
    fields = {name: later_field(field) for name, field in struct.FIELDS.items()}
    return fields | {
        "later_name": string(default=None, nullable="0+", tag=9_999),
        "later_numbers": array(int32(), tag=0x7FFFFFFF),
    }


def later_field(field: Field) -> Field:
    if field.kind == "array":
        return replace(field, element=later_field(field.element))
    return replace(field, element=later_struct(field.element)) if field.kind == "struct" else field


def without(later: Any, struct: type[Struct], version: int) -> Any:
    """The struct as it was before, in every depth."""
    values = {name: getattr(later, name) for name in struct.FIELDS}
    return struct(
        **{name: plain(value, struct.FIELDS[name], version) for name, value in values.items()}
    )


def plain(value: Any, field: Field, version: int) -> Any:
    if version not in field.versions:
        return field.fresh_default()
    if value is None:
        return None
    if field.kind == "array":
        return [plain(item, field.element, version) for item in value]
    return without(value, field.element, version) if field.kind == "struct" else value
