"""Keys and values in Confluent's wire format: a zero byte, the id of a schema in four, the data."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from quafka_client.errors import ClientError
from quafka_console.data.messages.records import KeptBytes
from quafka_console.data.registry import avro, protobuf
from quafka_console.data.registry.client import (
    AVRO,
    JSON,
    PROTOBUF,
    RegisteredSchema,
    RegistryError,
    SchemaRegistry,
)

_HEADER = 5
_MOST_TEXT = 512 << 10
"""Characters of a decoded value."""
_MOST_LINE = 1_000
MOST_IDS = 20
"""Different schemas of one page, or of one search."""
_SECONDS = 10.0
"""More than the registry's client takes."""


@dataclass(frozen=True, slots=True)
class DecodedValue:
    """A value as its schema has it.

    Attributes:
        text: as JSON; "": it is not decoded.
        problem: why it is not decoded, as a sentence.
        subjects: of the schema.
    """

    number: int
    kind: str = ""
    text: str = ""
    problem: str = ""
    subjects: Sequence[str] = ()


def schema_id(kept: KeptBytes | None) -> int | None:
    """The id of the schema of a key or value; None: it does not begin with one."""
    if kept is None or kept.size < _HEADER or kept.data[0] != 0:
        return None
    return int.from_bytes(kept.data[1:_HEADER], "big")


@dataclass(slots=True)
class ValueDecoder:
    """Decodes the keys and values of a page.

    Attributes:
        known: their schemas, or why there is none.
        topic: only its own subjects are named; "": all are.
    """

    known: dict[int, RegisteredSchema | str] = field(
        default_factory=dict[int, "RegisteredSchema | str"]
    )
    topic: str = ""

    @classmethod
    async def of(
        cls, registry: SchemaRegistry | None, values: Iterable[KeptBytes | None], topic: str = ""
    ) -> ValueDecoder:
        """Ask for the schemas of these values, of a few of them at most."""
        if registry is None:
            return cls()
        numbers = list(dict.fromkeys(each for each in map(schema_id, values) if each is not None))

        async def ask(number: int) -> RegisteredSchema | str:
            try:
                return await registry.schema(number)
            except RegistryError as e:
                return str(e)

        found = await asyncio.gather(*map(ask, numbers[:MOST_IDS]))
        return cls(dict(zip(numbers, found, strict=False)), topic)

    def line(self, kept: KeptBytes | None) -> str:
        """The beginning of a value as JSON in one line; "": it cannot be decoded."""
        found = self._decoded(kept, None, _MOST_LINE)
        return "" if found is None else found.text

    def decoded(self, kept: KeptBytes | None) -> DecodedValue | None:
        """The value as indented JSON.

        None: it does not begin with a schema's id, or there is no registry. Takes up to some
        hundred milliseconds.
        """
        return self._decoded(kept, 2, _MOST_TEXT)

    def _decoded(
        self, kept: KeptBytes | None, indent: int | None, most: int
    ) -> DecodedValue | None:
        number = schema_id(kept)
        if kept is None or number is None or not self.known:
            return None
        schema = self.known.get(number, f"a page shows values of at most {MOST_IDS} schemas")
        if isinstance(schema, str):
            return DecodedValue(number, problem=schema)
        own = tuple(
            each for each in schema.subjects if not self.topic or each.startswith(f"{self.topic}-")
        )
        if not kept.whole:
            problem = f"only values of up to {len(kept.data):,} bytes are decoded"
            return DecodedValue(number, schema.kind, "", problem, own)
        try:
            text = _dumped(json_value(schema, kept.data), indent, most)
        except ClientError as e:
            return DecodedValue(number, schema.kind, "", str(e), own)
        return DecodedValue(number, schema.kind, text, "", own)


class JsonOfValues:
    """The JSON of whole values, for a search in a thread: it waits for the registry's answers."""

    def __init__(self, registry: SchemaRegistry) -> None:
        """Must be made in the event loop, which asks the registry."""
        self._registry, self._loop = registry, asyncio.get_running_loop()
        self._known: dict[int, RegisteredSchema | None] = {}

    def __call__(self, data: bytes) -> Any:
        """Raises ValueError: a value is neither JSON nor of a schema that can be read."""
        number = schema_id(KeptBytes(data, len(data)))
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


def _dumped(value: Any, indent: int | None, most: int) -> str:
    """JSON, cut where it gets long: names of fields can multiply the size of a value."""
    parts: list[str] = []
    size = 0
    try:
        for part in json.JSONEncoder(indent=indent, ensure_ascii=False).iterencode(value):
            parts.append(part)
            size += len(part)
            if size > most:
                return "".join(parts)[:most] + "…"
    except RecursionError:
        return "(nested too deeply to be shown)"
    return "".join(parts)
