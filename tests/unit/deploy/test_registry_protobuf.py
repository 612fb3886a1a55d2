"""The Protobuf decoder: values that Google's library writes, and hostile schemas and values."""

from __future__ import annotations

import base64
from typing import Any

import pytest
from google.protobuf import (  # type: ignore[import-untyped]
    descriptor_pb2,
    descriptor_pool,
    message_factory,
)
from hypothesis import given
from hypothesis import strategies as st

from quafka_client.registry.protobuf import ProtobufError, ProtobufFile, decode, parse

F: Any = descriptor_pb2.FieldDescriptorProto


def file(name: str, *messages: Any, imports: tuple[str, ...] = (), package: str = "shop") -> Any:
    found: Any = descriptor_pb2.FileDescriptorProto()
    found.name, found.package, found.syntax = name, package, "proto3"
    found.dependency.extend(imports)
    found.message_type.extend(messages)
    return found


def message(name: str, *fields: Any, nested: tuple[Any, ...] = ()) -> Any:
    found: Any = descriptor_pb2.DescriptorProto()
    found.name = name
    found.field.extend(fields)
    found.nested_type.extend(nested)
    return found


def a_field(name: str, number: int, kind: int, of: str = "", *, repeated: bool = False) -> Any:
    label = F.LABEL_REPEATED if repeated else F.LABEL_OPTIONAL
    return F(name=name, number=number, type=kind, type_name=of or None, label=label)


def text(descriptor: Any) -> str:
    return base64.b64encode(descriptor.SerializeToString()).decode()


def entry() -> Any:
    found = message(
        "MoreEntry", a_field("key", 1, F.TYPE_STRING), a_field("value", 2, F.TYPE_BYTES)
    )
    found.options.map_entry = True
    return found


STATE: Any = descriptor_pb2.EnumDescriptorProto(name="State")
STATE.value.add(name="NEW", number=0)
STATE.value.add(name="PAID", number=1)
ORDER = message(
    "Order",
    a_field("id", 1, F.TYPE_INT64),
    a_field("state", 2, F.TYPE_ENUM, ".shop.State"),
    a_field("tags", 3, F.TYPE_STRING, repeated=True),
    a_field("parent", 4, F.TYPE_MESSAGE, ".shop.Order"),
    a_field("more", 5, F.TYPE_MESSAGE, ".shop.Order.MoreEntry", repeated=True),
    a_field("at", 6, F.TYPE_MESSAGE, ".google.protobuf.Timestamp"),
    a_field("ratio", 7, F.TYPE_DOUBLE),
    a_field("ok", 8, F.TYPE_BOOL),
    a_field("lines", 9, F.TYPE_MESSAGE, ".shop.Order.Line", repeated=True),
    nested=(entry(), message("Line", a_field("sku", 1, F.TYPE_STRING))),
)
TIMES = "google/protobuf/timestamp.proto"
SHOP = file("x.proto", message("Other"), ORDER, imports=(TIMES,))
SHOP.enum_type.append(STATE)


@pytest.fixture(scope="module")
def shop() -> ProtobufFile:
    return parse(text(SHOP), {})


def order_class() -> Any:
    pool: Any = descriptor_pool.DescriptorPool()
    for name in (TIMES,):
        known: Any = descriptor_pb2.FileDescriptorProto()
        descriptor_pool.Default().FindFileByName(name).CopyToProto(known)
        pool.Add(known)
    pool.Add(SHOP)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("shop.Order"))


def test_a_message_with_all_kinds_of_fields(shop: ProtobufFile) -> None:
    made = order_class()(id=1 << 40, state=1, tags=["a", "ü"], ratio=0.5, ok=True)
    made.parent.id = -7
    made.parent.state = 9
    made.more["k"] = b"\xff"
    made.at.seconds = 7
    made.lines.add(sku="x")
    assert decode(b"\x02\x02" + made.SerializeToString(), shop) == {
        "id": 1 << 40, "state": "PAID", "tags": ["a", "ü"], "parent": {"id": -7, "state": 9},
        "more": {"k": "0xff"}, "at": {"seconds": 7}, "ratio": 0.5, "ok": True,
        "lines": [{"sku": "x"}],
    }  # fmt: skip


def test_the_type_is_named_by_indexes(shop: ProtobufFile) -> None:
    assert decode(b"\0", shop) == {}
    assert decode(b"\x02\x02", shop) == {}
    assert decode(b"\x04\x02\x02\n\x01x", shop) == {"sku": "x"}


def test_files_that_import_others() -> None:
    line = file("any name", message("Line", a_field("sku", 1, F.TYPE_STRING)))
    whole = file(
        "", message("R", a_field("line", 1, F.TYPE_MESSAGE, ".shop.Line")), imports=("a/l.proto",)
    )
    found = parse(text(whole), {"a/l.proto": text(line)})
    assert decode(b"\0\n\x03\n\x01x", found) == {"line": {"sku": "x"}}
    with pytest.raises(ProtobufError, match=r"imports 'a/l\.proto', which is not known"):
        parse(text(whole), {})


@given(st.binary(max_size=60))
def test_any_bytes_are_decoded_or_refused_with_a_sentence(shop: ProtobufFile, data: bytes) -> None:
    try:
        decode(data, shop)
    except ProtobufError:
        return


@pytest.mark.parametrize(
    ("data", "sentence"),
    [
        (b"", "does not name its Protobuf type"),
        (b"\x80" * 9, "does not name its Protobuf type"),
        (b"\x02", "does not name its Protobuf type"),
        (b"\xfe\x01", "nested 127 deep"),
        (b"\x01", "nested -1 deep"),
        (b"\x02\x7e", "a message that its Protobuf schema does not have"),
        (b"\x02\x01", "a message that its Protobuf schema does not have"),
        (b"\x02\x02\x09", "does not fit"),
        (b"\0" + b"x" * (64 << 10), "only Protobuf values of up to 65,536 bytes"),
    ],
)
def test_hostile_values_are_refused(shop: ProtobufFile, data: bytes, sentence: str) -> None:
    with pytest.raises(ProtobufError, match=sentence):
        decode(data, shop)


def test_a_deep_message_is_refused(shop: ProtobufFile) -> None:
    data = b""
    for _ in range(1_000):
        size = len(data)
        length = bytes([size]) if size < 128 else bytes([size & 127 | 128, size >> 7])
        data = b"\x22" + length + data
    with pytest.raises(ProtobufError, match="does not fit"):
        decode(b"\x02\x02" + data, shop)


@pytest.mark.parametrize(
    ("schema", "sentence"),
    [
        ('syntax = "proto3";', "format=serialized"),
        ("!", "format=serialized"),
        (base64.b64encode(b"\xff" * 9).decode(), "format=serialized"),
        (text(file("x", message("R", a_field("a", 1, F.TYPE_MESSAGE, ".shop.Nope")))), "not valid"),
        (text(file("x", message("R"), message("R"))), "not valid"),
        (text(file("x", imports=("/",))), "'/', which is not known"),
        (text(file("x", message("R", *[a_field(f"f{n}", n + 1, F.TYPE_BOOL) for n in range(201)]))),
         "more than 200 fields"),
        (text(file("x", *[message(f"M{n}") for n in range(2_001)])), "more than 2,000 messages"),
    ],
)  # fmt: skip
def test_hostile_schemas_are_refused(schema: str, sentence: str) -> None:
    with pytest.raises(ProtobufError, match=sentence):
        parse(schema, {})
