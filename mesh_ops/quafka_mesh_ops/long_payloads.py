"""Long mesh payloads, read and written in short steps.

An op on 100,000 partitions takes a few hundred milliseconds to encode or decode. The generators
here yield every few dozen values, so that their callers can let other work run. They read and
write the same bytes as `envelopes`.
"""

from __future__ import annotations

import io
from collections.abc import Generator
from typing import Any, cast

from quafka_mesh_ops import payloads
from quafka_mesh_ops.envelopes import (
    ENVELOPE_COST,
    REQUEST_TYPES,
    RESPONSE_TYPES,
    RequestEnvelope,
    ResponseEnvelope,
    check_request,
    check_response,
    checked,
    decode_request,
    decode_response,
    request_from,
    response_from,
)
from quafka_mesh_ops.errors import OpTooLargeError
from quafka_mesh_ops.ops.base import AnyStruct, Buffer, carries_records
from quafka_mesh_ops.ops.codec import fields_to_wire, is_long, long_parts, to_wire
from quafka_mesh_ops.payloads import (
    CostCounter,
    check_cost,
    msgpack,
    pack_pieces,
    unpack_few,
    unpack_options,
    unreadable,
)

SHORT = 32 << 10
"""Bytes of a payload that is read in one step: some milliseconds at most."""
_STEP = 32  # a power of two
_PIECE = 64 << 10
_LARGE = 1 << 10
"""Average bytes of an array's items above which each item is read in steps of its own."""
_ARRAYS = {0xDC, 0xDD}


def request_of(payload: Buffer) -> tuple[RequestEnvelope, LongPayload | None]:
    """Decode an OP frame's payload. With a LongPayload, the request's body is yet to be read.

    Raises:
        ProtocolError: it is not an envelope.
    """
    if len(payload) <= SHORT:
        return decode_request(payload), None
    values = unpack_few(payload)
    if values is not None:
        return request_from(values), None
    long = LongPayload(payload)
    return long.request(), long


def response_of(payload: Buffer) -> tuple[ResponseEnvelope, LongPayload | None]:
    """Decode a RESPONSE frame's payload, as `request_of`."""
    if len(payload) <= SHORT:
        return decode_response(payload), None
    values = unpack_few(payload)
    if values is not None:
        return response_from(values), None
    long = LongPayload(payload)
    return long.response(), long


class LongPayload:
    """A payload whose envelope is read first and whose body is read later, in steps.

    Raises:
        ProtocolError: from each method; the payload is not an envelope.
    """

    def __init__(self, payload: Buffer) -> None:
        self._payload = payload
        self._counter = CostCounter()
        self._reader = msgpack.Unpacker(
            io.BytesIO(payload), read_size=_PIECE, max_buffer_size=len(payload) + _PIECE,
            **unpack_options(len(payload), self._counter.count),
        )  # fmt: skip
        self._count = self._guarded(self._header)

    def request(self) -> RequestEnvelope:
        """Read a request's envelope, with an empty body."""
        head = self._head(len(REQUEST_TYPES) - 1)
        return check_request(RequestEnvelope(*checked([*head, []], REQUEST_TYPES)))

    def response(self) -> ResponseEnvelope:
        """Read a response's envelope up to its body, with an empty body and no traceparent."""
        head = self._head(2)
        return ResponseEnvelope(*checked([*head, [], ""], RESPONSE_TYPES))

    def body(self) -> Generator[None, None, Any]:
        """Read the values of the body, which follow the envelope's first values."""
        try:
            return (yield from self._value())
        except (ValueError, RecursionError, msgpack.UnpackException) as e:
            raise unreadable(e) from e

    def rest(self, envelope: ResponseEnvelope, body: Any) -> ResponseEnvelope:
        """Read the values after the body; returns the complete response."""
        values = [envelope.request_id, envelope.error_code, body, *self._head(self._count - 3)]
        return check_response(ResponseEnvelope(*checked(values, RESPONSE_TYPES)))

    def _head(self, count: int) -> list[Any]:
        return [self._guarded(self._reader.unpack) for _ in range(count)]

    def _guarded(self, read: Any) -> Any:
        try:
            return read()
        except (ValueError, RecursionError, msgpack.UnpackException) as e:
            raise unreadable(e) from e

    def _header(self) -> int:
        count: int = self._reader.read_array_header()
        if count > payloads.MAX_ARRAY:
            raise ValueError(f"a list of more than {payloads.MAX_ARRAY} values")
        return count

    def _value(self) -> Generator[None, None, Any]:
        reader, payload = self._reader, self._payload
        at: int = reader.tell()
        if at >= len(payload) or not (payload[at] & 0xF0 == 0x90 or payload[at] in _ARRAYS):
            return reader.unpack()
        count = self._header()
        items: list[Any] = []
        # msgpack reads a short item as a whole, which is much faster than in steps.
        large = count * _LARGE < len(payload) - at
        for number in range(count):
            items.append((yield from self._value()) if large else reader.unpack())
            if number & (_STEP - 1) == _STEP - 1:
                yield
        yield
        return self._counter.count(items)


def encode_body_in_steps(struct: AnyStruct) -> Generator[None, None, list[Buffer]]:
    """Encode as `envelopes.encode_body`. The op must not change before the last step.

    Raises:
        OpTooLargeError, TypeError, ValueError, OverflowError: as `envelopes.encode_body`.
    """
    writer = _Writer(carries_records(struct))
    yield from writer.write(struct)
    return writer.finish()


class _Writer:
    def __init__(self, carries_records: bool) -> None:
        self._packer = msgpack.Packer(autoreset=False)
        self._pieces: list[Buffer] = []
        self._carries_records = carries_records
        self._counter = CostCounter(ENVELOPE_COST)
        self._too_large: OpTooLargeError | None = None

    def write(self, struct: AnyStruct) -> Generator[None, None, None]:
        """Write one struct; its long lists item by item."""
        if not is_long(struct):
            self._pack(to_wire(struct))
            return
        parts = long_parts(struct)
        values = fields_to_wire(struct, without=parts)
        self._array(values)
        for place, value in enumerate(values):
            if place not in parts:
                self._pack(value)
                continue
            items = parts[place]
            if not isinstance(items, list):
                yield from self.write(items)
                continue
            self._array(items)
            for number, item in enumerate(items):
                yield from self.write(item)
                if number & (_STEP - 1) == _STEP - 1:
                    self._flush()
                    yield

    def finish(self) -> list[Buffer]:
        """Return all pieces."""
        self._pieces.append(self._packer.bytes())
        if self._too_large is not None and sum(map(len, self._pieces)) > payloads.UNCOUNTED:
            raise self._too_large
        return self._pieces

    def _array(self, items: list[Any]) -> None:
        """Write the header of an array whose items follow, each counted separately."""
        self._packer.pack_array_header(len(items))
        if len(items) > payloads.MAX_ARRAY:
            self._too_large = OpTooLargeError(f"a list of more than {payloads.MAX_ARRAY} values")
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
