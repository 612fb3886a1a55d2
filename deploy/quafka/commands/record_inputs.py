"""The records that `quafka produce` writes, from lines, whole files, JSON, CSV or Avro."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import BinaryIO

from quafka.commands.options import UsageError, registry_url
from quafka.commands.records import ConsoleRecord, from_line
from quafka.commands.rows import (
    ENCODING_ERRORS,
    Columns,
    Encode,
    Row,
    avro_rows,
    check_delimiter,
    csv_rows,
    json_rows,
)
from quafka.sources import REGISTRY_VARIABLE
from quafka_client.errors import ClientError

_ROWS = ("jsonl", "csv", "avro")
_OF_ROWS = ("key_from", "value_from", "partition_from", "timestamp_from", "header_from")


def check_flags(options: argparse.Namespace) -> None:
    """Raises UsageError: flags that cannot be combined."""
    if options.lines and not options.files:
        raise UsageError("--lines needs files; stdin is always read by lines")
    if options.key is not None and options.key_separator is not None:
        raise UsageError("--key and --key-separator cannot be combined; a record has one key")
    if options.key_separator == "":
        raise UsageError("--key-separator is empty")
    if options.key is not None and options.key_from is not None:
        raise UsageError("--key and --key-from cannot be combined; a record has one key")
    if options.partition >= 0 and options.partition_from is not None:
        raise UsageError("--partition and --partition-from cannot be combined")
    rows = options.input in _ROWS
    for flag in _OF_ROWS:
        if not rows and getattr(options, flag):
            name = flag.replace("_", "-")
            raise UsageError(f"--{name} needs fields: --input {', '.join(_ROWS)}")
    if options.null_marker is not None and options.input not in ("lines", "csv"):
        raise UsageError(f"--null-marker is for lines and csv; {options.input} has null")
    if options.key_schema is not None and options.input not in (*_ROWS, "json"):
        raise UsageError(f"--key-schema needs --input {', '.join(_ROWS)} or json")


def encoders(options: argparse.Namespace, stack: ExitStack) -> tuple[Encode | None, Encode | None]:
    """Those of key and value, by the schemas of the flags. Raises UsageError and ClientError."""
    url = registry_url(options)
    numbers = options.key_schema, options.value_schema
    if numbers == (None, None):
        return None, None
    if url is None:
        raise UsageError(
            f"a schema needs the URL of its registry: --registry, or ${REGISTRY_VARIABLE}"
        )
    from quafka.commands.encoding import encoder
    from quafka.commands.registry import schemas_at

    schemas = stack.enter_context(schemas_at(url, options))
    strings = options.input == "csv"
    key, value = (
        None if number is None else encoder(schemas, number, of_strings=strings)
        for number in numbers
    )
    return key, value


def records_of(
    options: argparse.Namespace, encode_key: Encode | None, encode_value: Encode | None
) -> Iterator[ConsoleRecord]:
    """The records, read one by one. Raises UsageError now, ClientError while iterating."""
    if options.input in _ROWS:
        columns = Columns.of(options, encode_key, encode_value)
        delimiter = check_delimiter(options.delimiter)
        return (
            columns.record(row)
            for file, name in _sources(options)
            for row in _rows(file, name, options, delimiter)
        )
    found = _lines(sys.stdin.buffer, "stdin", options) if not options.files else _of_files(options)
    if encode_key is None and encode_value is None:
        return found
    return (_re_encoded(record, encode_key, encode_value) for record in found)


def _re_encoded(
    record: ConsoleRecord, encode_key: Encode | None, encode_value: Encode | None
) -> ConsoleRecord:
    """A record whose key and value are JSON, encoded."""

    def encoded(what: str, data: bytes | None, encode: Encode | None) -> bytes | None:
        if data is None or encode is None:
            return data
        try:
            return encode(json.loads(data))
        except ENCODING_ERRORS as e:
            raise ClientError(f"the {what} {data[:60]!r} cannot be encoded: {e}") from e

    return replace(
        record, key=encoded("key", record.key, encode_key),
        value=encoded("value", record.value, encode_value),
    )  # fmt: skip


def _rows(file: BinaryIO, name: str, options: argparse.Namespace, delimiter: str) -> Iterator[Row]:
    if options.input == "csv":
        return csv_rows(file, name, delimiter, options.null_marker)
    return json_rows(file, name) if options.input == "jsonl" else avro_rows(file, name)


def _sources(options: argparse.Namespace) -> Iterator[tuple[BinaryIO, str]]:
    if not options.files:
        yield sys.stdin.buffer, "stdin"
    for name in options.files:
        with ExitStack() as stack:
            try:
                file = stack.enter_context(Path(name).open("rb"))
            except OSError as e:
                raise ClientError(f"cannot read {name}: {e.strerror}") from e
            yield file, name


def _of_files(options: argparse.Namespace) -> Iterator[ConsoleRecord]:
    for file, name in _sources(options):
        try:
            if options.lines or options.input == "json":
                yield from _lines(file, name, options)
            else:
                yield _record(file.read(), options)
        except OSError as e:
            raise ClientError(f"cannot read {name}: {e.strerror}") from e


def _lines(file: BinaryIO, name: str, options: argparse.Namespace) -> Iterator[ConsoleRecord]:
    for number, line in enumerate(file, 1):
        if options.input == "lines":
            yield _record(line.removesuffix(b"\n"), options)
            continue
        try:
            yield from_line(line, options.topic)
        except ValueError as e:
            raise ClientError(f"{name}, line {number}: {e}") from e


def _record(data: bytes, options: argparse.Namespace) -> ConsoleRecord:
    key: bytes | None = options.key.encode() if options.key is not None else None
    if options.key_separator is not None:
        before, separator, after = data.partition(options.key_separator.encode())
        if separator:
            key, data = before, after
    null = None if options.null_marker is None else options.null_marker.encode()
    return ConsoleRecord(
        options.topic, key=None if key == null else key, value=None if data == null else data
    )
