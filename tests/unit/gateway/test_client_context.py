"""The trace context in the records that a client produces."""

from __future__ import annotations

import pytest

from quafka_gateway.handlers.client_context import context_of_batch, context_of_produce
from quafka_proto.codec import encode
from quafka_proto.compression import Codec
from quafka_proto.record_codec import Record, build_batch, first_headers
from quafka_proto.schema.produce import PartitionProduceData, ProduceRequest, TopicProduceData

HEADERS: list[tuple[str, bytes | None]] = [
    ("source", None),
    ("traceparent", b"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"),
    ("tracestate", b"vendor=1"),
]


def batch(headers: list[tuple[str, bytes | None]], value: bytes = b"v", codec: int = 0) -> bytes:
    first, second = Record(0, 1_000, b"key", value, headers), Record(1, 1_001, None, b"", [])
    return bytes(build_batch([first, second], codec=codec))


@pytest.mark.parametrize("value", [b"", b"v", b"v" * 200, b"v" * 100_000])
def test_the_first_records_headers_are_found(value: bytes) -> None:
    assert first_headers(batch(HEADERS, value)) == HEADERS


def test_compressed_batches_are_not_decompressed() -> None:
    assert first_headers(batch(HEADERS, codec=Codec.GZIP)) == []


def test_a_batch_cut_short_anywhere_has_none() -> None:
    whole = batch(HEADERS)
    first = whole.index(b"vendor=1") + len(b"vendor=1")  # where its last header ends
    for size in range(first):
        assert first_headers(whole[:size]) == []
    assert first_headers(whole[:first]) == HEADERS


def test_very_long_headers_are_not_read() -> None:
    assert first_headers(batch([("traceparent", b"x" * 20_000)])) == []


def test_a_context_is_read_from_both_headers() -> None:
    found = context_of_batch(batch(HEADERS))
    assert found is not None
    assert found.sampled
    assert found.context.tracestate == "vendor=1"
    assert found.context.traceparent.encode() == HEADERS[1][1]


@pytest.mark.parametrize("text", [b"", b"nonsense", b"\xff\xfe", b"00-" + b"0" * 50])
def test_a_wrong_header_is_none(text: bytes) -> None:
    assert context_of_batch(batch([("traceparent", text)])) is None


@pytest.mark.parametrize("size", [10, 10_000])
def test_small_and_large_requests_are_searched(size: int) -> None:
    def context_of(headers: list[tuple[str, bytes | None]]) -> object:
        data = PartitionProduceData(index=0, records=batch(headers, b"v" * size))
        request = ProduceRequest(topic_data=[TopicProduceData(name="t", partition_data=[data])])
        return context_of_produce(request, b"".join(encode(request, 9)))

    assert context_of(HEADERS) is not None
    assert context_of([("source", b"x")]) is None


def test_a_request_without_records_has_no_context() -> None:
    empty = TopicProduceData(name="t", partition_data=[PartitionProduceData(records=None)])
    for topics in ([], [empty]):
        assert context_of_produce(ProduceRequest(topic_data=topics), b"traceparent") is None
