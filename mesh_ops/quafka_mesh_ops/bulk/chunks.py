"""What travels inside the TLS connection: interleaved answers one way, acknowledgements the other.

A connection begins, in clear text, with `OPENING` and the name of an offer (ops/bulk.py). TLS
follows. Its first bytes from the gateway are the token of the offer.

From the broker come chunks of answers, each with a header. An answer is one frame (frames.py).

| part | bytes | meaning |
| --- | --- | --- |
| kind | 1 | see `ChunkKind` |
| stream | 4 | tells answers apart that are under way at the same time |
| size | 4 | bytes of the whole frame, with its header |
| length | 4 | bytes of the frame that follow; at most MAX_CHUNK |

The gateway sends 8 bytes at a time: the number of chunk bytes, without headers, that it has
received since the beginning. All integers are big endian. No I/O.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from enum import IntEnum

from quafka_mesh_ops.errors import ProtocolError
from quafka_mesh_ops.frames import MAX_FRAME, MAX_STREAMS, Frame, FrameReader
from quafka_mesh_ops.ops.base import Buffer

OPENING = b"QFB1"
NAME_BYTES, TOKEN_BYTES = 16, 32
MAX_CHUNK = 128 << 10
"""A small answer waits for a few chunks of others at most."""
MAX_UNFINISHED = 4 * MAX_FRAME
"""Bytes of incomplete answers that a gateway holds. A broker stays below (sender.py)."""
WINDOW = 16 << 20
"""Chunk bytes that may be under way, unacknowledged."""

_HEADER = struct.Struct(">BIII")
_LARGEST = MAX_FRAME + 6
_TOTAL = struct.Struct(">Q")


class ChunkKind(IntEnum):
    """The kinds of chunks.

    - READY: the token was accepted; the first chunk of a connection.
    - DATA: bytes of a frame.
    - RESET: the rest of the frame will not be sent.
    """

    READY = 0
    DATA = 1
    RESET = 2


def data_header(stream: int, size: int, length: int) -> bytes:
    """Encode the header of a chunk with `length` bytes of a frame of `size` bytes."""
    return _HEADER.pack(ChunkKind.DATA, stream & 0xFFFF_FFFF, size, length)


def empty_chunk(kind: ChunkKind, stream: int = 0) -> bytes:
    """Encode a READY or RESET chunk."""
    return _HEADER.pack(kind, stream & 0xFFFF_FFFF, 0, 0)


def encode_received(total: int) -> bytes:
    """Encode an acknowledgement."""
    return _TOTAL.pack(total)


class TotalReader:
    """Reads acknowledgements."""

    def __init__(self) -> None:
        self._held = b""

    def feed(self, data: Buffer) -> int | None:
        """Return the last total that `data` completes, if any."""
        held = self._held + bytes(data)
        whole = len(held) - len(held) % _TOTAL.size
        self._held = held[whole:]
        return _TOTAL.unpack_from(held, whole - _TOTAL.size)[0] if whole else None


class _Unfinished:
    """A frame of which some bytes have arrived."""

    __slots__ = ("at", "bytes")

    def __init__(self, size: int) -> None:
        self.bytes = memoryview(bytearray(size))
        self.at = 0


class ChunkReader:
    """Reads chunks straight into the frames of answers, without a copy in between.

    Attributes:
        ready: whether READY has arrived.
        received: bytes of frames so far, as an acknowledgement counts them.
    """

    def __init__(self) -> None:
        self.ready = False
        self.received = 0
        self._unfinished: dict[int, _Unfinished] = {}
        self._unfinished_bytes = 0
        self._head = memoryview(bytearray(_HEADER.size))
        self._head_at = 0
        self._stream = 0
        self._left = 0

    def read(self, read_into: Callable[[memoryview], int]) -> list[Frame]:
        """Read all there is; returns the frames that are complete.

        `read_into` fills the beginning of a buffer and returns the number of bytes, 0 at the end.

        Raises:
            ProtocolError: the bytes are not chunks, or these are not frames.
        """
        frames: list[Frame] = []
        while True:
            if self._left:
                frame = self._unfinished[self._stream]
                count = read_into(frame.bytes[frame.at : frame.at + self._left])
                frame.at += count
                self._left -= count
                self.received += count
                if frame.at == len(frame.bytes):
                    self._drop(self._stream)
                    frames.append(_only_frame(frame.bytes))
            else:
                count = read_into(self._head[self._head_at :])
                self._head_at += count
                if self._head_at == _HEADER.size:
                    self._head_at = 0
                    self._begin(*_HEADER.unpack(self._head))
            if not count:
                return frames

    def _begin(self, kind: int, stream: int, size: int, length: int) -> None:
        if self.ready == (kind == ChunkKind.READY):
            raise ProtocolError("READY is the first chunk and no other")
        self.ready = True
        if kind == ChunkKind.DATA:
            self._begin_data(stream, size, length)
        elif kind not in (ChunkKind.READY, ChunkKind.RESET):
            raise ProtocolError(f"unknown kind of chunk {kind}")
        elif size or length:
            raise ProtocolError(f"a {ChunkKind(kind).name} chunk of {length} bytes")
        else:
            self._drop(stream)

    def _begin_data(self, stream: int, size: int, length: int) -> None:
        frame = self._unfinished.get(stream)
        if frame is None:
            total = self._unfinished_bytes + size
            if len(self._unfinished) >= MAX_STREAMS or total > MAX_UNFINISHED:
                raise ProtocolError("too many incomplete answers at once")
            if size > _LARGEST:
                raise ProtocolError(f"a frame of {size} bytes")
            self._unfinished_bytes = total
            frame = self._unfinished[stream] = _Unfinished(size)
        if size != len(frame.bytes) or not 0 < length <= min(MAX_CHUNK, size - frame.at):
            raise ProtocolError(f"a chunk of {length} bytes for a frame of {size}")
        self._stream = stream
        self._left = length

    def _drop(self, stream: int) -> None:
        frame = self._unfinished.pop(stream, None)
        if frame is not None:
            self._unfinished_bytes -= len(frame.bytes)


def _only_frame(data: memoryview) -> Frame:
    reader = FrameReader()
    frames = reader.feed(data)
    if len(frames) != 1 or not reader.between_frames:
        raise ProtocolError("an answer is not one frame")
    return frames[0]
