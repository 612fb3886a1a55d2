"""The rows of JSON lines, CSV and Avro container files, and the records that are made of them."""

from __future__ import annotations

import argparse
import csv
import io
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time
from importlib import import_module
from typing import Any, BinaryIO, cast

from quafka.commands.options import UsageError, timestamp
from quafka.commands.records import ConsoleRecord
from quafka_client.errors import ClientError
from quafka_client.json_path import value_at

Path = Sequence[str | int]
Encode = Callable[[Any], bytes]
"""The bytes of a value that is not null. Raises ENCODING_ERRORS."""
ENCODING_ERRORS = (
    ValueError, TypeError, LookupError, ArithmeticError, AttributeError, RecursionError,
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Row:
    """A value, and where it is, as a person finds it."""

    place: str
    value: Any


def json_rows(file: BinaryIO, name: str) -> Iterator[Row]:
    """A JSON value per line; empty lines are left out. Raises ClientError."""
    for number, line in enumerate(file, 1):
        if not line.strip():
            continue
        place = f"{name}, line {number}"
        try:
            yield Row(place, json.loads(line))
        except (ValueError, RecursionError) as e:
            raise ClientError(f"{place}: not JSON: {e}") from e


def csv_rows(file: BinaryIO, name: str, delimiter: str, null: str | None) -> Iterator[Row]:
    """The rows below the headings, as objects of strings; `null`: the text of null.

    Raises ClientError.
    """
    lines = csv.reader(
        io.TextIOWrapper(file, "utf-8-sig", newline=""), delimiter=delimiter, strict=True
    )
    try:
        headings = next(lines, None)
        if headings is None:
            return
        if len(set(headings)) < len(headings):
            raise ClientError(f"{name}: two columns have the same heading")
        for cells in lines:
            place = f"{name}, line {lines.line_num}"
            if not cells:
                continue
            if len(cells) != len(headings):
                raise ClientError(f"{place}: {len(cells)} cells, but {len(headings)} headings")
            values = (None if cell == null else cell for cell in cells)
            yield Row(place, dict(zip(headings, values, strict=True)))
    except (csv.Error, UnicodeDecodeError) as e:
        raise ClientError(f"{name}, line {lines.line_num + 1}: not CSV in UTF-8: {e}") from e


def avro_rows(file: BinaryIO, name: str) -> Iterator[Row]:
    """The values of an object container file, as its own schema has them. Raises ClientError."""
    fastavro = avro_library()
    try:
        for number, value in enumerate(_avro_values(fastavro.block_reader(file)), 1):
            yield Row(f"{name}, record {number}", value)
    # The codecs, and what converts times and decimals, have errors of their own.
    except Exception as e:
        why = str(e) or type(e).__name__
        raise ClientError(f"{name} is not an Avro container file that can be read: {why}") from e


def _avro_values(blocks: Any) -> Iterator[Any]:
    schema = blocks.writer_schema
    if not _is_recursive(schema, frozenset()):
        for block in blocks:
            yield from block
        return
    # The compiled reader has no limit of depth: a value of a recursive schema can end the process.
    read: Any = import_module("fastavro._read_py").schemaless_reader
    for block in blocks:
        for _ in range(block.num_records):
            yield read(block.bytes_, schema, None)


def _is_recursive(schema: Any, around: frozenset[str]) -> bool:
    """Whether a type contains itself; `around`: the names of the types around this one."""
    if isinstance(schema, str):
        return schema in around
    if isinstance(schema, list):
        return any(_is_recursive(each, around) for each in cast("list[Any]", schema))
    if not isinstance(schema, dict):
        return False
    fields = cast("dict[str, Any]", schema)
    inside = around | {str(fields["name"])} if "name" in fields else around
    parts = [fields.get("items"), fields.get("values"), fields.get("type")]
    parts += [each["type"] for each in fields.get("fields", [])]
    return any(_is_recursive(each, inside) for each in parts)


def avro_library() -> Any:
    """fastavro. Raises ClientError: it is not installed."""
    try:
        import fastavro
    except ModuleNotFoundError as e:
        raise ClientError(
            "Avro needs fastavro, which is not installed; pip install 'quafka[avro]'"
        ) from e
    return fastavro


# --- records --------------------------------------------------------------------------------------


def plain_bytes(value: Any) -> bytes:
    """A string or bytes as they are, anything else as JSON in one line."""
    if isinstance(value, bytes):
        return value
    return value.encode() if isinstance(value, str) else json_bytes(value)


def json_bytes(value: Any) -> bytes:
    """JSON in one line; of Avro: bytes as hex and times as ISO 8601, as `consume` shows them."""
    return json.dumps(value, ensure_ascii=False, default=_shown).encode()


def _shown(value: Any) -> str:
    if isinstance(value, bytes):
        return f"0x{value.hex()}"
    return value.isoformat() if isinstance(value, date | time) else str(value)


@dataclass(frozen=True, slots=True)
class Columns:
    """Which fields of a row are what of a record. None: the record has no such thing.

    `value`: None: the whole row. `encode_key`, `encode_value`: None: as they are, the whole row as
    JSON.
    """

    topic: str
    constant_key: bytes | None
    key: Path | None
    value: Path | None
    partition: Path | None
    timestamp: Path | None
    headers: Sequence[tuple[str, Path]]
    encode_key: Encode | None
    encode_value: Encode | None

    @classmethod
    def of(
        cls, options: argparse.Namespace, encode_key: Encode | None, encode_value: Encode | None
    ) -> Columns:
        """Those of a command's flags."""
        constant = None if options.key is None else options.key.encode()
        return cls(
            options.topic, constant, options.key_from, options.value_from, options.partition_from,
            options.timestamp_from, options.header_from, encode_key, encode_value,
        )  # fmt: skip

    def record(self, row: Row) -> ConsoleRecord:
        """The record of a row. Raises ClientError, which names the place and the field."""
        key, value = self.constant_key, row.value
        if self.key is not None:
            key = _encoded(row, "key", _field(row, self.key), self.encode_key or plain_bytes)
        if self.value is not None:
            value = _field(row, self.value)
        as_it_is = json_bytes if self.value is None else plain_bytes
        return ConsoleRecord(
            self.topic,
            -1 if self.partition is None else _partition(row, _field(row, self.partition)),
            timestamp=-1 if self.timestamp is None else _ms(row, _field(row, self.timestamp)),
            key=key,
            value=_encoded(row, "value", value, self.encode_value or as_it_is),
            headers=[
                (name, None if found is None else plain_bytes(found))
                for name, path in self.headers
                for found in _found(row.value, path)
            ],
        )


def _found(value: Any, path: Path) -> list[Any]:
    try:
        return [value_at(value, path)]
    except LookupError:
        return []


def _field(row: Row, path: Path) -> Any:
    for found in _found(row.value, path):
        return found
    known, value = "", row.value
    if isinstance(value, dict):
        names = [str(name) for name in cast("dict[Any, Any]", value)]
        known = f"; its fields are {', '.join(names[:20])}"
    raise ClientError(f"{row.place}: there is no field {_path_text(path)!r}{known}")


def _path_text(path: Path) -> str:
    steps = (f"[{step}]" if isinstance(step, int) else f".{step}" for step in path)
    return "".join(steps).removeprefix(".") or "$"


def _encoded(row: Row, what: str, value: Any, encode: Encode) -> bytes | None:
    if value is None:
        return None
    try:
        return encode(value)
    except ENCODING_ERRORS as e:
        raise ClientError(f"{row.place}: the {what} cannot be encoded: {e}") from e


def _partition(row: Row, value: Any) -> int:
    text = str(value)
    if not (text.isascii() and text.isdecimal() and len(text) < 10):
        raise ClientError(f"{row.place}: {text[:100]!r} is not a partition")
    return int(text)


def _ms(row: Row, value: Any) -> int:
    if isinstance(value, datetime):
        zoned = value if value.tzinfo else value.replace(tzinfo=UTC)
        return round(zoned.timestamp() * 1000)
    try:
        found = timestamp(str(value))
    except argparse.ArgumentTypeError as e:
        raise ClientError(f"{row.place}: {e}") from e
    if found < 0:
        raise ClientError(f"{row.place}: the timestamp is before 1970")
    return found


def check_delimiter(text: str | None) -> str:
    """The delimiter of CSV. Raises UsageError."""
    found = "," if text is None else "\t" if text == "\\t" else text
    if len(found) != 1 or found in '"\r\n':
        raise UsageError(f"--delimiter: {text!r} is not one character, such as ; or \\t")
    return found
