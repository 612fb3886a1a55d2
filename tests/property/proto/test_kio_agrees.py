"""kio as an oracle: random messages of every version agree byte for byte in both directions."""

from __future__ import annotations

import io
import random
import types
import typing
import uuid
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from datetime import UTC, datetime, timedelta
from importlib import import_module
from typing import Any

import pytest
from kio.schema.errors import ErrorCode as KioErrorCode
from kio.serial import entity_reader, entity_writer

from quafka_proto.codec import decode, encode
from quafka_proto.message import REQUESTS, Message
from quafka_proto.schema import (
    api_versions,
    fetch,
    list_offsets,
    metadata,
    produce,
    producer_id,
    topics,
)

MESSAGES: list[tuple[str, type[Message], type[Message]]] = [
    ("produce", produce.ProduceRequest, produce.ProduceResponse),
    ("fetch", fetch.FetchRequest, fetch.FetchResponse),
    ("list_offsets", list_offsets.ListOffsetsRequest, list_offsets.ListOffsetsResponse),
    ("metadata", metadata.MetadataRequest, metadata.MetadataResponse),
    ("api_versions", api_versions.ApiVersionsRequest, api_versions.ApiVersionsResponse),
    ("create_topics", topics.CreateTopicsRequest, topics.CreateTopicsResponse),
    ("delete_topics", topics.DeleteTopicsRequest, topics.DeleteTopicsResponse),
    ("init_producer_id", producer_id.InitProducerIdRequest, producer_id.InitProducerIdResponse),
]
WIDTH = {"int8": 8, "int16": 16, "int32": 32, "int64": 64}
# kio says days, seconds and datetimes where Kafka says milliseconds, and drops the unit.
RENAMED = {"max_wait": "max_wait_ms", "timeout": "timeout_ms", "throttle_time": "throttle_time_ms"}
RENAMED |= {"log_append_time": "log_append_time_ms"}
RENAMED |= {"transaction_timeout": "transaction_timeout_ms", "enable2_pc": "enable_2pc"}
ROUNDS = 40


def cases() -> Iterator[tuple[str, str, type[Message], int]]:
    for name, request, response in MESSAGES:
        for kind, ours in (("request", request), ("response", response)):
            for version in range(ours.versions.low, ours.versions.high + 1):
                yield name, kind, ours, version


def test_every_described_request_is_checked() -> None:
    assert {request for _, request, _ in MESSAGES} == set(REQUESTS.values())


@pytest.mark.parametrize(("name", "kind", "ours", "version"), list(cases()))
def test_agrees(name: str, kind: str, ours: type[Message], version: int) -> None:
    module = import_module(f"kio.schema.{name}.v{version}.{kind}")
    theirs = getattr(module, ours.__name__)
    chance = random.Random(f"{name}{kind}{version}")
    for _ in range(ROUNDS):
        entity = random_entity(theirs, chance)
        with io.BytesIO() as out:
            entity_writer(theirs)(out, entity)
            data = out.getvalue()
        message = decode(ours, version, data)
        assert_same(message, entity)
        encoded = b"".join(encode(message, version))
        assert encoded == data
        assert entity_reader(theirs)(encoded, 0)[0] == entity


def assert_same(message: Any, entity: Any) -> None:
    """Every field of kio's entity has the same value in ours."""
    for field in fields(entity):
        name = RENAMED.get(field.name, field.name)
        same(getattr(message, name), getattr(entity, field.name), field.metadata, name)


def same(mine: Any, other: Any, about: Any, name: str) -> None:
    if isinstance(other, tuple):
        assert len(mine) == len(other), name
        for left, right in zip(mine, other, strict=True):
            same(left, right, about, name)
    elif is_dataclass(other):
        assert_same(mine, other)
    else:
        assert mine == plain(other, about), name


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
    if kind == "string":
        return chance.choice(("", "t", "naïve ✓", "x" * 126, "y" * 127, "z" * 300))
    if kind == "records":
        return chance.randbytes(chance.choice((0, 1, 126, 127, 20_000)))
    if kind == "bool":
        return chance.random() < 0.5
    if kind == "uuid":
        return uuid.UUID(bytes=chance.randbytes(16))
    if kind == "error_code":
        return chance.choice(list(KioErrorCode))
    if kind == "timedelta_i32":
        return timedelta(milliseconds=chance.randrange(0, 1 << 31))
    if kind == "datetime_i64":
        return datetime.fromtimestamp(chance.randrange(0, 1 << 31), UTC)
    raise AssertionError(kind)
