"""Keys and values in Confluent's wire format: a zero byte, the id of a schema in four, the data."""

from __future__ import annotations

import asyncio
import json
from functools import lru_cache
from typing import Any

from quafka_client.errors import ClientError
from quafka_client.registry import avro, protobuf
from quafka_client.registry.client import (
    AVRO,
    JSON,
    PROTOBUF,
    RegisteredSchema,
    RegistryError,
    SchemaRegistry,
)

_HEADER = 5
MOST_IDS = 20
"""Different schemas of one page, or of one search."""
_SECONDS = 10.0
"""More than the registry's client takes."""


def schema_id(data: bytes | None) -> int | None:
    """The id of the schema of a key or value; None: it does not begin with one."""
    if data is None or len(data) < _HEADER or data[0] != 0:
        return None
    return int.from_bytes(data[1:_HEADER], "big")


def wire_header(number: int) -> bytes:
    """What precedes the data of a schema's id."""
    return b"\0" + number.to_bytes(_HEADER - 1, "big")


class JsonOfValues:
    """The JSON of whole values, for a search in a thread: it waits for the registry's answers."""

    def __init__(self, registry: SchemaRegistry) -> None:
        """Must be made in the event loop, which asks the registry."""
        self._registry, self._loop = registry, asyncio.get_running_loop()
        self._known: dict[int, RegisteredSchema | None] = {}

    def __call__(self, data: bytes) -> Any:
        """Raises ValueError: a value is neither JSON nor of a schema that can be read."""
        number = schema_id(data)
        if number is None:
            return json.loads(data)
        if number not in self._known and len(self._known) < MOST_IDS:
            self._known[number] = self._ask(number)
        schema = self._known.get(number)
        if schema is None:
            raise ValueError(number)
        try:
            return json_value(schema, data)
        except ClientError as e:
            raise ValueError(number) from e

    def _ask(self, number: int) -> RegisteredSchema | None:
        asking = asyncio.run_coroutine_threadsafe(self._registry.schema(number), self._loop)
        try:
            return asking.result(_SECONDS)
        except (RegistryError, TimeoutError):
            return None


def json_value(schema: RegisteredSchema, whole: bytes) -> Any:
    """A value, with its header, as JSON types. Raises ClientError."""
    data = whole[_HEADER:]
    if schema.kind == AVRO:
        return avro.decode(data, _parsed(schema))
    if schema.kind == JSON:
        try:
            return json.loads(data)
        except (ValueError, RecursionError) as e:
            raise RegistryError("the value is not JSON, as its schema says") from e
    if schema.kind == PROTOBUF:
        return protobuf.decode(data, _parsed_protobuf(schema))
    raise RegistryError(f"values of {schema.kind.title()} schemas are not decoded")


@lru_cache(maxsize=100)
def _parsed(schema: RegisteredSchema) -> avro.AvroType:
    known: dict[str, avro.AvroType] = {}
    for _, text in schema.references:
        avro.parse(_json(text), known)
    return avro.parse(_json(schema.text), known)


@lru_cache(maxsize=100)
def _parsed_protobuf(schema: RegisteredSchema) -> protobuf.ProtobufFile:
    return protobuf.parse(schema.text, dict(schema.references))


def _json(text: str) -> Any:
    """A schema's JSON; the name of a primitive type may stand without quotes."""
    try:
        return json.loads(text)
    except RecursionError as e:
        raise avro.AvroError("the Avro schema is too deep") from e
    except ValueError:
        return text.strip()
