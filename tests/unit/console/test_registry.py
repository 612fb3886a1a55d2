"""The client of a schema registry, beside small servers: good ones, and hostile ones."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

import pytest
from google.protobuf import descriptor_pb2  # type: ignore[import-untyped]

from quafka_client.registry.client import RegisteredSchema, RegistryError, SchemaRegistry
from quafka_client.registry.values import MOST_IDS, schema_id
from quafka_console.data.messages.decoded_values import ValueDecoder
from quafka_console.data.messages.records import KeptBytes, kept
from quafka_console.settings import ConsoleConfig

HOST = "127.0.0.1"
AVRO = '{"type": "record", "name": "R", "fields": [{"name": "id", "type": "long"}]}'


@dataclass
class FakeRegistry:
    """An HTTP server with answers by path: JSON, or all bytes that it sends.

    With `hangs` it never answers.
    """

    answers: Mapping[str, Any]
    hangs: bool = False
    asked: list[str] = field(default_factory=list[str])
    headers: list[str] = field(default_factory=list[str])
    url: str = ""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer one request."""
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        path = head.split(" ")[1]
        self.asked.append(path)
        self.headers.append(head)
        if self.hangs:
            await reader.read()  # until the client leaves
        found = self.answers.get(path)
        if isinstance(found, bytes):
            writer.write(found)
        elif found is None:
            writer.write(b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n")
        else:
            body = json.dumps(found).encode()
            writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % len(body) + body)
        with suppress(ConnectionError):  # the client has left
            await writer.drain()
        writer.close()


@asynccontextmanager
async def serving(fake: FakeRegistry) -> AsyncGenerator[SchemaRegistry]:
    server = await asyncio.start_server(fake.serve, HOST, 0)
    fake.url = f"http://{HOST}:{server.sockets[0].getsockname()[1]}"
    try:
        yield SchemaRegistry(fake.url, "user", "hush")
    finally:
        server.close()


def answer(schema: str, **more: Any) -> dict[str, Any]:
    return {"schema": schema, **more}


def wire(number: int, data: bytes) -> KeptBytes:
    found = kept(b"\0" + number.to_bytes(4, "big") + data)
    assert found is not None
    return found


async def test_values_are_decoded_by_their_schemas() -> None:
    fake = FakeRegistry(
        {
            "/schemas/ids/1": answer(AVRO),
            "/schemas/ids/1/subjects": ["orders-value", "secret-value"],
            "/schemas/ids/2": answer("{}", schemaType="JSON"),
            "/schemas/ids/3": answer('syntax = "proto3";', schemaType="THRIFT"),
            "/schemas/ids/4": answer('"string"'),
            "/schemas/ids/5": answer("string"),
        }
    )
    async with serving(fake) as registry:
        values = [wire(1, b"\x0e"), wire(2, b'{"a": 1}'), wire(3, b"\0"), wire(4, b"\x02x"),
                  wire(5, b"\x02x"), wire(6, b""), kept(b"plain"), None, wire(1, b"")]  # fmt: skip
        decoder = await ValueDecoder.of(registry, values)
        lines = [decoder.line(each) for each in values]
        assert lines == ['{"id": 7}', '{"a": 1}', "", '"x"', '"x"', "", "", "", ""]
        found = decoder.decoded(values[0])
        assert found is not None
        assert (found.kind, found.number, found.text) == ("AVRO", 1, '{\n  "id": 7\n}')
        assert found.subjects == ("orders-value", "secret-value")
        problems = [each.problem for each in map(decoder.decoded, values) if each and each.problem]
        assert problems == [
            "values of Thrift schemas are not decoded",
            "the registry does not have schema 6",
            "the value does not fit its Avro schema, near byte 0",
        ]
        own = (await ValueDecoder.of(registry, values, "orders")).decoded(values[0])
        assert own is not None
        assert own.subjects == ("orders-value",), "those of other topics are not for everybody"
        assert fake.asked.count("/schemas/ids/1") == 1, "schemas are kept"
        login = base64.b64encode(b"user:hush").decode()
        assert all(login in each for each in fake.headers)
        assert "hush" not in repr(registry)


