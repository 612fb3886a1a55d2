"""The bytes on a mesh stream: carrier frames and the msgpack envelopes inside them. No I/O.

A stream carries frames, one after the other:

| part | bytes | meaning |
| --- | --- | --- |
| tag | 1 | what the payload is, see `Tag` |
| length | 1 to 5 | bytes of payload, unsigned LEB128, shortest form |
| payload | length | |

| tag | payload (msgpack) |
| --- | --- |
| OP | `[request_id, op_code, org_id, traceparent, tracestate, deadline_ms, body]` |
| RESPONSE | `[request_id, error_code, body, traceparent]`, body nil unless error_code is 0 |
| PING, PONG | an integer, sent back unchanged |
| CANCEL | `request_id`; follows its OP on the same stream |
| GOAWAY | empty: the sender takes no more ops on this connection |

Arrays only ever grow at the end: a reader ignores what it does not know. A new tag or a changed
meaning needs a new ALPN name (`quafka-mesh/1` now). Maps and extension types are refused.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, cast

import msgpack as untyped_msgpack  # type: ignore[import-untyped]  # pyright: ignore[reportMissingTypeStubs]

from quafka_mesh_ops.errors import OpTooLargeError, ProtocolError
from quafka_mesh_ops.ops import by_reference
from quafka_mesh_ops.ops.base import Buffer, WireStruct
from quafka_mesh_ops.ops.codec import to_wire
from quafka_mesh_ops.ops.records import FetchOpsResp, ProduceOps
from quafka_telemetry.garbage import without_gc

msgpack: Any = untyped_msgpack

MAX_FRAME = 112 << 20
"""Payload bytes. Above the largest Kafka request that the gateway takes (100 MiB)."""

LANES = 4
"""Ordered streams beside the control stream. The client opens these five bidirectional streams,
control first, and keeps them; a large response gets a unidirectional stream of its own."""

_LEB128_MAX_BYTES = 5
MAX_ARRAY = 1 << 17
"""More elements than any op has. msgpack allocates an array before it reads its elements."""
_MAX_COST = 1_900_000
_ARRAY_COST = 10
"""What a payload may cost to read: each value counts once, each array so many times more, which is
how long msgpack takes for one. A fetch of 100,000 partitions, the most that a topic has, is within
it. Of one byte each, msgpack makes up to 64 bytes of memory, and bounds each array but not their
sum."""
ENVELOPE_COST = 2 * _ARRAY_COST + 16
"""What the reader counts beside the body, with room for values that are added later."""
UNCOUNTED = 64 << 10
"""Bytes of a payload that cannot become much, whatever it is."""
MAX_STREAMS = 64
"""Incoming streams that may be in the middle of something; both ends keep well below. (That no
peer has more than 128 of a kind open is aioquic's to see to.)"""
_BY_REFERENCE = by_reference.LONG
"""Byte strings at least this long are passed on by reference instead of being copied."""
CARRIES_RECORDS = (ProduceOps, FetchOpsResp)


class Tag(IntEnum):
    """What a frame's payload is."""

    OP = 0x01
    RESPONSE = 0x02
    PING = 0x03
    PONG = 0x04
    CANCEL = 0x05
    GOAWAY = 0x06


_TAGS = {int(tag): tag for tag in Tag}
Frame = tuple[Tag, Buffer]


# --- carrier frames -------------------------------------------------------------------------


def frame_header(tag: Tag, length: int) -> bytes:
    """The tag and the length of a frame whose payload has `length` bytes."""
    header = bytearray((tag,))
    while length > 0x7F:
        header.append(length & 0x7F | 0x80)
        length >>= 7
    header.append(length)
    return bytes(header)


class FrameReader:
    """Cuts the bytes of one stream into frames, however they were fragmented.

    After a ProtocolError the reader must not be fed again.
    """

    __slots__ = ("_held", "_length", "_length_bytes", "_limit", "_parts", "_tag")

    def __init__(self, limit: int | None = None) -> None:
        """`limit`: payload bytes of a frame; MAX_FRAME where none is given."""
        self._limit = MAX_FRAME if limit is None else limit
        self._tag: Tag | None = None
        self._length = 0
        self._length_bytes = 0
        self._parts: list[Buffer] | None = None
        self._held = 0

    @property
    def unfinished(self) -> int:
        """Payload bytes held of a frame that is not complete yet."""
        return self._held

    @property
    def between_frames(self) -> bool:
        """Whether the stream may end here."""
        return self._tag is None

    def feed(self, data: Buffer) -> list[Frame]:
        """The frames that `data` completes, in order. They may be parts of it.

        Raises:
            ProtocolError: unknown tag, over-long length, or a frame above the limit.
        """
        frames: list[Frame] = []
        data = memoryview(data)
        position, end = 0, len(data)
        while position < end:
            if self._parts is None:
                position = self._read_header(data, position)
                if self._parts is None:
                    break
            part = data[position : position + self._length - self._held]
            position += len(part)
            if self._held + len(part) == self._length:
                assert self._tag is not None
                frames.append((self._tag, b"".join((*self._parts, part)) if self._held else part))
                self._tag = self._parts = None
                self._held = 0
            else:
                self._keep(self._parts, part)
        return frames

    def _keep(self, parts: list[Buffer], part: memoryview) -> None:
        """Keep a part of a frame; short ones in one piece, so that they take no more memory."""
        self._held += len(part)
        if len(part) >= _BY_REFERENCE:
            parts.append(part)
        elif parts and isinstance(parts[-1], bytearray):
            parts[-1] += part
        else:
            parts.append(bytearray(part))

    def _read_header(self, data: memoryview, position: int) -> int:
        """Read header bytes from `position` on; sets `_parts` once the length is known."""
        if self._tag is None:
            self._tag = _TAGS.get(data[position])
            if self._tag is None:
                raise ProtocolError(f"unknown frame tag 0x{data[position]:02x}")
            self._length = self._length_bytes = 0
            position += 1
        while position < len(data):
            byte = data[position]
            position += 1
            self._length |= (byte & 0x7F) << (7 * self._length_bytes)
            self._length_bytes += 1
            if self._length > self._limit:
                raise ProtocolError(f"a frame of more than {self._limit} bytes")
            if not byte & 0x80:
                if not byte and self._length_bytes > 1:
                    raise ProtocolError("a frame length that is not in its shortest form")
                self._parts = []
                break
            if self._length_bytes == _LEB128_MAX_BYTES:
                raise ProtocolError("a frame length of more than five bytes")
        return position


class StreamFrames:
    """A frame reader for each incoming stream of one connection, and their bound in sum."""

    __slots__ = ("_limit", "_readers", "_total_limit", "unfinished")

    def __init__(self, total_limit: int, limit: int | None = None) -> None:
        self._limit = limit
        self._total_limit = total_limit
        self._readers: dict[int, FrameReader] = {}
        self.unfinished = 0

    def feed(self, stream_id: int, data: bytes, end_stream: bool) -> list[Frame]:
        """The frames that `data` completes on this stream.

        Raises:
            ProtocolError: see FrameReader; or the stream ended inside a frame; or the
                connection's streams, or its unfinished frames, exceed their limit.
        """
        reader = self._readers.get(stream_id)
        if reader is None:
            if len(self._readers) >= MAX_STREAMS:
                raise ProtocolError(f"more than {MAX_STREAMS} streams at once")
            reader = self._readers[stream_id] = FrameReader(self._limit)
        before = reader.unfinished
        frames = reader.feed(data)
        self.unfinished += reader.unfinished - before
        if self.unfinished > self._total_limit:
            raise ProtocolError(f"more than {self._total_limit} bytes of unfinished frames")
        if end_stream:
            if not reader.between_frames:
                raise ProtocolError("a stream ended inside a frame")
            del self._readers[stream_id]
        return frames

    def drop(self, stream_id: int) -> None:
        """Forget a stream that its sender has reset."""
        reader = self._readers.pop(stream_id, None)
        if reader is not None:
            self.unfinished -= reader.unfinished


# --- envelopes ------------------------------------------------------------------------------


@dataclass(slots=True)
class Request:
    """An OP frame's envelope. `deadline_ms`: time left when it was sent, in milliseconds.

    `came`: noted of one that has to wait before it is begun, in ns since the epoch.
    """

    request_id: int
    op_code: int
    org_id: int
    traceparent: str
    tracestate: str
    deadline_ms: int
    body: list[Any]
    came: int | None = None


@dataclass(slots=True)
class Response:
    """A RESPONSE frame's envelope. `body` is None unless `error_code` is 0."""

    request_id: int
    error_code: int
    body: list[Any] | None
    traceparent: str


REQUEST_TYPES = (int, int, int, str, str, int, list)
RESPONSE_TYPES = (int, int, (list, type(None)), str)


def encode_body(part: WireStruct) -> list[Buffer]:
    """An op or its answer as msgpack, in pieces: record bytes are passed by reference.

    Raises:
        OpTooLargeError: there are more values than a reader would take.
        TypeError, ValueError, OverflowError: a field has a value that its type does not allow.
    """
    packer = msgpack.Packer(autoreset=False)
    pieces: list[Buffer] = []
    values = to_wire(part)
    if isinstance(part, CARRIES_RECORDS):
        pack_pieces(packer, values, pieces)
    else:
        packer.pack(values)
    pieces.append(packer.bytes())
    if sum(map(len, pieces)) > UNCOUNTED:
        try:
            check_cost(values, Counter(ENVELOPE_COST))
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
    """A whole OP frame. `body` is what `encode_body` gave. Raises OpTooLargeError."""
    head = [request_id, op_code, org_id, traceparent, tracestate, deadline_ms]
    return _enveloped(Tag.OP, head, body, b"")


def encode_response(
    request_id: int, error_code: int, body: list[Buffer] | None, traceparent: str = ""
) -> list[Buffer]:
    """A whole RESPONSE frame; `body` None where there is an error. Raises OpTooLargeError."""
    if body is None:
        body = [msgpack.packb(None)]
    return _enveloped(Tag.RESPONSE, [request_id, error_code], body, msgpack.packb(traceparent))


def encode_number(tag: Tag, number: int) -> bytes:
    """A PING, PONG or CANCEL frame."""
    payload = cast(bytes, msgpack.packb(number))
    return frame_header(tag, len(payload)) + payload


def encode_goaway() -> bytes:
    """A GOAWAY frame."""
    return frame_header(Tag.GOAWAY, 0)


def decode_request(payload: Buffer) -> Request:
    """Read an OP frame's payload. Raises ProtocolError."""
    return check_request(Request(*_fields(payload, REQUEST_TYPES)))


def check_request(request: Request) -> Request:
    """An envelope whose values have the right types. Raises ProtocolError."""
    if request.deadline_ms < 0:
        raise ProtocolError("a negative deadline")
    return request


def decode_response(payload: Buffer) -> Response:
    """Read a RESPONSE frame's payload. Raises ProtocolError."""
    return check_response(Response(*_fields(payload, RESPONSE_TYPES)))


def check_response(response: Response) -> Response:
    """An envelope whose values have the right types. Raises ProtocolError."""
    if (response.body is None) != bool(response.error_code):
        raise ProtocolError("a response has either a body or an error")
    return response


def decode_number(payload: Buffer) -> int:
    """Read a PING, PONG or CANCEL frame's payload. Raises ProtocolError."""
    number = _unpack(payload)
    if type(number) is not int:
        raise ProtocolError("the payload is not an integer")
    return number


def _enveloped(tag: Tag, head: list[Any], body: list[Buffer], tail: bytes) -> list[Buffer]:
    packer = msgpack.Packer(autoreset=False)
    packer.pack_array_header(len(head) + 1 + bool(tail))
    for value in head:
        packer.pack(value)
    start = packer.bytes()
    length = len(start) + sum(map(len, body)) + len(tail)
    if length > MAX_FRAME:
        raise OpTooLargeError(f"an op of {length} bytes; a frame carries at most {MAX_FRAME}")
    pieces: list[Buffer] = [frame_header(tag, length) + start + body[0], *body[1:]]
    if tail:
        pieces.append(tail)
    return pieces


def check_cost(values: list[Any], counter: Counter) -> None:
    """Refuse here what would cost the whole connection there. Raises ValueError."""
    if len(values) > MAX_ARRAY:
        raise ValueError(f"a list of more than {MAX_ARRAY} values")
    counter.count(values)
    for value in values:
        if isinstance(value, list):
            check_cost(cast("list[Any]", value), counter)


def _may_be_long(value: Any) -> bool:
    if isinstance(value, list):
        return bool(cast("list[Any]", value))
    return isinstance(value, Buffer) and len(cast(Buffer, value)) >= _BY_REFERENCE


def pack_pieces(packer: Any, value: Any, pieces: list[Buffer]) -> None:
    """Pack nested lists; long byte strings become pieces of their own."""
    if isinstance(value, list):
        items = cast("list[Any]", value)
        if not any(map(_may_be_long, items)):
            packer.pack(items)
            return
        packer.pack_array_header(len(items))
        for item in items:
            pack_pieces(packer, item, pieces)
    elif isinstance(value, Buffer) and len(cast(Buffer, value)) >= _BY_REFERENCE:
        records = cast(Buffer, value)
        pieces.append(packer.bytes() + _bin_header(len(records)))
        packer.reset()
        pieces.append(records)
    else:
        packer.pack(value)


def _bin_header(length: int) -> bytes:
    """msgpack bin 16 or bin 32."""
    return (
        struct.pack(">BH", 0xC5, length) if length <= 0xFFFF else struct.pack(">BI", 0xC6, length)
    )


def _unpack(payload: Buffer) -> Any:
    values = unpack_few(payload)
    if values is not None:
        return values
    try:
        if len(payload) <= UNCOUNTED:
            return _unpack_with(payload, None)
        with without_gc():
            return _unpack_with(payload, Counter().count)
    except (ValueError, RecursionError) as e:
        raise ProtocolError(f"not a mesh payload: {type(e).__name__}: {e}") from e


def unpack_few(payload: Buffer) -> Any:
    """The value of a long payload that consists of a few long byte strings; None of others.

    Raises:
        ProtocolError: it is not a payload.
    """
    if len(payload) < by_reference.WORTHWHILE:
        return None
    try:
        return by_reference.unpack(payload)
    except by_reference.TooManyValuesError:
        return None
    except (ValueError, RecursionError) as e:
        raise ProtocolError(f"not a mesh payload: {type(e).__name__}: {e}") from e


def _unpack_with(payload: Buffer, list_hook: Callable[[list[Any]], list[Any]] | None) -> Any:
    return msgpack.unpackb(payload, **options(payload, list_hook))


def options(payload: Buffer, list_hook: Callable[[list[Any]], list[Any]] | None) -> dict[str, Any]:
    """How msgpack is to read a payload."""
    return {
        "raw": False,
        "max_array_len": min(len(payload), MAX_ARRAY),
        "max_map_len": 0,
        "max_ext_len": 0,
        "ext_hook": _refuse_extension,
        "object_hook": _refuse_map,
        "list_hook": list_hook,
    }


class Counter:
    """Counts what a payload costs while its arrays are made."""

    def __init__(self, spent: int = 0) -> None:
        self._left = _MAX_COST - spent

    def count(self, values: list[Any]) -> list[Any]:
        """Hand an array on, if there were not too many values before."""
        self._left -= _ARRAY_COST + len(values)
        if self._left < 0:
            raise ValueError("too many values in a payload")
        return values


def _refuse_extension(code: int, data: bytes) -> Any:
    raise ValueError(f"extension type {code}")


def _refuse_map(value: dict[Any, Any]) -> Any:
    raise ValueError("a map")


def _fields(payload: Buffer, types: tuple[Any, ...]) -> list[Any]:
    """The envelope's values, checked; values after those that we know are ignored."""
    return checked(_unpack(payload), types)


def checked(values: Any, types: tuple[Any, ...]) -> list[Any]:
    """An envelope's values. Raises ProtocolError where one is missing or of another type."""
    if not isinstance(values, list) or len(cast("list[Any]", values)) < len(types):
        raise ProtocolError("the envelope is not an array of all its values")
    known = cast("list[Any]", values)[: len(types)]
    for value, allowed in zip(known, types, strict=True):
        if not isinstance(value, allowed) or isinstance(value, bool):
            raise ProtocolError(f"an envelope value has type {type(value).__name__}")
    return known
