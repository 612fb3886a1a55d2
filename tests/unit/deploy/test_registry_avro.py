"""The Avro decoder, beside fastavro's writer, and with hostile schemas and values."""

from __future__ import annotations

import io
import json
from math import isinf
from typing import Any, cast

import fastavro
import pytest
from hypothesis import given
from hypothesis import strategies as st

from quafka_client.registry.avro import MOST_VALUES, AvroError, AvroType, decode, parse


def parsed(schema: Any) -> AvroType:
    return parse(schema, {})


def encoded(schema: Any, value: Any) -> bytes:
    out = io.BytesIO()
    library: Any = fastavro
    library.schemaless_writer(out, library.parse_schema(schema), value)
    return out.getvalue()


ORDER = {
    "type": "record", "name": "Order", "namespace": "shop",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "state", "type": {"type": "enum", "name": "State", "symbols": ["NEW", "PAID"]}},
        {"name": "before", "type": ["null", "State"]},
        {"name": "lines", "type": {"type": "array", "items": {
            "type": "record", "name": "Line", "fields": [{"name": "sku", "type": "string"}]}}},
        {"name": "more", "type": {"type": "map", "values": "double"}},
        {"name": "hash", "type": {"type": "fixed", "name": "Hash", "size": 2}},
        {"name": "raw", "type": "bytes"},
        {"name": "ok", "type": "boolean"},
        {"name": "parent", "type": ["null", "shop.Order"]},
    ],
}  # fmt: skip


def order(number: int, parent: Any = None) -> dict[str, Any]:
    return {
        "id": number, "state": "PAID", "before": "NEW", "lines": [{"sku": "a"}, {"sku": "ü"}],
        "more": {"x": 1.5}, "hash": b"\x01\x02", "raw": b"\xff", "ok": True, "parent": parent,
    }  # fmt: skip


def test_a_record_with_all_types() -> None:
    shown = {**order(-7), "hash": "0x0102", "raw": "0xff"}
    outer = {**shown, "id": 1 << 40, "parent": shown}
    value = encoded(json.loads(json.dumps(ORDER)), order(1 << 40, order(-7)))
    assert decode(value, parsed(ORDER)) == outer


