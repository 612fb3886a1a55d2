"""The frames on a mesh stream: carrier frames around the msgpack payloads. No I/O.

A stream carries frames, one after the other:

| part | bytes | meaning |
| --- | --- | --- |
| tag | 1 | the type of the payload, see `Tag` |
| length | 1 to 5 | bytes of payload, unsigned LEB128, shortest form |
| payload | length | |

| tag | payload (msgpack) |
| --- | --- |
| OP | `[request_id, op_code, org_id, traceparent, tracestate, deadline_ms, body]` |
| RESPONSE | `[request_id, error_code, body, traceparent]`, body nil unless error_code is 0 |
| PING, PONG | an integer, sent back unchanged |
| CANCEL | `request_id`; follows its OP on the same stream |
| GOAWAY | empty: the sender takes no more ops on this connection |
| PLACED | `[position, length]`: an OP frame, header included, in the sender's shared memory |
| PIECE | 8 bytes `request_id`, one byte `PieceKind`, then a piece of an OP frame with its header |
| SHARD | a shard's number: the OP frames that follow on this stream are for it |
| SHARD_GOAWAY | a shard's number: the sender takes no more ops for it |

The arrays of OP and RESPONSE (`envelopes.py`) only ever grow at the end: a reader ignores values
that it does not know. A new tag or a changed meaning needs a new ALPN name (`quafka-mesh/1` now),
unless an op has shown that the peer knows it: PLACED follows OPEN_MEMORY (`memory/`), SHARD and
SHARD_GOAWAY follow an OPEN_SHARD for one of several shards, PIECE follows OPEN_PIECES
(`pieces.py`).
Maps and extension types are refused.
"""

from __future__ import annotations

import struct
from enum import IntEnum
from typing import cast

from quafka_mesh_ops.errors import ProtocolError
from quafka_mesh_ops.ops.base import Buffer
from quafka_mesh_ops.payloads import msgpack, unpack
from quafka_proto.arriving import ArrivingBytes

MAX_FRAME = 112 << 20
"""Payload bytes. Above the largest Kafka request that the gateway accepts (100 MiB)."""

LANES = 4
"""Ordered streams besides the control stream. The client opens these five bidirectional streams,
control first, and keeps them; a large response gets a unidirectional stream of its own."""

MAX_STREAMS = 64
"""Incoming streams that may have an unfinished frame; both ends stay well below. (aioquic enforces
the limit of 128 open streams of each type.)"""

_LEB128_MAX_BYTES = 5
_PIECE_HEAD = struct.Struct(">QB")


class Tag(IntEnum):
    """The type of a frame's payload."""

    OP = 0x01
    RESPONSE = 0x02
    PING = 0x03
    PONG = 0x04
    CANCEL = 0x05
    GOAWAY = 0x06
    PLACED = 0x07
    SHARD = 0x08
    SHARD_GOAWAY = 0x09
    PIECE = 0x0A


class PieceKind(IntEnum):
    """What follows a piece of an OP frame."""

    MORE = 0
    LAST = 1
    """Nothing: the frame is whole."""
    ABANDONED = 2
    """Nothing: the op was cancelled before its frame was whole."""


_TAGS = {int(tag): tag for tag in Tag}
Frame = tuple[Tag, Buffer]


def frame_header(tag: Tag, length: int) -> bytes:
    """The tag and the length of a frame whose payload has `length` bytes."""
    if length <= 0x7F:
        return bytes((tag, length))
    if length <= 0x3FFF:
        return bytes((tag, length & 0x7F | 0x80, length >> 7))
    header = bytearray((tag,))
    while length > 0x7F:
        header.append(length & 0x7F | 0x80)
        length >>= 7
    header.append(length)
    return bytes(header)


def encode_number(tag: Tag, number: int) -> bytes:
    """Encode a frame whose payload is an integer."""
    payload = cast(bytes, msgpack.packb(number))
    return frame_header(tag, len(payload)) + payload


def decode_number(payload: Buffer) -> int:
    """Decode the payload of a frame that is an integer. Raises ProtocolError."""
    number = unpack(payload)
    if type(number) is not int:
        raise ProtocolError("the payload is not an integer")
    return number


def encode_goaway() -> bytes:
    """Encode a GOAWAY frame."""
    return frame_header(Tag.GOAWAY, 0)


