"""Encodes values by the schemas of a registry, in Confluent's wire format."""

from __future__ import annotations

import io
import json
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any, cast

from quafka.commands.options import UsageError
from quafka.commands.registry import RegistrySchemas
from quafka.commands.rows import Encode, avro_library, json_bytes
from quafka_client.registry.client import AVRO, JSON, RegisteredSchema
from quafka_client.registry.values import wire_header


def encoder(schemas: RegistrySchemas, number: int, *, of_strings: bool) -> Encode:
    """What encodes by the schema of an id; `of_strings`: values are objects of strings, from CSV.

    Raises:
        ClientError: there is no such schema. UsageError: it is of a kind that is not encoded.
    """
    schema = schemas.schema(number)
    head = wire_header(number)
    if schema.kind == JSON:
        return lambda value: head + json_bytes(value)
    if schema.kind != AVRO:
        raise UsageError(
            f"schema {number} is of kind {schema.kind}; values are encoded by AVRO and JSON schemas"
        )
    write = _avro_writer(schema, of_strings=of_strings)

    def encode(value: Any) -> bytes:
        out = io.BytesIO(head)
        out.seek(0, io.SEEK_END)
        write(out, value)
        return out.getvalue()

    return encode


def _avro_writer(
    schema: RegisteredSchema, *, of_strings: bool
) -> Callable[[io.BytesIO, Any], None]:
    fastavro = avro_library()
    named: dict[str, Any] = {}
    try:
        for _, text in schema.references:
            fastavro.parse_schema(_json(text), named_schemas=named)
        parsed: Any = fastavro.parse_schema(_json(schema.text), named_schemas=named)
    except (ValueError, TypeError, LookupError, fastavro.schema.SchemaParseException) as e:
        raise UsageError(f"schema {schema.number} is not an Avro schema: {e}") from e

    typing = _Typing(named, of_strings)

    def write(out: io.BytesIO, value: Any) -> None:
        typed = typing.typed(value, parsed)
        try:
            fastavro.schemaless_writer(out, parsed, typed, strict_allow_default=True)
        except struct.error as e:
            raise ValueError(e) from e

    return write


def _json(text: str) -> Any:
    """A schema's JSON; the name of a primitive type may stand without quotes."""
    try:
        return json.loads(text)
    except ValueError:
        return text.strip()


@dataclass(frozen=True, slots=True)
class _Typing:
    """Turns what JSON and CSV write as strings into what the schema wants.

    `named`: the types of the schema; `of_strings`: numbers and booleans are strings as well.
    """

    named: Mapping[str, Any]
    of_strings: bool

    def typed(self, value: Any, schema: Any) -> Any:
        """The value. Raises ValueError, ArithmeticError, LookupError: a string is of another type.

        A union of several types besides null is left to the library.
        """
        if isinstance(schema, str) and schema in self.named:
            schema = self.named[schema]
        if isinstance(schema, list):
            branches: list[Any] = [each for each in cast("list[Any]", schema) if each != "null"]
            return value if len(branches) != 1 or value is None else self.typed(value, branches[0])
        kind, logical = schema, ""
        if isinstance(schema, dict):
            fields = cast("dict[str, Any]", schema)
            kind, logical = fields["type"], str(fields.get("logicalType", ""))
            if kind in _INNER:
                return _INNER[kind](self, value, fields)
        return self._of_text(value, str(kind), logical) if isinstance(value, str) else value

    def _of_text(self, text: str, kind: str, logical: str) -> Any:
        convert = _LOGICAL.get(logical)
        if convert is not None and not (self.of_strings and text.isdecimal()):
            return convert(text)
        if kind == "bytes":
            return bytes.fromhex(text[2:]) if text.startswith("0x") else text.encode()
        if kind in ("float", "double") and text in _NOT_FINITE:
            return float(text)
        return _NUMBERS[kind](text) if self.of_strings and kind in _NUMBERS else text

    def record(self, value: Any, schema: dict[str, Any]) -> Any:
        """The fields of an object."""
        if not isinstance(value, dict):
            return value
        types = {each["name"]: each["type"] for each in schema["fields"]}
        return {
            name: self.typed(each, types[name]) if name in types else each
            for name, each in cast("dict[str, Any]", value).items()
        }

    def array(self, value: Any, schema: dict[str, Any]) -> Any:
        """The items of a list."""
        if not isinstance(value, list):
            return value
        return [self.typed(each, schema["items"]) for each in cast("list[Any]", value)]

    def map(self, value: Any, schema: dict[str, Any]) -> Any:
        """The values of an object."""
        if not isinstance(value, dict):
            return value
        values = cast("dict[str, Any]", value).items()
        return {name: self.typed(each, schema["values"]) for name, each in values}


def _utc(text: str) -> datetime:
    found = datetime.fromisoformat(text)
    return found if found.tzinfo else found.replace(tzinfo=UTC)


_NOT_FINITE = frozenset(("NaN", "Infinity", "-Infinity"))
_NUMBERS: dict[str, Callable[[str], Any]] = {
    "int": int, "long": int, "float": float, "double": float,
    "boolean": {"true": True, "false": False}.__getitem__,
}  # fmt: skip
_LOGICAL: dict[str, Callable[[str], Any]] = {
    "timestamp-millis": _utc, "timestamp-micros": _utc, "date": date.fromisoformat,
    "local-timestamp-millis": datetime.fromisoformat,
    "local-timestamp-micros": datetime.fromisoformat, "decimal": Decimal,
}  # fmt: skip
_INNER: dict[Any, Callable[[_Typing, Any, dict[str, Any]], Any]] = {
    "record": _Typing.record, "array": _Typing.array, "map": _Typing.map,
}  # fmt: skip
