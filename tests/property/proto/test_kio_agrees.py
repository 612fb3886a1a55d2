"""kio as an oracle: random messages of every version agree byte for byte in both directions."""

from __future__ import annotations

import io
import random
import types
import typing
import uuid
from collections.abc import Callable
from dataclasses import MISSING, fields, is_dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from kio.schema.errors import ErrorCode as KioErrorCode
from kio.serial import entity_reader, entity_writer

from quafka_proto.codec import decode, encode
from quafka_proto.headers import (
    RequestHeader,
    decode_request_header,
    decode_response_header,
    encode_request,
    encode_response,
)
from quafka_proto.message import Message, Request, Struct
from tests.property.proto.oracles import kio_cases, kio_entity
from tests.support.suites import share

WIDTH = {"int8": 8, "int16": 16, "int32": 32, "int64": 64}
ROUNDS = share(25)


@pytest.mark.parametrize(("ours", "version"), kio_cases())
def test_agrees(ours: type[Message], version: int) -> None:
    theirs = kio_entity(ours, version)
    read, write = entity_reader(theirs), entity_writer(theirs)
    chance = random.Random(f"{ours.__name__}{version}")
    for _ in range(ROUNDS):
        entity = random_entity(theirs, chance)
        with io.BytesIO() as out:
            write(out, entity)
            data = out.getvalue()
        message = decode(ours, version, data)
        assert_same(message, entity, version)
        encoded = b"".join(encode(message, version))
        assert encoded == data
        assert read(encoded, 0)[0] == entity


@pytest.mark.parametrize(("ours", "version"), kio_cases())
def test_headers_agree(ours: type[Message], version: int) -> None:
    """Also that client_id is never compact, and that ApiVersions is answered with header 0."""
    message = ours()
    header: Any = kio_entity(ours, version).__header_schema__
    if issubclass(ours, Request):
        frame = b"".join(encode_request(7, "me", message, version))
        theirs = header(
            request_api_key=ours.api_key,
            request_api_version=version,
            correlation_id=7,
            client_id="me",
        )
    else:
        frame = b"".join(encode_response(7, message, version))
        theirs = header(correlation_id=7)
    with io.BytesIO() as out:
        entity_writer(header)(out, theirs)
        begin = out.getvalue()
    assert frame[4:] == begin + b"".join(encode(message, version))
    if issubclass(ours, Request):
        expected = (RequestHeader(ours.api_key, version, 7, "me"), len(begin))
        assert decode_request_header(frame[4:]) == expected
    else:
        assert decode_response_header(ours, version, frame[4:]) == (7, len(begin))


def assert_same(message: Struct, entity: Any, version: int) -> None:
    """kio's entity has the version's fields in our order, with our names, defaults and values."""
    mine = {name: field for name, field in message.FIELDS.items() if version in field.versions}
    for (name, described), field in zip(mine.items(), fields(entity), strict=True):
        assert bare(name) == bare(field.name)
        if field.default is not MISSING:
            same(described.fresh_default(), field.default, field.metadata, version)
        same(getattr(message, name), getattr(entity, field.name), field.metadata, version)


def bare(name: str) -> str:
    """kio has durations and times for Kafka's milliseconds, and drops the unit."""
    return name.replace("_", "").removesuffix("ms")


def same(mine: Any, other: Any, about: Any, version: int) -> None:
    if isinstance(other, tuple):
        for left, right in zip(mine, other, strict=True):
            same(left, right, about, version)
    elif is_dataclass(other):
        assert_same(mine, other, version)
    else:
        assert mine == plain(other, about)


def plain(value: Any, about: Any) -> Any:
    if about.get("kafka_type") == "uuid":
        return value.bytes if value else bytes(16)
    if isinstance(value, timedelta):
        return round(value.total_seconds() * 1000)
    if isinstance(value, datetime):
        return round(value.timestamp() * 1000)
    if about.get("kafka_type") == "datetime_i64" and value is None:
        return -1
    if isinstance(value, KioErrorCode):
        return value.value
    return value


def random_entity(entity: type[Any], chance: random.Random) -> Any:
    hints = typing.get_type_hints(entity)
    chosen: dict[str, Any] = {}
    for field in fields(entity):
        tagged = "tag" in field.metadata
        if tagged and chance.random() < 0.5:
            continue
        chosen[field.name] = random_value(hints[field.name], field.metadata, chance)
    return entity(**chosen)


def random_value(hint: Any, about: Any, chance: random.Random) -> Any:
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        present = next(arg for arg in typing.get_args(hint) if arg is not type(None))
        return None if chance.random() < 0.3 else random_value(present, about, chance)
    if typing.get_origin(hint) is tuple:
        item = typing.get_args(hint)[0]
        return tuple(random_value(item, about, chance) for _ in range(chance.choice((0, 1, 3))))
    if is_dataclass(hint):
        return random_entity(typing.cast(Any, hint), chance)
    return scalar(about["kafka_type"], chance)


def scalar(kind: str, chance: random.Random) -> Any:
    if kind in WIDTH:
        half = 1 << WIDTH[kind] - 1
        return chance.choice((0, -1, 1, half - 1, -half, chance.randrange(-half, half)))
    return SCALARS[kind](chance)


def random_bytes(chance: random.Random) -> bytes:
    return chance.randbytes(chance.choice((0, 1, 126, 127, 20_000)))


SCALARS: dict[str, Callable[[random.Random], Any]] = {
    "string": lambda chance: chance.choice(("", "t", "naïve ✓", "x" * 126, "y" * 127, "z" * 300)),
    "records": random_bytes,
    "bytes": random_bytes,
    "bool": lambda chance: chance.random() < 0.5,
    "float64": lambda chance: chance.choice((0.0, -1.5, 1e300, chance.random())),
    "uint16": lambda chance: chance.randrange(1 << 16),
    "uuid": lambda chance: uuid.UUID(bytes=chance.randbytes(16)),
    "error_code": lambda chance: chance.choice(list(KioErrorCode)),
    "timedelta_i32": lambda chance: timedelta(milliseconds=chance.randrange(0, 1 << 31)),
    "timedelta_i64": lambda chance: timedelta(milliseconds=chance.randrange(0, 1 << 40)),
    "datetime_i64": lambda chance: datetime.fromtimestamp(chance.randrange(0, 1 << 31), UTC),
}