@pytest.mark.parametrize(
    ("schema", "data", "shown"),
    [
        ({"type": "int", "logicalType": "date"}, b"\x02", "1970-01-02"),
        ({"type": "long", "logicalType": "timestamp-millis"}, b"\xd0\x0f",
         "1970-01-01T00:00:01+00:00"),
        ({"type": "long", "logicalType": "local-timestamp-micros"}, b"\x02",
         "1970-01-01T00:00:00.000001"),
        ({"type": "long", "logicalType": "timestamp-millis"}, b"\xfe" + b"\xff" * 8 + b"\x01",
         (1 << 63) - 1),
        ({"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}, b"\x02\xff",
         "-0.01"),
        ({"type": "fixed", "name": "f", "size": 2, "logicalType": "decimal", "scale": 1},
         b"\x04\xd2", "123.4"),
        ({"type": "bytes", "logicalType": "decimal", "scale": -1}, b"\x02\x05", "5"),
        ("float", b"\0\0\0?", 0.5),
        ({"type": "string", "logicalType": "uuid"}, b"\x02x", "x"),
    ],
)  # fmt: skip
def test_logical_types(schema: Any, data: bytes, shown: Any) -> None:
    assert decode(data, parsed(schema)) == shown


def test_types_of_other_schemas_are_known() -> None:
    known: dict[str, AvroType] = {}
    parse({"type": "enum", "name": "a.State", "symbols": ["X"]}, known)
    fields = [{"name": "s", "type": "State"}]
    found = parse({"type": "record", "name": "R", "namespace": "a", "fields": fields}, known)
    assert decode(b"\0", found) == {"s": "X"}


SCHEMAS = st.recursive(
    st.sampled_from(["null", "boolean", "int", "long", "double", "string", "bytes"]),
    lambda inner: (
        inner.map(lambda items: {"type": "array", "items": items})
        | inner.map(lambda values: {"type": "map", "values": values})
        | inner.filter(lambda each: each != "null" and not isinstance(each, list)).map(
            lambda each: ["null", each]
        )
    ),
    max_leaves=4,
)


def values_of(schema: Any) -> st.SearchStrategy[Any]:
    simple: dict[str, st.SearchStrategy[Any]] = {
        "null": st.none(),
        "boolean": st.booleans(),
        "int": st.integers(-(1 << 31), (1 << 31) - 1),
        "long": st.integers(-(1 << 63), (1 << 63) - 1),
        "double": st.floats(allow_nan=False),
        "string": st.text(max_size=5),
        "bytes": st.binary(max_size=5),
    }
    if isinstance(schema, str):
        return simple[schema]
    if isinstance(schema, list):
        return st.none() | values_of(cast("list[Any]", schema)[1])
    fields = cast("dict[str, Any]", schema)
    if fields["type"] == "array":
        return st.lists(values_of(fields["items"]), max_size=3)
    return st.dictionaries(st.text(max_size=3), values_of(fields["values"]), max_size=3)


def shown(value: Any) -> Any:
    if isinstance(value, bytes):
        return f"0x{value.hex()}"
    if isinstance(value, list):
        return [shown(each) for each in cast("list[Any]", value)]
    if isinstance(value, dict):
        return {name: shown(each) for name, each in cast("dict[str, Any]", value).items()}
    if isinstance(value, float) and isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    return value


@given(st.data())
def test_what_fastavro_writes_is_read(data: st.DataObject) -> None:
    schema = data.draw(SCHEMAS)
    value = data.draw(values_of(schema))
    assert decode(encoded(schema, value), parsed(schema)) == shown(value)


@given(st.binary(max_size=60))
def test_any_bytes_are_decoded_or_refused_with_a_sentence(data: bytes) -> None:
    try:
        found = decode(data, parsed(ORDER))
    except AvroError:
        return
    json.dumps(found)


LIST = {"type": "record", "name": "N", "fields": [{"name": "next", "type": ["null", "N"]}]}


@pytest.mark.parametrize(
    ("schema", "data", "sentence"),
    [
        (LIST, b"\x02" * 65_000 + b"\0", "nested more than 64 deep"),
        ({"type": "record", "name": "N", "fields": [{"name": "n", "type": "N"}]}, b"",
         "nested more than 64 deep"),
        ({"type": "array", "items": "null"}, b"\xfe" + b"\xff" * 8 + b"\x01", "more than 100,000"),
        ({"type": "array", "items": {"type": "fixed", "name": "f", "size": 0}},
         b"\x80\x80\x80\x80\x10\0", "more than 100,000"),
        ("string", b"\x01", "does not fit"),
        ("string", b"\x80\x80\x80\x80\x10x", "does not fit"),
        ("bytes", b"\x02", "does not fit"),
        ("long", b"\xff" * 20, "does not fit"),
        ("string", b"\x02\xff", "does not fit"),
        (["null", "int"], b"\x04", "does not fit"),
        (["null", "int"], b"\x01", "does not fit"),
        ("null", b"x", "1 bytes follow"),
        ({"type": "fixed", "name": "f", "size": 1 << 60}, b"", "does not fit"),
        ({"type": "fixed", "name": "f", "size": -1}, b"", "does not fit"),
    ],
)  # fmt: skip
def test_hostile_values_are_refused(schema: Any, data: bytes, sentence: str) -> None:
    with pytest.raises(AvroError, match=sentence):
        decode(data, parsed(schema))
    assert MOST_VALUES == 100_000


def deep(depth: int) -> Any:
    schema: Any = "int"
    for _ in range(depth):
        schema = {"type": "array", "items": schema}
    return schema


HOSTILE_SCHEMAS: list[Any] = [
        deep(5_000), ["int"] * 30_000, {"type": {"type": {"type": deep(70)}}}, "unknown", 7, None,
        {}, {"type": "record"}, {"type": "record", "name": "r", "fields": 7},
        {"type": "record", "name": "r", "fields": ["x"]}, {"type": "enum", "name": "e"},
        {"type": "fixed", "name": "f", "size": "x"}, {"type": "array"}, {"type": []} | {"items": 1},
        {"type": "map"}, [[["nope"]]],
]  # fmt: skip


@pytest.mark.parametrize("schema", HOSTILE_SCHEMAS)
def test_hostile_schemas_are_refused(schema: Any) -> None:
    try:
        found = parsed(schema)
    except AvroError:
        return
    with pytest.raises(AvroError):
        decode(b"", found)


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity"])
def test_numbers_that_json_does_not_have(number: str) -> None:
    for kind in ("double", "float"):
        assert decode(encoded(kind, float(number)), parsed(kind)) == number
