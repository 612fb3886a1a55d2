"""Long mesh payloads, read and written in short steps.

An op about 100,000 partitions takes a few hundred milliseconds to encode or decode. Here that is
work of generators, which yield every few dozen values, so that their callers can let others run.
What they read and write is what `frames` reads and writes at once.
"""

from __future__ import annotations

import io
from collections.abc import Generator
from typing import Any, cast

from quafka_mesh_ops import frames
from quafka_mesh_ops.errors import OpTooLargeError, ProtocolError
from quafka_mesh_ops.frames import (
    CARRIES_RECORDS,
    ENVELOPE_COST,
    REQUEST_TYPES,
    RESPONSE_TYPES,
    Counter,
    Request,
    Response,
    check_cost,
    check_request,
    check_response,
    checked,
    decode_request,
    decode_response,
    msgpack,
    options,
    pack_pieces,
    unpack_few,
)
from quafka_mesh_ops.ops.base import Buffer, WireStruct
from quafka_mesh_ops.ops.codec import long_lists, to_wire

SHORT = 32 << 10
"""Bytes of a payload that is read at once: some milliseconds at most."""
_STEP = 32  # a power of two
_PIECE = 64 << 10
_LARGE = 1 << 10
"""Bytes of an item from which on its own items are steps."""
_ARRAYS = {0xDC, 0xDD}


def request_of(payload: Buffer) -> tuple[Request, LongPayload | None]:
    """An OP frame's payload. Where there is a LongPayload, the request's body is still in it.

    Raises:
        ProtocolError: it is not an envelope.
    """
    if len(payload) <= SHORT:
        return decode_request(payload), None
    values = unpack_few(payload)
    if values is not None:
        return check_request(Request(*checked(values, REQUEST_TYPES))), None
    long = LongPayload(payload)
    return long.request(), long


def response_of(payload: Buffer) -> tuple[Response, LongPayload | None]:
    """As `request_of`, of a RESPONSE frame's payload."""
    if len(payload) <= SHORT:
        return decode_response(payload), None
    values = unpack_few(payload)
    if values is not None:
        return check_response(Response(*checked(values, RESPONSE_TYPES))), None
    long = LongPayload(payload)
    return long.response(), long


class LongPayload:
    """A payload of which the first values of the envelope have been read: those before the body.

    Raises:
        ProtocolError: from each method; it is not an envelope.
    """

    def __init__(self, payload: Buffer) -> None:
        self._payload = payload
        self._counter = Counter()
        self._reader = msgpack.Unpacker(
            io.BytesIO(payload), read_size=_PIECE, max_buffer_size=len(payload) + _PIECE,
            **options(payload, self._counter.count),
        )  # fmt: skip
        self._count = self._guarded(self._header)

    def request(self) -> Request:
        """A request's envelope, with an empty body."""
        head = self._head(len(REQUEST_TYPES) - 1)
        return check_request(Request(*checked([*head, []], REQUEST_TYPES)))

    def response(self) -> Response:
        """A response's envelope, without its traceparent, and with an empty body."""
        head = self._head(2)
        return Response(*checked([*head, [], ""], RESPONSE_TYPES))

    def body(self) -> Generator[None, None, Any]:
        """The body's values: what stands behind the head that was read."""
        try:
            return (yield from self._value())
        except (ValueError, RecursionError, msgpack.UnpackException) as e:
            raise _unreadable(e) from e

    def rest(self, envelope: Response, body: Any) -> Response:
        """A response with its body and what stands behind that."""
        values = [envelope.request_id, envelope.error_code, body, *self._head(self._count - 3)]
        return check_response(Response(*checked(values, RESPONSE_TYPES)))

    def _head(self, count: int) -> list[Any]:
        return [self._guarded(self._reader.unpack) for _ in range(count)]

    def _guarded(self, read: Any) -> Any:
        try:
            return read()
        except (ValueError, RecursionError, msgpack.UnpackException) as e:
            raise _unreadable(e) from e

    def _header(self) -> int:
        count: int = self._reader.read_array_header()
        if count > frames.MAX_ARRAY:
            raise ValueError(f"a list of more than {frames.MAX_ARRAY} values")
        return count

    def _value(self) -> Generator[None, None, Any]:
        reader, payload = self._reader, self._payload
        at: int = reader.tell()
        if at >= len(payload) or not (payload[at] & 0xF0 == 0x90 or payload[at] in _ARRAYS):
            return reader.unpack()
        count = self._header()
        items: list[Any] = []
        # Short items are read by msgpack as a whole, which is faster by far.
        large = count * _LARGE < len(payload) - at
        for number in range(count):
            items.append((yield from self._value()) if large else reader.unpack())
            if number & (_STEP - 1) == _STEP - 1:
                yield
        yield
        return self._counter.count(items)


def _unreadable(e: Exception) -> ProtocolError:
    return ProtocolError(f"not a mesh payload: {type(e).__name__}: {e}")


def encode_body_in_steps(part: WireStruct) -> Generator[None, None, list[Buffer]]:
    """What `frames.encode_body` gives. Nobody may change the op until the last step.

    Raises:
        OpTooLargeError, TypeError, ValueError, OverflowError: as `frames.encode_body` does.
    """
    writer = _Writer(isinstance(part, CARRIES_RECORDS))
    yield from writer.part(part)
    return writer.finish()


class _Writer:
    def __init__(self, carries_records: bool) -> None:
        self._packer = msgpack.Packer(autoreset=False)
        self._pieces: list[Buffer] = []
        self._carries_records = carries_records
        self._counter = Counter(ENVELOPE_COST)
        self._too_large: OpTooLargeError | None = None

    def part(self, part: WireStruct) -> Generator[None, None, None]:
        """Write one part; its long lists item by item."""
        lists = long_lists(part)
        if not lists:
            self._pack(to_wire(part))
            return
        values = to_wire(part, without=lists)
        self._array(values)
        for place, value in enumerate(values):
            if place not in lists:
                self._pack(value)
                continue
            items = lists[place]
            self._array(items)
            for number, item in enumerate(items):
                yield from self.part(item)
                if number & (_STEP - 1) == _STEP - 1:
                    self._flush()
                    yield

    def finish(self) -> list[Buffer]:
        """All pieces."""
        self._pieces.append(self._packer.bytes())
        if self._too_large is not None and sum(map(len, self._pieces)) > frames.UNCOUNTED:
            raise self._too_large
        return self._pieces

    def _array(self, items: list[Any]) -> None:
        """The beginning of an array whose items follow, each counted by itself."""
        self._packer.pack_array_header(len(items))
        if len(items) > frames.MAX_ARRAY:
            self._too_large = OpTooLargeError(f"a list of more than {frames.MAX_ARRAY} values")
            return
        try:
            self._counter.count(items)
        except ValueError as e:
            self._too_large = OpTooLargeError(str(e))

    def _pack(self, value: Any) -> None:
        if isinstance(value, list):
            self._check(cast("list[Any]", value))
        if self._carries_records:
            pack_pieces(self._packer, value, self._pieces)
        else:
            self._packer.pack(value)

    def _check(self, values: list[Any]) -> None:
        try:
            check_cost(values, self._counter)
        except ValueError as e:
            self._too_large = OpTooLargeError(str(e))

    def _flush(self) -> None:
        written = self._packer.bytes()
        if len(written) >= _PIECE:
            self._pieces.append(written)
            self._packer.reset()
