"""The envelopes of ops and responses: the payloads of OP and RESPONSE frames."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, cast

from quafka_mesh_ops import frames, payloads
from quafka_mesh_ops.errors import OpTooLargeError, ProtocolError
from quafka_mesh_ops.frames import Tag, frame_header
from quafka_mesh_ops.ops.base import Buffer, WireStruct
from quafka_mesh_ops.ops.codec import to_wire
from quafka_mesh_ops.payloads import (
    ARRAY_COST,
    CostCounter,
    check_cost,
    msgpack,
    pack_pieces,
    unpack,
)

ENVELOPE_COST = 2 * ARRAY_COST + 16
"""The cost of an envelope besides its body, with room for values that are added later."""


@dataclass(slots=True)
class Request:
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
class Response:
    """The envelope of a RESPONSE frame. `body` is None unless `error_code` is 0."""

    request_id: int
    error_code: int
    body: list[Any] | None
    traceparent: str


REQUEST_TYPES = (int, int, int, str, str, int, list)
RESPONSE_TYPES = (int, int, (list, type(None)), str)


def encode_body(struct: WireStruct) -> list[Buffer]:
    """Encode an op or its answer as msgpack, in pieces: record bytes are passed by reference.

    Raises:
        OpTooLargeError: it has more values than a reader accepts.
        TypeError, ValueError, OverflowError: a field has a value that its type does not allow.
    """
    packer = msgpack.Packer(autoreset=False)
    pieces: list[Buffer] = []
    values = to_wire(struct)
    if struct.carries_records:
        pack_pieces(packer, values, pieces)
    else:
        packer.pack(values)
    pieces.append(packer.bytes())
    if sum(map(len, pieces)) > payloads.UNCOUNTED:
        try:
            check_cost(values, CostCounter(ENVELOPE_COST))
        except ValueError as e:
            raise OpTooLargeError(str(e)) from None
    return pieces


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
    head = [request_id, op_code, org_id, traceparent, tracestate, deadline_ms]
    return _enveloped(Tag.OP, head, body, b"")


def encode_response(
    request_id: int, error_code: int, body: list[Buffer] | None, traceparent: str = ""
) -> list[Buffer]:
    """Encode a RESPONSE frame; `body` is None with an error. Raises OpTooLargeError."""
    if body is None:
        body = [msgpack.packb(None)]
    return _enveloped(Tag.RESPONSE, [request_id, error_code], body, msgpack.packb(traceparent))


def decode_request(payload: Buffer) -> Request:
    """Decode the payload of an OP frame. Raises ProtocolError."""
    return check_request(Request(*checked(unpack(payload), REQUEST_TYPES)))


def check_request(request: Request) -> Request:
    """Return an envelope whose values have the right types. Raises ProtocolError."""
    if request.deadline_ms < 0:
        raise ProtocolError("a negative deadline")
    return request


def decode_response(payload: Buffer) -> Response:
    """Decode the payload of a RESPONSE frame. Raises ProtocolError."""
    return check_response(Response(*checked(unpack(payload), RESPONSE_TYPES)))


def check_response(response: Response) -> Response:
    """Return an envelope whose values have the right types. Raises ProtocolError."""
    if (response.body is None) != bool(response.error_code):
        raise ProtocolError("a response has either a body or an error")
    return response


def checked(values: Any, types: tuple[Any, ...]) -> list[Any]:
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


def _enveloped(tag: Tag, head: list[Any], body: list[Buffer], tail: bytes) -> list[Buffer]:
    packer = msgpack.Packer(autoreset=False)
    packer.pack_array_header(len(head) + 1 + bool(tail))
    for value in head:
        packer.pack(value)
    start = packer.bytes()
    length = len(start) + sum(map(len, body)) + len(tail)
    limit = frames.MAX_FRAME
    if length > limit:
        raise OpTooLargeError(f"an op of {length} bytes; a frame carries at most {limit}")
    pieces: list[Buffer] = [frame_header(tag, length) + start + body[0], *body[1:]]
    if tail:
        pieces.append(tail)
    return pieces
