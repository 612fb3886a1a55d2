"""Carrier frames and envelopes: refused input, and bytes passed by reference."""

from __future__ import annotations

import msgpack  # type: ignore[import-untyped]
import pytest

from quafka_mesh_ops.envelopes import (
    decode_request,
    decode_response,
    encode_body,
    encode_request,
    encode_response,
)
from quafka_mesh_ops.errors import OpTooLargeError, ProtocolError
from quafka_mesh_ops.frames import (
    FrameReader,
    StreamFrames,
    Tag,
    decode_number,
    encode_goaway,
    encode_number,
    frame_header,
)
from quafka_mesh_ops.ops.base import OpCode
from quafka_mesh_ops.ops.codec import from_wire
from quafka_mesh_ops.ops.records import (
    FetchOp,
    FetchOpResp,
    FetchOps,
    FetchOpsResp,
    ProduceOp,
    ProduceOps,
)
from quafka_mesh_ops.ops.topics import DescribeTopics


def test_frame_lengths_on_the_wire() -> None:
    assert frame_header(Tag.OP, 0) == b"\x01\x00"
    assert frame_header(Tag.RESPONSE, 127) == b"\x02\x7f"
    assert frame_header(Tag.OP, 300) == b"\x01\xac\x02"


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"\x00\x00", "unknown frame tag 0x00"),
        (b"\x0b\x00", "unknown frame tag 0x0b"),
        (b"\x47\x45\x54 / HTTP", "unknown frame tag 0x47"),
        (b"\x01\xff\xff\xff\xff\x7f", "more than 1000 bytes"),
        (b"\x01\xe9\x07", "more than 1000 bytes"),
        (b"\x01\x80\x80\x80\x80\x80\x00", "more than five bytes"),
        (b"\x01\x81\x00", "shortest form"),
    ],
)
def test_bad_headers_are_refused(data: bytes, message: str) -> None:
    with pytest.raises(ProtocolError, match=message):
        FrameReader(1000).feed(data)
    reader = FrameReader(1000)
    with pytest.raises(ProtocolError, match=message):
        [reader.feed(data[i : i + 1]) for i in range(len(data))]


def test_a_claimed_length_allocates_nothing() -> None:
    reader = FrameReader()
    assert reader.feed(frame_header(Tag.OP, 100 << 20) + b"abc") == []
    assert reader.unfinished == 3
    assert not reader.between_frames


def test_unfinished_frames_are_bounded_over_all_streams() -> None:
    frames = StreamFrames(total_limit=1000, limit=800)
    frames.feed(0, frame_header(Tag.OP, 800) + bytes(600), False)
    assert frames.unfinished == 600
    with pytest.raises(ProtocolError, match="unfinished"):
        frames.feed(4, frame_header(Tag.OP, 800) + bytes(401), False)


def test_finished_and_dropped_streams_free_the_bound() -> None:
    frames = StreamFrames(total_limit=1000)
    frames.feed(3, frame_header(Tag.OP, 800) + bytes(600), False)
    frames.drop(3)
    frames.drop(3)
    assert frames.unfinished == 0
    frames.feed(7, frame_header(Tag.OP, 800) + bytes(600), False)
    assert frames.feed(7, bytes(200), True) == [(Tag.OP, bytes(800))]
    assert frames.unfinished == 0


def test_a_stream_that_ends_inside_a_frame_is_refused() -> None:
    for cut in (1, 2, 5):
        frames = StreamFrames(total_limit=1000)
        with pytest.raises(ProtocolError, match="ended inside"):
            frames.feed(0, encode_number(Tag.PING, 1 << 40)[:cut], True)


def test_records_are_passed_by_reference() -> None:
    records = memoryview(bytes(5000))
    for part in (
        ProduceOps([ProduceOp("t", 0, records)]),
        FetchOpsResp([FetchOpResp([records], 1)]),
    ):
        pieces = encode_response(1, 0, encode_body(part))
        assert any(piece is records for piece in pieces)
        _, payload = FrameReader().feed(b"".join(pieces))[0]
        body = decode_response(payload).body
        assert from_wire(type(part), body) == part


