"""kafka-python as an oracle: random messages agree byte for byte in both directions.

Its current classes read Kafka's own definitions of the 4.x versions; for versions before those
it keeps older classes, written by hand.
"""

from __future__ import annotations

import random
import uuid
from typing import Any

import pytest

from quafka_proto.codec import decode, encode
from quafka_proto.message import Field, Message, Struct
from quafka_proto.schema.api_versions import ApiVersionsResponse
from tests.property.proto.messages import random_message
from tests.property.proto.oracles import (
    kafka_python_cases,
    kafka_python_class,
    kafka_python_old_class,
)
from tests.support.suites import share

ROUNDS = share(15)
BIT_FIELDS = {"authorized_operations"}  # sets of bits there


@pytest.mark.parametrize(("ours", "version"), kafka_python_cases())
def test_agrees(ours: type[Message], version: int) -> None:
    chance = random.Random(f"{ours.__name__}{version}")
    current = kafka_python_class(ours, version)
    for _ in range(ROUNDS):
        message = random_message(ours, version, version in ours.flexible, chance)
        if isinstance(message, ApiVersionsResponse):
            message.error_code = 0  # with another it takes the rest for version 0 (KIP-511)
        data = b"".join(encode(message, version))
        if current:
            theirs = current.decode(data, version=version)
            theirs._header = None  # its decoder leaves it out, its encoder needs it
            assert_same(message, theirs, version)
            encoded = theirs.encode(version=version)
        else:
            theirs = kafka_python_old_class(ours, version).decode(data)
            assert_same_row(
                message, [getattr(theirs, name) for name in theirs.SCHEMA.names], version
            )
            encoded = theirs.encode()
        assert encoded == data
        assert decode(ours, version, encoded) == message


def present(message: Struct, version: int) -> list[tuple[Field, str, Any]]:
    return [
        (field, name, getattr(message, name))
        for name, field in message.FIELDS.items()
        if version in field.versions
    ]


def assert_same(message: Struct, theirs: Any, version: int) -> None:
    """kafka-python's object has our field names, but for underscores, and our values."""
    fields = [field for field in theirs._struct._fields if field.for_version_q(version)]
    for (field, name, value), other in zip(present(message, version), fields, strict=True):
        if other.name not in BIT_FIELDS:
            assert name.replace("_", "") == other.name.replace("_", "")
        same(field, value, getattr(theirs, other.name), version)


def assert_same_row(message: Struct, theirs: Any, version: int) -> None:
    """An older class gives tuples, in the order of the fields."""
    for (field, _, value), other in zip(present(message, version), theirs, strict=True):
        same(field, value, other, version)


def same(field: Field, mine: Any, other: Any, version: int) -> None:
    if mine is None:
        assert other is None
    elif isinstance(other, set):
        assert mine & 0xFFFFFFFF == sum(1 << bit for bit in other)
    elif other is None:
        assert mine == field.fresh_default()  # its None is not sent, or all zeros
    elif field.kind == "array":
        for left, right in zip(mine, other, strict=True):
            same(field.element, left, right, version)
    elif field.kind == "struct" and isinstance(other, tuple):
        assert_same_row(mine, other, version)
    elif field.kind == "struct":
        assert_same(mine, other, version)
    else:
        assert mine == (other.bytes if isinstance(other, uuid.UUID) else other)
