"""Decodes Avro for people to read, whatever the schema and the bytes are.

Both may come from anybody, and what a library does with a recursive schema, or with an array of a
billion nulls that take no bytes, would end the program: hence a decoder of our own with bounds on
depth and on the number of values (https://avro.apache.org/docs/1.12.0/specification/). There is no
reader's schema: values are shown as they were written.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from math import isfinite, isnan
from typing import Any, cast

from quafka_client.errors import ClientError

MOST_VALUES = 100_000
_DEPTH = 64
_MOST_TYPES = 20_000
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_TIMES = {
    "timestamp-millis": 1_000, "timestamp-micros": 1, "local-timestamp-millis": 1_000,
    "local-timestamp-micros": 1,
}  # fmt: skip
_PRIMITIVES = frozenset(("null", "boolean", "int", "long", "float", "double", "bytes", "string"))
_NAMED = frozenset(("record", "error", "enum", "fixed"))


class AvroError(ClientError):
    """A schema or a value that cannot be decoded; the message is a sentence."""


@dataclass(slots=True, eq=False)
class AvroType:
    """A parsed type. A recursive one is among its own parts.

    Attributes:
        parts: of fields, of a union's branches, or the one of items or values.
        names: of fields, or an enum's symbols.
        size: of fixed.
        scale: of a decimal.
    """

    kind: str
    parts: list[AvroType] = field(default_factory=list["AvroType"])
    names: list[str] = field(default_factory=list[str])
    size: int = 0
    logical: str = ""
    scale: int = 0


def parse(schema: Any, known: dict[str, AvroType]) -> AvroType:
    """Parse a schema, which is JSON. `known`: named types by their full names; gets its own.

    Raises AvroError.
    """
    try:
        return _Parser(known).parse(schema, "", _DEPTH)
    except (KeyError, TypeError, ValueError, AttributeError) as e:
        raise AvroError(f"the Avro schema is not valid: {type(e).__name__} {e}") from e


class _Parser:
    def __init__(self, known: dict[str, AvroType]) -> None:
        self._known = known
        self._left = _MOST_TYPES

    def parse(self, schema: Any, space: str, depth: int) -> AvroType:
        self._left -= 1
        if self._left < 0 or depth < 0:
            raise AvroError("the Avro schema is too large or too deep")
        if isinstance(schema, str):
            return self._by_name(schema, space)
        if isinstance(schema, list):
            branches = cast("list[Any]", schema)
            return AvroType("union", [self.parse(each, space, depth - 1) for each in branches])
        fields: dict[str, Any] = schema
        kind: Any = fields["type"]
        if kind in _NAMED:
            return self._named(fields, str(kind), space, depth)
        if kind in ("array", "map"):
            inner = fields["items" if kind == "array" else "values"]
            return AvroType(kind, [self.parse(inner, space, depth - 1)])
        found = self.parse(kind, space, depth - 1)
        if found.kind not in _PRIMITIVES:
            return found
        return AvroType(found.kind, logical=str(fields.get("logicalType", "")),
                        scale=_scale(fields))  # fmt: skip

    def _by_name(self, name: str, space: str) -> AvroType:
        if name in _PRIMITIVES:
            return AvroType(name)
        for full in (f"{space}.{name}" if space and "." not in name else name, name):
            if full in self._known:
                return self._known[full]
        raise AvroError(f"the Avro schema names an unknown type {name[:100]!r}")

    def _named(self, fields: dict[str, Any], kind: str, space: str, depth: int) -> AvroType:
        name = str(fields["name"])
        if "." in name:
            space = name.rpartition(".")[0]
        else:
            space = str(fields.get("namespace", space) or "")
            name = f"{space}.{name}" if space else name
        found = self._known[name] = AvroType(
            "record" if kind == "error" else kind, logical=str(fields.get("logicalType", "")),
            scale=_scale(fields),
        )  # fmt: skip
        if kind == "enum":
            found.names = [str(each) for each in fields["symbols"]]
        elif kind == "fixed":
            found.size = int(fields["size"])
        else:
            for each in cast("list[dict[str, Any]]", fields["fields"]):
                found.names.append(str(each["name"]))
                found.parts.append(self.parse(each["type"], space, depth - 1))
        return found


def _scale(fields: Mapping[str, Any]) -> int:
    scale = fields.get("scale", 0)
    return scale if isinstance(scale, int) and 0 <= scale <= 1_000 else 0


def decode(data: bytes, kind: AvroType) -> Any:
    """A value as JSON types: bytes as hex, logical times as ISO 8601. Raises AvroError."""
    reader = _Reader(data)
    try:
        value = reader.value(kind, _DEPTH)
    except (IndexError, struct.error, UnicodeDecodeError) as e:
        raise AvroError(f"the value does not fit its Avro schema, near byte {reader.at}") from e
    if reader.at != len(data):
        raise AvroError(f"{len(data) - reader.at} bytes follow the Avro value")
    return value


class _Reader:
    """Reads a value. `at`: the next byte."""

    def __init__(self, data: bytes) -> None:
        self._data, self.at, self._left = data, 0, MOST_VALUES

    def value(self, kind: AvroType, depth: int) -> Any:
        self._left -= 1
        if self._left < 0:
            raise AvroError(f"the Avro value has more than {MOST_VALUES:,} parts")
        if depth < 0:
            raise AvroError(f"the Avro value is nested more than {_DEPTH} deep")
        if kind.kind == "record":
            return {
                name: self.value(part, depth - 1)
                for name, part in zip(kind.names, kind.parts, strict=True)
            }
        if kind.kind == "union":
            return self.value(kind.parts[self._index(len(kind.parts))], depth - 1)
        if kind.kind in ("array", "map"):
            return self._blocks(kind, depth)
        if kind.kind == "enum":
            return kind.names[self._index(len(kind.names))]
        return _SCALARS[kind.kind](self, kind)

    def _blocks(self, kind: AvroType, depth: int) -> Any:
        items: list[Any] = []
        entries: dict[str, Any] = {}
        while count := self.long():
            if count < 0:
                count = -count
                self.long()  # the block's size
            for _ in range(count):
                if kind.kind == "array":
                    items.append(self.value(kind.parts[0], depth - 1))
                else:
                    name = self._take(self.long()).decode()
                    entries[name] = self.value(kind.parts[0], depth - 1)
        return items if kind.kind == "array" else entries

    def _index(self, count: int) -> int:
        index = self.long()
        if not 0 <= index < count:
            raise IndexError
        return index

    def long(self) -> int:
        value = shift = 0
        while True:
            byte = self._data[self.at]
            self.at += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value >> 1 ^ -(value & 1)
            shift += 7
            if shift > 63:
                raise IndexError

    def _take(self, size: int) -> bytes:
        if not 0 <= size <= len(self._data) - self.at:
            raise IndexError
        self.at += size
        return self._data[self.at - size : self.at]

    def boolean(self, _kind: AvroType) -> bool:
        return self._take(1) != b"\0"

    def integer(self, kind: AvroType) -> Any:
        value = self.long()
        try:
            if kind.logical == "date":
                return (_EPOCH + timedelta(days=value)).date().isoformat()
            if kind.logical in _TIMES:
                at = _EPOCH + timedelta(microseconds=value * _TIMES[kind.logical])
                local = kind.logical.startswith("local")
                return (at.replace(tzinfo=None) if local else at).isoformat()
        except OverflowError:
            pass  # a time that has no calendar date is shown as its number
        return value

    def floating(self, kind: AvroType) -> float | str:
        """A number; NaN, Infinity and -Infinity are strings, because JSON has no such numbers."""
        code, size = ("<f", 4) if kind.kind == "float" else ("<d", 8)
        (value,) = struct.unpack(code, self._take(size))
        if isfinite(value):
            return float(value)
        return "NaN" if isnan(value) else "Infinity" if value > 0 else "-Infinity"

    def octets(self, kind: AvroType) -> str:
        data = self._take(kind.size if kind.kind == "fixed" else self.long())
        if kind.logical == "decimal" and len(data) <= _DEPTH:
            return _decimal(int.from_bytes(data, "big", signed=True), kind.scale)
        return f"0x{data.hex()}"

    def text(self, _kind: AvroType) -> str:
        return self._take(self.long()).decode()

    def null(self, _kind: AvroType) -> None:
        """Nulls take no bytes."""


def _decimal(unscaled: int, scale: int) -> str:
    digits = str(abs(unscaled)).rjust(scale + 1, "0")
    sign = "-" if unscaled < 0 else ""
    return f"{sign}{digits[: len(digits) - scale]}" + (f".{digits[-scale:]}" if scale else "")


_SCALARS: dict[str, Callable[[_Reader, AvroType], Any]] = {
    "null": _Reader.null, "boolean": _Reader.boolean, "int": _Reader.integer,
    "long": _Reader.integer, "float": _Reader.floating, "double": _Reader.floating,
    "bytes": _Reader.octets, "fixed": _Reader.octets, "string": _Reader.text,
}  # fmt: skip