async def test_schemas_that_refer_to_others() -> None:
    state = '{"type": "enum", "name": "a.State", "symbols": ["NEW"]}'
    pair = '{"type": "record", "name": "a.Pair", "fields": [{"name": "s", "type": "a.State"}]}'
    whole = '{"type": "record", "name": "a.R", "fields": [{"name": "p", "type": "a.Pair"}]}'
    refers = [{"name": "a.Pair", "subject": "a/pair", "version": 2}]
    fake = FakeRegistry(
        {
            "/schemas/ids/1": answer(whole, references=refers),
            "/subjects/a%2Fpair/versions/2": answer(
                pair, references=[{"name": "a.State", "subject": "state", "version": 1}]
            ),
            "/subjects/state/versions/1": answer(state),
        }
    )
    async with serving(fake) as registry:
        decoder = await ValueDecoder.of(registry, [wire(1, b"\0")])
        assert decoder.line(wire(1, b"\0")) == '{"p": {"s": "NEW"}}'


async def test_protobuf_is_decoded_by_descriptors() -> None:
    other: Any = descriptor_pb2.FileDescriptorProto(name="x")
    other.message_type.add(name="Line").field.add(name="sku", number=1, type=9, label=1)
    order: Any = descriptor_pb2.FileDescriptorProto(name="y", dependency=["line.proto"])
    its = order.message_type.add(name="Order").field
    its.add(name="id", number=1, type=3, label=1)
    its.add(name="line", number=2, type=11, type_name=".Line", label=1)
    whole, line = (base64.b64encode(each.SerializeToString()).decode() for each in (order, other))
    refers = [{"name": "line.proto", "subject": "line", "version": 3}]
    fake = FakeRegistry(
        {
            "/schemas/ids/1": answer('syntax = "proto3"; …', schemaType="PROTOBUF"),
            "/schemas/ids/1?format=serialized": answer(
                whole, schemaType="PROTOBUF", references=refers
            ),
            "/subjects/line/versions/3?format=serialized": answer(line),
            "/schemas/ids/2": answer('syntax = "proto3";', schemaType="PROTOBUF"),
            "/schemas/ids/2?format=serialized": answer('syntax = "proto3";'),
        }
    )
    async with serving(fake) as registry:
        values = [wire(1, b"\0\x08\x07\x12\x03\n\x01x"), wire(2, b"\0")]
        decoder = await ValueDecoder.of(registry, values)
        assert decoder.line(values[0]) == '{"id": 7, "line": {"sku": "x"}}'
        found = decoder.decoded(values[1])
        assert found is not None
        assert "does not give the descriptor of the Protobuf schema" in found.problem


ENDLESS = {
    f"/subjects/s/versions/{number}": answer(
        "{}", references=[{"subject": "s", "version": number + 1}]
    )
    for number in range(100)
}
REDIRECT = b"HTTP/1.1 302 Found\r\nlocation: http://127.0.0.1:1/x\r\ncontent-length: 0\r\n\r\n"
LARGE = b"HTTP/1.1 200 OK\r\ncontent-length: 104857600\r\n\r\n" + b" " * (2 << 20)
CHUNKS = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n" + b"10000\r\n%b\r\n" % (
    b" " * 0x10000
) * 40  # fmt: skip


