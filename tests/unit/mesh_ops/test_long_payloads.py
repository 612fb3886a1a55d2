"""Long payloads have the same bytes and values in steps as at once."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any, TypeVar, cast

import pytest

from quafka_mesh_ops import long_payloads
from quafka_mesh_ops.envelopes import (
    decode_request,
    decode_response,
    encode_body,
    encode_request,
    encode_response,
)
from quafka_mesh_ops.errors import ProtocolError
from quafka_mesh_ops.frames import Tag, frame_header
from quafka_mesh_ops.long_payloads import (
    LongPayload,
    encode_body_in_steps,
    request_of,
    response_of,
)
from quafka_mesh_ops.ops.base import AnyStruct, Buffer
from quafka_mesh_ops.ops.codec import from_wire, from_wire_in_steps
from quafka_mesh_ops.ops.offsets import ListOffsetsOp, ListOffsetsOps
from quafka_mesh_ops.ops.records import FetchOpResp, FetchOpsResp, ProduceOp, ProduceOps
from quafka_mesh_ops.ops.table import OPS
from tests.support.suites import more
from tests.unit.mesh_ops.op_fillers import filled

T = TypeVar("T")


def run(steps: Generator[None, None, T]) -> tuple[T, int]:
    """The result, and the number of steps."""
    count = 0
    while True:
        try:
            next(steps)
            count += 1
        except StopIteration as end:
            return cast(T, end.value), count


def payload(frame: list[Buffer]) -> bytes:
    """Strip the frame header."""
    whole = b"".join(frame)
    for size in range(2, 7):
        if whole.startswith(frame_header(Tag(whole[0]), len(whole) - size)):
            return whole[size:]
    raise AssertionError("no header")


@pytest.mark.parametrize("items", [300, *more([3_000])])
def test_every_op_and_answer_with_long_lists(items: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(long_payloads, "SHORT", 0)
    for op_type in OPS.values():
        for part_type in (op_type, op_type.response):
            for part in [f.part for f in filled(part_type, 1, items=items) if f.many]:
                body, _ = run(encode_body_in_steps(part))
                assert b"".join(body) == b"".join(encode_body(part))
                _reads_alike(part_type, part, body)


def _reads_alike(part_type: type[AnyStruct], part: AnyStruct, body: list[Buffer]) -> None:
    asked = payload(encode_request(7, 2, 1, "trace", "state", 9, body))
    request, long = request_of(asked)
    assert long is not None
    values, _ = run(long.body())
    request.body = values
    assert request == decode_request(asked)
    assert run(from_wire_in_steps(part_type, values))[0] == from_wire(part_type, values) == part
    answered = payload(encode_response(7, 0, body, "trace"))
    head, long = response_of(answered)
    assert long is not None
    values, _ = run(long.body())
    assert long.rest(head, values) == decode_response(answered)


def test_a_long_op_takes_many_steps() -> None:
    op = ListOffsetsOps([ListOffsetsOp("a-topic", i, -1) for i in range(10_000)])
    body, steps = run(encode_body_in_steps(op))
    assert steps > 300
    _, long = request_of(payload(encode_request(1, 4, 1, "", "", 1, body)))
    assert long is not None
    values, steps = run(long.body())
    assert steps > 300
    found, steps = run(from_wire_in_steps(ListOffsetsOps, values))
    assert steps > 300
    assert found == op


def test_long_records_are_passed_by_reference() -> None:
    records = bytes(5_000)
    many = [ProduceOp("t", i, records) for i in range(300)]
    body, _ = run(encode_body_in_steps(ProduceOps(many)))
    assert sum(piece is records for piece in body) == 300
    answer = FetchOpsResp([FetchOpResp([records], 1) for _ in range(300)])
    body, _ = run(encode_body_in_steps(answer))
    assert sum(piece is records for piece in body) == 300


def test_a_few_long_byte_strings_are_read_at_once() -> None:
    body = encode_body(ProduceOps([ProduceOp("t", 0, bytes(1 << 20))]))
    asked = payload(encode_request(1, 2, 1, "", "", 1, body))
    request, long = request_of(asked)
    assert long is None
    assert request == decode_request(asked)


@pytest.mark.parametrize("cut", [1, 2, 20_000, 100_000])
def test_what_is_cut_short_is_refused(cut: int) -> None:
    op = ListOffsetsOps([ListOffsetsOp("a-topic", i, -1) for i in range(10_000)])
    asked = payload(encode_request(1, 4, 1, "", "", 1, encode_body(op)))
    with pytest.raises(ProtocolError):
        _read(asked[:-cut])


@pytest.mark.parametrize(
    "bad",
    [
        b"",
        b"\x01",
        b"\xc1" * 50_000,  # no msgpack
        b"\x97\x01\x02\x01\xa0\xa0\x01\x81" + b"\x01" * 50_000,  # a map
        b"\x97\x01\x02\x01\xa0\xa0\x01\xdd\xff\xff\xff\xff" + b"\x01" * 50_000,
        b"\x97\x01\x02\x01\xa0\xa0\x01\x91" + b"\x91" * 50_000,  # arrays in arrays
        b"\x97\xa0\x02\x01\xa0\xa0\x01\x90" + b"\x01" * 50_000,  # an id that is text
    ],
)
def test_what_is_no_envelope_is_refused(bad: bytes) -> None:
    with pytest.raises(ProtocolError):
        _read(bad)


def _read(asked: bytes) -> Any:
    long = LongPayload(asked)
    long.request()
    return run(long.body())[0]
