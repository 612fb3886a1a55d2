"""A produce that repeats the last one is read as it would be decoded, and answered as it would be
encoded; any other one is not recognised."""

from __future__ import annotations

import copy
import sys
from typing import Any, TypeVar

from hypothesis import given
from hypothesis import strategies as st

from quafka_gateway.handlers.produce_responses import response_of
from quafka_gateway.handlers.repeated_produce import RepeatedProduce
from quafka_mesh_ops.ops.records import ProduceOp, ProduceOpResp
from quafka_proto.codec import decode_front
from quafka_proto.headers import decode_request_header, encode_request, encode_response
from quafka_proto.record_codec import Record, build_batch
from quafka_proto.schema.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)

M = TypeVar("M", TopicProduceData, ProduceRequest)
VERSIONS = st.integers(min_value=3, max_value=13)
INT32 = st.integers(min_value=-(1 << 31), max_value=(1 << 31) - 1)
INT64 = st.integers(min_value=-(1 << 63), max_value=(1 << 63) - 1)
BATCHES = st.binary(max_size=20_000).map(
    lambda value: bytes(build_batch([Record(0, 1_000, None, value, [])]))
)


@st.composite
def requests(draw: st.DrawFn) -> tuple[int, ProduceRequest]:
    version = draw(VERSIONS)
    named = version < 13
    topic = TopicProduceData(
        name=draw(st.text(max_size=20)) if named else "",
        topic_id=bytes(16) if named else draw(st.binary(min_size=16, max_size=16)),
        partition_data=[PartitionProduceData(draw(INT32), draw(BATCHES))],
    )
    return version, ProduceRequest(
        acks=draw(st.sampled_from([-1, 1])), timeout_ms=draw(INT32), topic_data=[topic]
    )


def replace(message: M, **fields: Any) -> M:
    changed = copy.copy(message)
    for name, value in fields.items():
        setattr(changed, name, value)
    return changed


def frame_of(version: int, request: ProduceRequest, correlation_id: int, client: str) -> bytes:
    return b"".join(encode_request(correlation_id, client, request, version))[4:]


def learned(frame: bytes) -> RepeatedProduce | None:
    header, at = decode_request_header(frame)
    request, end = decode_front(ProduceRequest, header.api_version, frame, at)
    return RepeatedProduce.after(header, request, frame, end)


def decoded(frame: bytes) -> list[tuple[str, bytes, int, bytes]]:
    header, at = decode_request_header(frame)
    request, _ = decode_front(ProduceRequest, header.api_version, frame, at)
    return [
        (topic.name, topic.topic_id, part.index, bytes(part.records or b""))
        for topic in request.topic_data
        for part in topic.partition_data
    ]


def named(op: ProduceOp) -> tuple[str, bytes, int, bytes]:
    return op.topic, op.topic_id or bytes(16), op.partition, bytes(op.records)


@given(requests(), st.text(max_size=20), INT32, INT32, INT32, BATCHES)
def test_a_repetition_is_read_as_it_is_decoded(
    made: tuple[int, ProduceRequest], client: str, first: int, second: int, index: int, batch: bytes
) -> None:
    version, request = made
    last = learned(frame_of(version, request, first, client))
    if version < 7:
        assert last is None
        return
    assert last is not None
    (topic,) = request.topic_data
    again = replace(topic, partition_data=[PartitionProduceData(index, batch)])
    frame = frame_of(version, replace(request, topic_data=[again]), second, client)
    op = last.batch(frame)
    assert op is not None
    assert [named(op)] == decoded(frame)
    assert last.header(frame) == decode_request_header(frame)[0]
    assert (last.acks, last.timeout) == (request.acks, request.timeout_ms / 1000)


@given(requests(), st.data())
def test_what_is_read_is_what_would_be_decoded_whatever_is_sent(
    made: tuple[int, ProduceRequest], data: st.DataObject
) -> None:
    version, request = made
    frame = frame_of(version, request, 5, "client")
    last = learned(frame)
    changed = bytearray(frame)
    for _ in range(data.draw(st.integers(min_value=1, max_value=3))):
        at = data.draw(st.integers(min_value=0, max_value=len(frame) - 1))
        changed[at] = data.draw(st.integers(min_value=0, max_value=255))
    cut = data.draw(st.integers(min_value=-3, max_value=3))
    sent = bytes(changed[:cut] if cut < 0 else changed + bytes(cut))
    op = None if last is None or not sent.startswith(last.kind) else last.batch(sent)
    if op is not None:
        assert [named(op)] == decoded(sent)


