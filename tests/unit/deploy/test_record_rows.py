"""Records of `quafka produce` from rows: JSON lines, CSV, Avro; and their encoding by schemas."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Any

import fastavro
import pytest

from quafka.cli import main
from quafka.commands.encoding import encoder
from quafka.commands.options import UsageError, named_path, path
from quafka.commands.registry import RegistrySchemas
from quafka.commands.rows import (
    Columns,
    Row,
    avro_rows,
    check_delimiter,
    csv_rows,
    json_rows,
)
from quafka_client.errors import ClientError
from quafka_client.registry.client import RegisteredSchema, SchemaRegistry
from quafka_client.registry.values import json_value

ORDER = {
    "type": "record",
    "name": "order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "price", "type": ["null", "double"], "default": None},
        {"name": "paid", "type": "boolean", "default": False},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}, "default": 0},
        {"name": "tags", "type": {"type": "array", "items": "string"}, "default": []},
        {"name": "raw", "type": "bytes", "default": ""},
    ],
}


def columns(
    key: str | None = None,
    value: str | None = None,
    partition: str | None = None,
    timestamp: str | None = None,
    headers: Sequence[str] = (),
    constant_key: bytes | None = None,
) -> Columns:
    paths = [None if each is None else path(each) for each in (key, value, partition, timestamp)]
    named = [named_path(each) for each in headers]
    return Columns("t", constant_key, paths[0], paths[1], paths[2], paths[3], named, None, None)


def test_json_lines() -> None:
    rows = list(json_rows(io.BytesIO(b'{"a": 1}\n\n[2]\n'), "x"))
    assert rows == [Row("x, line 1", {"a": 1}), Row("x, line 3", [2])]
    with pytest.raises(ClientError, match="x, line 2: not JSON"):
        list(json_rows(io.BytesIO(b"1\n{\n"), "x"))


def test_csv() -> None:
    text = '\ufeffid;"a name"\r\n1;"x;\ny"\n\n2;-\n'
    rows = list(csv_rows(io.BytesIO(text.encode()), "x", ";", "-"))
    assert [row.value for row in rows] == [
        {"id": "1", "a name": "x;\ny"}, {"id": "2", "a name": None},
    ]  # fmt: skip
    assert [row.place for row in rows] == ["x, line 3", "x, line 5"]
    assert list(csv_rows(io.BytesIO(b""), "x", ",", None)) == []


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (b"a,b\n1\n", "x, line 2: 1 cells, but 2 headings"),
        (b"a,a\n1,2\n", "two columns have the same heading"),
        (b'a\n"1\n', "not CSV in UTF-8: unexpected end of data"),
        (b"a\n\xff\n", "not CSV in UTF-8"),
    ],
)
def test_what_is_not_csv(text: bytes, sentence: str) -> None:
    with pytest.raises(ClientError, match=sentence):
        list(csv_rows(io.BytesIO(text), "x", ",", None))


def test_delimiters() -> None:
    assert [check_delimiter(each) for each in (None, ";", "\\t", "\t")] == [",", ";", "\t", "\t"]
    for wrong in ("", ";;", '"'):
        with pytest.raises(UsageError, match="--delimiter"):
            check_delimiter(wrong)


@pytest.mark.parametrize("codec", ["null", "deflate"])
def test_avro_container_files(codec: str) -> None:
    file = io.BytesIO()
    at = datetime(2026, 1, 1, tzinfo=UTC)
    fastavro.writer(file, ORDER, [{"id": 1, "at": at, "raw": b"\xff"}], codec=codec)
    file.seek(0)
    (row,) = avro_rows(file, "x")
    record = columns(key="id", timestamp="at").record(row)
    assert (row.place, record.key, record.timestamp) == ("x, record 1", b"1", 1_767_225_600_000)
    assert json.loads(record.value or b"") == {
        "id": 1, "price": None, "paid": False, "at": "2026-01-01T00:00:00+00:00", "tags": [],
        "raw": "0xff",
    }  # fmt: skip
    with pytest.raises(ClientError, match="x is not an Avro container file"):
        list(avro_rows(io.BytesIO(b"no"), "x"))
    with pytest.raises(ClientError, match="x is not an Avro container file"):
        list(avro_rows(io.BytesIO(file.getvalue()[:-20]), "x"))


LIST = {"type": "record", "name": "L", "fields": [{"name": "next", "type": ["null", "L"]}]}


def container(schema: dict[str, Any], data: bytes, codec: bytes = b"null") -> io.BytesIO:
    """A file with one block, of one value."""
    header = {"avro.schema": json.dumps(schema).encode(), "avro.codec": codec}
    file = io.BytesIO(b"Obj\x01")
    file.seek(0, io.SEEK_END)
    fastavro.schemaless_writer(file, {"type": "map", "values": "bytes"}, header)
    file.write(b"S" * 16)
    fastavro.schemaless_writer(file, "long", 1)
    fastavro.schemaless_writer(file, "bytes", data)
    file.write(b"S" * 16)
    file.seek(0)
    return file


def test_recursive_avro_has_a_limit_of_depth() -> None:
    (row,) = avro_rows(container(LIST, b"\x02\x02\x00"), "x")
    assert row.value == {"next": {"next": {"next": None}}}
    endless = {"type": "record", "name": "A", "fields": [{"name": "a", "type": "A"}]}
    for schema, data in ((LIST, b"\x02" * 100_000), (endless, b"")):
        with pytest.raises(ClientError, match="recursion"):
            list(avro_rows(container(schema, data), "x"))
    deep: dict[str, Any] = {}
    for _ in range(100_000):
        deep = {"a": deep}
    with pytest.raises(ClientError, match="line 1: the value cannot be encoded"):
        columns().record(Row("line 1", deep))


@pytest.mark.parametrize(
    ("schema", "data", "codec"),
    [
        ({"type": "int", "logicalType": "date"}, b"\xfe\xff\xff\xff\x0f", b"null"),
        ({"type": "long", "logicalType": "timestamp-millis"}, b"\xfe" + b"\xff" * 8, b"null"),
        ({"type": "long"}, b"\xff\xff", b"deflate"),
        ({"type": "long"}, b"\xff\xff", b"bzip2"),
    ],
)
def test_avro_that_lies(schema: dict[str, Any], data: bytes, codec: bytes) -> None:
    with pytest.raises(ClientError, match=r"x is not an Avro .* that can be read: .+"):
        list(avro_rows(container(schema, data, codec), "x"))


def test_what_a_record_is_made_of() -> None:
    row = Row(
        "x", {"id": 7, "to": {"part": "1"}, "at": "2026-01-01T00:00:00Z", "v": None, "h": "é"}
    )
    chosen = columns(
        key="id", value="v", partition="to.part", timestamp="at",
        headers=["h=h", "all=to", "none=v", "missing=x.y"],
    )  # fmt: skip
    record = chosen.record(row)
    assert (record.key, record.value, record.partition) == (b"7", None, 1), "a tombstone"
    assert record.timestamp == 1_767_225_600_000
    assert record.headers == [("h", "é".encode()), ("all", b'{"part": "1"}'), ("none", None)]
    assert columns(value="h").record(row).value == "é".encode()
    assert columns().record(Row("x", "text")).value == b'"text"', "a whole row is JSON"
    assert columns(constant_key=b"k").record(row).key == b"k"


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"key": "nr"}, "x: there is no field 'nr'; its fields are id, at"),
        ({"key": "id.a[0]"}, r"x: there is no field 'id.a\[0\]'"),
        ({"partition": "id"}, "x: '-1' is not a partition"),
        ({"timestamp": "at"}, "x: 'soon' is not a time"),
        ({"timestamp": "id"}, "x: the timestamp is before 1970"),
    ],
)
def test_a_row_that_is_no_record(fields: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ClientError, match=sentence):
        columns(**fields).record(Row("x", {"id": -1, "at": "soon"}))


# --- schemas --------------------------------------------------------------------------------------


class Schemas(RegistrySchemas):
    """Schemas that need no registry."""

    def __init__(self, **kinds: str) -> None:
        super().__init__(SchemaRegistry("http://127.0.0.1"))
        self._texts = kinds

    def schema(self, number: int) -> RegisteredSchema:
        kind, text = list(self._texts.items())[number - 1]
        return RegisteredSchema(number, kind, text)


@pytest.fixture
def schemas() -> Iterator[Schemas]:
    with Schemas(AVRO=json.dumps(ORDER), JSON="{}", PROTOBUF="x", OTHER="{") as found:
        yield found


@pytest.mark.parametrize("of_strings", [True, False])
def test_what_is_encoded_is_decoded_again(schemas: Schemas, of_strings: bool) -> None:
    """Strings of CSV become numbers; what `consume` shows of times and bytes becomes these."""
    given: dict[str, Any] = {"id": 7, "price": 1.5, "paid": True}
    if of_strings:
        given = {"id": "7", "price": "1.5", "paid": "true"}
    given |= {"at": "2026-01-01T00:00:00Z", "tags": ["7", "x"], "raw": "0x0aff"}
    data = encoder(schemas, 1, of_strings=of_strings)(given)
    assert data[:5] == b"\0\0\0\0\1"
    shown = json_value(schemas.schema(1), data)
    assert shown == {
        "id": 7, "price": 1.5, "paid": True, "at": "2026-01-01T00:00:00+00:00", "tags": ["7", "x"],
        "raw": "0x0aff",
    }  # fmt: skip
    assert encoder(schemas, 1, of_strings=False)(shown) == data
    endless = encoder(schemas, 1, of_strings=of_strings)(given | {"price": "-Infinity"})
    assert json_value(schemas.schema(1), endless)["price"] == "-Infinity"
    if of_strings:
        in_ms = encoder(schemas, 1, of_strings=True)(given | {"at": "1767225600000"})
        assert in_ms == data


def test_json_schemas_and_others(schemas: Schemas) -> None:
    assert encoder(schemas, 2, of_strings=False)({"a": 1}) == b'\0\0\0\0\2{"a": 1}'
    with pytest.raises(UsageError, match="PROTOBUF; values are encoded by AVRO and JSON schemas"):
        encoder(schemas, 3, of_strings=False)


@pytest.mark.parametrize(
    ("value", "why"),
    [
        ({"id": "x"}, "invalid literal for int"),
        ({}, "Field id is specified in the schema but missing"),
        ({"id": "1", "other": "2"}, "more fields than the schema specifies: other"),
        ({"id": "1", "at": "soon"}, "Invalid isoformat string: 'soon'"),
        ({"id": str(1 << 70)}, "cannot be encoded"),
        ([1], "cannot be encoded"),
    ],
)
def test_what_does_not_fit_the_schema(schemas: Schemas, value: Any, why: str) -> None:
    encode = encoder(schemas, 1, of_strings=True)
    made = Columns("t", None, None, None, None, None, [], None, encode)
    with pytest.raises(ClientError, match=why) as failed:
        made.record(Row("x, line 2", value))
    assert str(failed.value).startswith("x, line 2: the value cannot be encoded: ")


@pytest.mark.parametrize(
    ("command", "sentence"),
    [
        ("--key-from id", "--key-from needs fields: --input jsonl, csv, avro"),
        ("--input json --header-from a=b", "--header-from needs fields"),
        ("--input csv --key-from id -k x", "--key and --key-from cannot be combined"),
        ("--input csv --partition-from id -p 1", "--partition and --partition-from cannot"),
        ("--input jsonl --null-marker x", "--null-marker is for lines and csv; jsonl has null"),
        ("--value-schema 1", "a schema needs the URL of its registry: --registry"),
        ("--key-schema 1 --registry http://127.0.0.1", "--key-schema needs --input"),
        ("--input csv --delimiter ;;", "--delimiter: ';;' is not one character"),
    ],
)
def test_flags_that_do_not_go_together(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, command: str, sentence: str
) -> None:
    monkeypatch.delenv("QUAFKA_REGISTRY", raising=False)
    assert main(["produce", "-t", "t", *command.split()]) == 2
    assert sentence in capsys.readouterr().err