def encode_placed(position: int, length: int) -> bytes:
    """Encode a PLACED frame."""
    payload = cast(bytes, msgpack.packb((position, length)))
    return frame_header(Tag.PLACED, len(payload)) + payload


def decode_placed(payload: Buffer) -> tuple[int, int]:
    """Decode the payload of a PLACED frame: position and length. Raises ProtocolError."""
    match cast(object, unpack(payload)):
        case [int(position), int(length)]:
            return position, length
        case _:
            raise ProtocolError("the payload is not a position and a length")


def encode_piece(request_id: int, piece: PieceKind, data: list[Buffer]) -> list[Buffer]:
    """Encode a PIECE frame; `data` is passed by reference."""
    header = frame_header(Tag.PIECE, _PIECE_HEAD.size + sum(map(len, data)))
    return [header + _PIECE_HEAD.pack(request_id, piece), *data]


def decode_piece(payload: Buffer) -> tuple[int, PieceKind, memoryview]:
    """Decode a PIECE frame: the request id, what follows, and the data. Raises ProtocolError."""
    if len(payload) < _PIECE_HEAD.size:
        raise ProtocolError("the payload is not a piece of a frame")
    request_id, piece = _PIECE_HEAD.unpack_from(payload)
    if piece > PieceKind.ABANDONED:
        raise ProtocolError(f"a piece of kind {piece}")
    return request_id, PieceKind(piece), memoryview(payload)[_PIECE_HEAD.size :]


class FrameReader:
    """Cuts the bytes of one stream into frames, regardless of how they were fragmented.

    The reader must not be fed again after a ProtocolError.
    """

    __slots__ = ("_arriving", "_length", "_length_bytes", "_limit", "_tag")

    def __init__(self, limit: int | None = None) -> None:
        """`limit`: payload bytes of a frame; MAX_FRAME by default."""
        self._limit = MAX_FRAME if limit is None else limit
        self._tag: Tag | None = None
        self._length = 0
        self._length_bytes = 0
        self._arriving: ArrivingBytes | None = None  # the payload, once its length is known

    @property
    def unfinished(self) -> int:
        """Payload bytes held for a frame that is not complete yet."""
        return 0 if self._arriving is None else self._arriving.size

    @property
    def between_frames(self) -> bool:
        """Whether the stream may end here."""
        return self._tag is None

    def feed(self, data: Buffer) -> list[Frame]:
        """Return the frames that `data` completes, in order. Payloads may be views of `data`.

        Raises:
            ProtocolError: unknown tag, over-long length, or a frame above the limit.
        """
        frames: list[Frame] = []
        data = memoryview(data)
        position, end = 0, len(data)
        while position < end:
            arriving = self._arriving
            if arriving is None:
                position = self._read_header(data, position)
                arriving = self._arriving
                if arriving is None:
                    break
            part = data[position : position + self._length - arriving.size]
            position += len(part)
            if arriving.size + len(part) < self._length:
                arriving.add(part)
                break
            assert self._tag is not None
            if arriving.size:
                arriving.add(part)
                frames.append((self._tag, arriving.take()))
            else:
                frames.append((self._tag, part))
            self._tag = self._arriving = None
        return frames

    def _read_header(self, data: memoryview, position: int) -> int:
        """Read header bytes from `position` on; sets `_arriving` once the length is known."""
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
                self._arriving = ArrivingBytes()
                break
            if self._length_bytes == _LEB128_MAX_BYTES:
                raise ProtocolError("a frame length of more than five bytes")
        return position


class StreamFrames:
    """A frame reader for each incoming stream of one connection, with a limit on their sum."""

    __slots__ = ("_limit", "_readers", "_total_limit", "unfinished")

    def __init__(self, total_limit: int, limit: int | None = None) -> None:
        self._limit = limit
        self._total_limit = total_limit
        self._readers: dict[int, FrameReader] = {}
        self.unfinished = 0

    def feed(self, stream_id: int, data: Buffer, end_stream: bool) -> list[Frame]:
        """Return the frames that `data` completes on this stream.

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
        """Discard the reader of a stream that its sender has reset."""
        reader = self._readers.pop(stream_id, None)
        if reader is not None:
            self.unfinished -= reader.unfinished