@pytest.mark.parametrize(
    ("found", "sentence"),
    [
        (REDIRECT, "answers with status 302"),
        (LARGE, "more than 1,048,576 bytes"),
        (CHUNKS, "more than 1,048,576 bytes"),
        (b"HTTP/1.1 200 OK\r\nx: " + b"y" * 200_000, "cannot be read"),
        (b"SSH-2.0-x\r\n\r\n", "cannot be read"),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\n{", "cannot be read"),
        (b"HTTP/1.1 401 No\r\ncontent-length: 0\r\n\r\n", "refuses this user or password"),
        (b"HTTP/1.1 500 No\r\ncontent-length: 0\r\n\r\n", "answers with status 500"),
        ([1], "is not an object"),
        ({"schema": 7}, "has no schema"),
        ({}, "has no schema"),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 90000\r\n\r\n" + b"[" * 90_000, "is not JSON"),
        (answer("{}", references=7), "are not a list"),
        (answer("{}", references=[7]), "are not objects"),
        (answer("{}", references=[{"subject": "s", "version": 0}]), "more than 32 others"),
        (answer("{}", references=[{"subject": "nope", "version": 1}]), "does not have schema"),
    ],
)
async def test_what_a_registry_may_do_wrong_is_a_sentence(found: Any, sentence: str) -> None:
    fake = FakeRegistry({"/schemas/ids/1": found, **ENDLESS})
    async with serving(fake) as registry:
        with pytest.raises(RegistryError, match=sentence):
            await registry.schema(1)
        asked = len(fake.asked)
        with pytest.raises(RegistryError, match=sentence):
            await registry.schema(1)
        assert len(fake.asked) == asked, "it is asked again after a while only"
        await asyncio.sleep(31)
        with pytest.raises(RegistryError, match=sentence):
            await registry.schema(1)
        assert len(fake.asked) > asked
        decoder = await ValueDecoder.of(registry, [wire(1, b"\0")])
        shown = decoder.decoded(wire(1, b"\0"))
        assert shown is not None
        assert sentence in shown.problem


async def test_a_registry_that_hangs_costs_seconds_and_is_asked_once() -> None:
    fake = FakeRegistry({}, hangs=True)
    loop = asyncio.get_running_loop()
    async with serving(fake) as registry:
        began = loop.time()
        values = [wire(number, b"") for number in (*range(200), *range(200))]
        decoder = await ValueDecoder.of(registry, values)
        assert loop.time() - began == pytest.approx(4, abs=0.1)
        found = decoder.decoded(values[0])
        assert found is not None
        assert found.problem == "the registry did not answer within 4 s"
        last = decoder.decoded(values[100])
        assert last is not None
        assert "at most 20 schemas" in last.problem
        assert len(set(fake.asked)) == len(fake.asked) == 4, "four at a time"
        assert MOST_IDS == 20
        again = loop.time()
        await ValueDecoder.of(registry, values)
        assert loop.time() == again


async def test_schemas_that_refer_to_themselves() -> None:
    fake = FakeRegistry(
        {
            "/schemas/ids/1": answer(AVRO, references=[{"subject": "s", "version": 1}]),
            "/subjects/s/versions/1": answer(
                '"int"', references=[{"subject": "s", "version": 1}]
            ),
        }
    )  # fmt: skip
    async with serving(fake) as registry:
        assert (await registry.schema(1)).references == (("None", '"int"'),)
        assert fake.asked.count("/subjects/s/versions/1") == 1


async def test_the_cache_is_bounded() -> None:
    large = answer(json.dumps({"type": "int", "doc": "x" * 900_000}))
    fake = FakeRegistry({f"/schemas/ids/{number}": large for number in range(60)})
    async with serving(fake) as registry:
        for number in range(60):
            await registry.schema(number)
        assert 30 <= registry.cached <= 37
        await registry.schema(59)
        assert fake.asked.count("/schemas/ids/59") == 1
        await registry.schema(0)
        assert fake.asked.count("/schemas/ids/0") == 2


async def test_names_of_fields_do_not_multiply_a_value() -> None:
    fields = [{"name": "n" * 50_000 + str(number), "type": "null"} for number in range(10)]
    item = {"type": "record", "name": "R", "fields": fields}
    fake = FakeRegistry({"/schemas/ids/1": answer(json.dumps({"type": "array", "items": item}))})
    value = wire(1, b"\xa0\x1f\0")  # 2,000 items of no bytes: 1 GB of JSON
    async with serving(fake) as registry:
        decoder = await ValueDecoder.of(registry, [value])
        found = decoder.decoded(value)
        assert found is not None
        assert len(found.text) <= (512 << 10) + 1
        assert len(decoder.line(value)) <= 1_001


def test_values_that_are_cut_are_not_decoded() -> None:
    schema = RegisteredSchema(1, "AVRO", '"bytes"')
    found = ValueDecoder({1: schema}).decoded(KeptBytes(b"\0\0\0\0\x01\x02", 100_000))
    assert found is not None
    assert "only values of up to" in found.problem


@pytest.mark.parametrize(
    ("data", "number"),
    [(b"\0\0\0\0\x07", 7), (b"\0\xff\xff\xff\xffx", 0xFFFFFFFF), (b"\0\0\0\0", None),
     (b"\x01\0\0\0\x07", None), (b"", None), (None, None)],
)  # fmt: skip
def test_ids_of_schemas(data: bytes | None, number: int | None) -> None:
    assert schema_id(data) == number


def test_the_url_is_checked() -> None:
    parse = next(
        each.metadata["setting"].parse
        for each in ConsoleConfig.__dataclass_fields__.values()
        if each.name == "console_registry_url"
    )
    assert parse("http://registry:8081/") == "http://registry:8081"
    assert parse("https://registry/path") == "https://registry/path"
    assert parse("") == ""
    for wrong in (
        "registry:8081",
        "ftp://x",
        "http://",
        "http://u:p@x",
        "http://x?a=1",
        "http://x:99999",
    ):
        with pytest.raises(ValueError, match=r"."):
            parse(wrong)
