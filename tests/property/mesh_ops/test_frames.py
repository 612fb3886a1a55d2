"""Frames survive any fragmentation, envelopes any value, and nothing else is accepted."""

from __future__ import annotations

from contextlib import suppress
from itertools import pairwise

import msgpack  # type: ignore[import-untyped]
from hypothesis import given
from hypothesis import strategies as st

from quafka_mesh_ops.envelopes import (
    decode_request,
    decode_response,
    encode_body,
    encode_request,
    encode_response,
)
from quafka_mesh_ops.errors import ProtocolError
from quafka_mesh_ops.frames import FrameReader, StreamFrames, Tag, decode_number, frame_header
from quafka_mesh_ops.ops.base import OpCode
from quafka_mesh_ops.ops.codec import from_wire
from quafka_mesh_ops.ops.records import FetchOpResp, FetchOpsResp, ProduceOp, ProduceOps

FRAMES = st.lists(st.tuples(st.sampled_from(Tag), st.binary(max_size=400)), max_size=8)
CUTS = st.lists(st.integers(0, 4000), max_size=30)
INT64 = st.integers(-(1 << 63), (1 << 63) - 1)
RECORDS = st.one_of(st.binary(max_size=300), st.integers(2000, 70_000).map(lambda n: b"\xa5" * n))


def pieces(data: bytes, cuts: list[int]) -> list[bytes]:
    edges = [0, *sorted(c for c in cuts if c < len(data)), len(data)]
    return [data[a:b] for a, b in pairwise(edges)]


@given(FRAMES, CUTS)
def test_frames_survive_any_fragmentation(frames: list[tuple[Tag, bytes]], cuts: list[int]) -> None:
    data = b"".join(frame_header(tag, len(payload)) + payload for tag, payload in frames)
    reader = FrameReader()
    got = [frame for piece in pieces(data, cuts) for frame in reader.feed(piece)]
    assert [(tag, bytes(payload)) for tag, payload in got] == frames
    assert reader.between_frames
    assert reader.unfinished == 0


@given(st.lists(st.tuples(st.integers(0, 3), st.binary(max_size=50)), max_size=40))
def test_any_bytes_either_make_frames_or_an_error(chunks: list[tuple[int, bytes]]) -> None:
    frames = StreamFrames(total_limit=100, limit=60)
    with suppress(ProtocolError):
        for stream_id, data in chunks:
            for _, payload in frames.feed(stream_id, data, False):
                assert len(payload) <= 60
            assert frames.unfinished <= 100
            assert frames.unfinished == sum(r.unfinished for r in frames._readers.values())


@given(st.binary(max_size=200))
def test_any_payload_is_read_or_refused(payload: bytes) -> None:
    for decode in (decode_request, decode_response, decode_number):
        with suppress(ProtocolError):
            decode(payload)


@given(INT64, INT64, st.text(max_size=60), st.text(max_size=60), st.integers(0, 1 << 40), RECORDS)
def test_requests_survive(
    request_id: int, org_id: int, traceparent: str, tracestate: str, deadline: int, records: bytes
) -> None:
    op = ProduceOps([ProduceOp("t", 0, records), ProduceOp("u", 1, records[:7])])
    frame = encode_request(
        request_id, OpCode.PRODUCE, org_id, traceparent, tracestate, deadline, encode_body(op)
    )
    ((_, payload),) = FrameReader().feed(b"".join(frame))
    request = decode_request(payload)
    assert (request.request_id, request.org_id, request.deadline_ms) == (
        request_id,
        org_id,
        deadline,
    )
    assert (request.traceparent, request.tracestate) == (traceparent, tracestate)
    assert from_wire(ProduceOps, request.body) == op


@given(st.lists(RECORDS, max_size=4), INT64, st.text(max_size=60))
def test_responses_are_what_msgpack_alone_would_write(
    records: list[bytes], high_watermark: int, traceparent: str
) -> None:
    answer = FetchOpsResp([FetchOpResp(list(records), high_watermark)])
    frame = encode_response(3, 0, encode_body(answer), traceparent)
    ((_, payload),) = FrameReader().feed(b"".join(frame))
    body = [[[records, high_watermark, 0, -1, -1, None, None, b"", None, -1, None]], False, 0]
    assert bytes(payload) == msgpack.packb([3, 0, body, traceparent])
    assert from_wire(FetchOpsResp, decode_response(payload).body) == answer