@given(requests(), INT32, INT32, st.tuples(INT64, INT64, INT64), st.booleans())
def test_a_response_is_as_it_is_encoded(
    made: tuple[int, ProduceRequest],
    correlation_id: int,
    index: int,
    news: tuple[int, int, int],
    refused: bool,
) -> None:
    version, request = made
    last = learned(frame_of(version, request, 5, "client"))
    if last is None:
        return
    offset, append_time, log_start = news
    answer = ProduceOpResp(offset, 87 if refused else 0, append_time, log_start)
    op = ProduceOp(request.topic_data[0].name, index, b"")
    response, code = last.response(correlation_id, op, answer)
    expected = response_of(version, request.topic_data[0], op, answer)
    assert code == (87 if refused else 0)
    assert b"".join(response) == b"".join(encode_response(correlation_id, expected, version))


def test_other_requests_are_not_expected_again() -> None:
    batch = bytes(build_batch([Record(0, 1_000, None, b"x", [])]))
    topic = TopicProduceData(name="t", partition_data=[PartitionProduceData(0, batch)])
    good = ProduceRequest(acks=-1, timeout_ms=1_000, topic_data=[topic])
    assert learned(frame_of(9, good, 1, "c")) is not None
    two = replace(topic, partition_data=[*topic.partition_data, PartitionProduceData(1, batch)])
    null = replace(topic, partition_data=[PartitionProduceData(0, None)])
    for other in (
        replace(good, acks=0),
        replace(good, acks=7),
        replace(good, transactional_id="mine"),
        replace(good, topic_data=[]),
        replace(good, topic_data=[topic, topic]),
        replace(good, topic_data=[two]),
        replace(good, topic_data=[null]),
    ):
        assert learned(frame_of(9, other, 1, "c")) is None


def test_bytes_too_many_or_too_few_are_no_repetition() -> None:
    batch = bytes(build_batch([Record(0, 1_000, None, b"x", [])]))
    topic = TopicProduceData(name="t", partition_data=[PartitionProduceData(0, batch)])
    request = ProduceRequest(acks=-1, timeout_ms=1_000, topic_data=[topic])
    for version in (8, 9):
        frame = frame_of(version, request, 1, "c")
        last = learned(frame)
        assert last is not None
        assert last.batch(frame + b"\0") is None
        assert last.batch(frame[:-1]) is None


def test_little_is_kept() -> None:
    batch = bytes(build_batch([Record(0, 1_000, None, bytes(10_000), [])]))
    for name, kept in (("t", True), ("t" * 2_000, False)):
        topic = TopicProduceData(name=name, partition_data=[PartitionProduceData(0, batch)])
        request = ProduceRequest(acks=-1, timeout_ms=1_000, topic_data=[topic])
        frame = frame_of(9, request, 1, "c")
        references = sys.getrefcount(frame)
        last = learned(frame)
        assert (last is not None) == kept
        assert sys.getrefcount(frame) == references


def test_lengths_of_every_size_are_read() -> None:
    for size in (0, 50, 62, 200, 16_000, 16_500, 70_000):
        batch = bytes(build_batch([Record(0, 1_000, None, bytes(size), [])]))
        topic = TopicProduceData(name="t", partition_data=[PartitionProduceData(3, batch)])
        request = ProduceRequest(acks=1, timeout_ms=1_000, topic_data=[topic])
        frame = frame_of(9, request, 1, "c")
        last = learned(frame)
        assert last is not None
        op = last.batch(frame)
        assert op is not None
        assert bytes(op.records) == batch


def test_a_malformed_length_is_not_read() -> None:
    batch = bytes(build_batch([Record(0, 1_000, None, b"x", [])]))
    topic = TopicProduceData(name="t", partition_data=[PartitionProduceData(3, batch)])
    request = ProduceRequest(acks=1, timeout_ms=1_000, topic_data=[topic])
    frame = frame_of(9, request, 1, "c")
    last = learned(frame)
    assert last is not None
    at = frame.index(batch) - 1
    for length in (b"\xff" * 6, b"\xff\xff\xff\xff\x7f", b"\0", b"\x01"):
        assert last.batch(frame[:at] + length + frame[at + 1 :]) is None
