"""The envelopes of ops and responses: the payloads of OP and RESPONSE frames."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, cast

from quafka_mesh_ops import frames, payloads
from quafka_mesh_ops.errors import OpTooLargeError, ProtocolError
from quafka_mesh_ops.frames import Tag, frame_header
from quafka_mesh_ops.ops.base import AnyStruct, Buffer, carries_records
from quafka_mesh_ops.ops.codec import to_wire
from quafka_mesh_ops.payloads import (
    ARRAY_COST,
    CostCounter,
    check_cost,
    has_long_bytes,
    msgpack,
    pack,
    pack_pieces,
    unpack,
)

ENVELOPE_COST = 2 * ARRAY_COST + 16
"""The cost of an envelope besides its body, with room for values that are added later."""


@dataclass(slots=True)
class RequestEnvelope:
    """The envelope of an OP frame.

    Attributes:
        deadline_ms: milliseconds that were left when it was sent.
        queued_at: ns since the epoch, set for an op that has to wait before it is started.
    """

    request_id: int
    op_code: int
    org_id: int
    traceparent: str
    tracestate: str
    deadline_ms: int
    body: list[Any]
    queued_at: int | None = None


@dataclass(slots=True)
class ResponseEnvelope:
    """The envelope of a RESPONSE frame. `body` is None unless `error_code` is 0."""

    request_id: int
    error_code: int
    body: list[Any] | None
    traceparent: str


_NO_BODY: list[Buffer] = [b"\xc0"]
_NO_TRACE = b"\xa0"

REQUEST_TYPES = (int, int, int, str, str, int, list)
RESPONSE_TYPES = (int, int, (list, type(None)), str)


def encode_body(struct: AnyStruct) -> list[Buffer]:
    """Encode an op or its answer as msgpack, in pieces: record bytes are passed by reference.

    Raises:
        OpTooLargeError: it has more values than a reader accepts.
        TypeError, ValueError, OverflowError: a field has a value that its type does not allow.
    """
    values = to_wire(struct)
    if carries_records(struct) and has_long_bytes(values):
        packer = msgpack.Packer(autoreset=False)
        pieces: list[Buffer] = []
        pack_pieces(packer, values, pieces)
        pieces.append(packer.bytes())
    else:
        pieces = [pack(values)]
    if length_of(pieces) > payloads.UNCOUNTED:
        try:
            check_cost(values, CostCounter(ENVELOPE_COST))
        except ValueError as e:
            raise OpTooLargeError(str(e)) from None
    return pieces


def length_of(pieces: list[Buffer]) -> int:
    """The bytes of all pieces. Short ops have one."""
    return len(pieces[0]) if len(pieces) == 1 else sum(map(len, pieces))


def encode_request(
    request_id: int,
    op_code: int,
    org_id: int,
    traceparent: str,
    tracestate: str,
    deadline_ms: int,
    body: list[Buffer],
) -> list[Buffer]:
    """Encode an OP frame. `body` is the result of `encode_body`. Raises OpTooLargeError."""
    head = pack([request_id, op_code, org_id, traceparent, tracestate, deadline_ms])
    return _enveloped(Tag.OP, b"\x97" + head[1:], body, b"")


def encode_response(
    request_id: int, error_code: int, body: list[Buffer] | None, traceparent: str = ""
) -> list[Buffer]:
    """Encode a RESPONSE frame; `body` is None with an error. Raises OpTooLargeError."""
    head = pack([request_id, error_code])
    tail = pack(traceparent) if traceparent else _NO_TRACE
    return _enveloped(Tag.RESPONSE, b"\x94" + head[1:], _NO_BODY if body is None else body, tail)


def decode_request(payload: Buffer) -> RequestEnvelope:
    """Decode the payload of an OP frame. Raises ProtocolError."""
    return request_from(unpack(payload))


def request_from(values: Any) -> RequestEnvelope:
    """Make a request of the values of its envelope. Raises ProtocolError."""
    envelope = cast("list[Any]", values)
    if type(values) is list and len(envelope) == len(REQUEST_TYPES):
        request_id, op_code, org_id, traceparent, tracestate, deadline_ms, body = envelope
        # All but hostile envelopes and those of later versions end here.
        if (
            type(request_id) is int is type(op_code) is type(org_id) is type(deadline_ms)
            and type(traceparent) is str is type(tracestate)
            and type(envelope[6]) is list
            and deadline_ms >= 0
        ):
            return RequestEnvelope(
                request_id, op_code, org_id, traceparent, tracestate, deadline_ms, body
            )
    return check_request(RequestEnvelope(*checked(values, REQUEST_TYPES)))


def check_request(request: RequestEnvelope) -> RequestEnvelope:
    """Return an envelope whose values have the right types. Raises ProtocolError."""
    if request.deadline_ms < 0:
        raise ProtocolError("a negative deadline")
    return request


def decode_response(payload: Buffer) -> ResponseEnvelope:
    """Decode the payload of a RESPONSE frame. Raises ProtocolError."""
    return response_from(unpack(payload))


def response_from(values: Any) -> ResponseEnvelope:
    """Make a response of the values of its envelope. Raises ProtocolError."""
    envelope = cast("list[Any]", values)
    if type(values) is list and len(envelope) == len(RESPONSE_TYPES):
        request_id, error_code, body, traceparent = envelope
        if (  # as above; answers with errors are rare
            type(request_id) is int is type(error_code)
            and not error_code
            and type(envelope[2]) is list
            and type(traceparent) is str
        ):
            return ResponseEnvelope(request_id, error_code, body, traceparent)
    return check_response(ResponseEnvelope(*checked(values, RESPONSE_TYPES)))


def check_response(response: ResponseEnvelope) -> ResponseEnvelope:
    """Return an envelope whose values have the right types. Raises ProtocolError."""
    if (response.body is None) != bool(response.error_code):
        raise ProtocolError("a response has either a body or an error")
    return response


def checked(values: Any, types: tuple[type | tuple[type, ...], ...]) -> list[Any]:
    """Return an envelope's known values; those that follow are ignored.

    Raises:
        ProtocolError: a value is missing or has another type.
    """
    if not isinstance(values, list) or len(cast("list[Any]", values)) < len(types):
        raise ProtocolError("the envelope is not an array of all its values")
    known = cast("list[Any]", values)[: len(types)]
    for value, allowed in zip(known, types, strict=True):
        if not isinstance(value, allowed) or isinstance(value, bool):
            raise ProtocolError(f"an envelope value has type {type(value).__name__}")
    return known


def _enveloped(tag: Tag, head: bytes, body: list[Buffer], tail: bytes) -> list[Buffer]:
    length = len(head) + len(tail) + length_of(body)
    limit = frames.MAX_FRAME
    if length > limit:
        raise OpTooLargeError(f"an op of {length} bytes; a frame carries at most {limit}")
    header = frame_header(tag, length)
    if len(body) == 1:
        return [b"".join((header, head, body[0], tail))]
    start = b"".join((header, head, body[0]))
    return [start, *body[1:], tail] if tail else [start, *body[1:]]