def test_records_of_every_length_class_survive() -> None:
    for length in (0, 1, 255, 256, 2047, 2048, 65535, 65536, 1 << 20):
        op = ProduceOps([ProduceOp("t", 0, b"r" * length), ProduceOp("u", 1, b"s")])
        frame = encode_request(9, OpCode.PRODUCE, 1, "", "", 50, encode_body(op))
        ((tag, payload),) = FrameReader().feed(b"".join(frame))
        assert tag is Tag.OP
        request = decode_request(payload)
        assert (request.request_id, request.op_code, request.deadline_ms) == (9, 2, 50)
        assert from_wire(ProduceOps, request.body) == op


def test_unknown_trailing_values_are_ignored() -> None:
    request = decode_request(msgpack.packb([1, 2, 3, "", "", 4, [5], "new", 0]))
    assert request.body == [5]
    assert decode_response(msgpack.packb([1, 0, [], "", "new"])).body == []


@pytest.mark.parametrize(
    "value",
    [
        None,
        5,
        [],
        [1, 2, 3, "", "", 4],
        ["1", 2, 3, "", "", 4, []],
        [True, 2, 3, "", "", 4, []],
        [1, 2, 3, b"", "", 4, []],
        [1, 2, 3, "", "", -1, []],
        [1, 2, 3, "", "", 4, None],
        [1, 2, 3, "", "", 4, [{}]],
        [1, 2, 3, "", "", 4, [{"a": 1}]],
        [1, 2, 3, "", "", 4, [msgpack.ExtType(5, b"x")]],
        [1, 2, 3, "", "", 4, [msgpack.Timestamp(0, 0)]],
    ],
)
def test_bad_request_envelopes_are_refused(value: object) -> None:
    with pytest.raises(ProtocolError):
        decode_request(msgpack.packb(value))


@pytest.mark.parametrize("value", [[1, 0, None, ""], [1, 3, [], ""], [1, 0, []], [1, 0, "", ""]])
def test_bad_response_envelopes_are_refused(value: object) -> None:
    with pytest.raises(ProtocolError):
        decode_response(msgpack.packb(value))


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"\xc1",
        b"\xdd\xff\xff\xff\xff",
        b"\xdf\xff\xff\xff\xff",
        b"\xc6\xff\xff\xff\xff",
        b"\xdb\xff\xff\xff\xff",
        b"\x91" * 100_000,
        (b"\xdd\x00\x01\xff\xff" * 30_000),
        b"\xa2\xff\xfe",
        b"\x01\x02",
        msgpack.packb("text"),
        msgpack.packb(True),
    ],
)
def test_hostile_payloads_are_refused(payload: bytes) -> None:
    for decode in (decode_number, decode_request, decode_response):
        with pytest.raises(ProtocolError):
            decode(payload)


def test_control_frames() -> None:
    data = encode_number(Tag.PING, 1 << 63) + encode_goaway() + encode_number(Tag.CANCEL, 7)
    (ping, number), (goaway, empty), (cancel, request_id) = FrameReader().feed(data)
    assert (ping, decode_number(number)) == (Tag.PING, 1 << 63)
    assert (goaway, bytes(empty)) == (Tag.GOAWAY, b"")
    assert (cancel, decode_number(request_id)) == (Tag.CANCEL, 7)


def test_a_frame_that_no_peer_would_take_is_not_sent() -> None:
    body = encode_body(ProduceOps([ProduceOp("t", 0, bytes(113 << 20))]))
    with pytest.raises(OpTooLargeError, match="at most"):
        encode_request(1, 2, 1, "", "", 0, body)


def test_an_op_with_a_wrong_value_cannot_be_encoded() -> None:
    with pytest.raises(OverflowError):
        encode_body(DescribeTopics(topics=[1 << 70]))  # type: ignore[list-item]


def test_what_a_reader_would_refuse_is_not_sent() -> None:
    """One client's request must not end the connection with the ops of all clients."""
    largest = FetchOps([FetchOp("a-topic", i, 1 << 40, 1 << 20, bytes(16)) for i in range(100_000)])
    body = encode_body(largest)
    frame = b"".join(encode_request(1, largest.code, 1, "", "", 1, body))
    ((_, payload),) = FrameReader().feed(frame)
    assert len(decode_request(payload).body[0]) == 100_000
    for more, reason in ((12_000, "too many values"), (100_000, "a list of more than")):
        with pytest.raises(OpTooLargeError, match=reason):
            encode_body(FetchOps([*largest.partitions, *largest.partitions[:more]]))
