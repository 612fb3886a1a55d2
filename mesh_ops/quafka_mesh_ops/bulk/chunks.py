"""What travels inside the TLS connection: interleaved answers one way, acknowledgements the other.

A connection begins, in clear text, with `OPENING` and the name of an offer (ops/bulk.py). TLS
follows. Its first bytes from the gateway are the token of the offer.

From the broker come chunks of frames (frames.py), each with a header:

| part | bytes | meaning |
| --- | --- | --- |
| kind | 1 | see `ChunkKind` |
| stream | 4 | tells answers apart that are under way at the same time |
| length | 4 | bytes that follow; at most MAX_CHUNK |

The gateway sends 8 bytes at a time: the number of chunk bytes, without headers, that it has
received since the beginning. All integers are big endian. No I/O.
"""

from __future__ import annotations

import struct
from enum import IntEnum

from quafka_mesh_ops.errors import ProtocolError
from quafka_mesh_ops.frames import MAX_FRAME, Frame, StreamFrames
from quafka_mesh_ops.ops.base import Buffer

OPENING = b"QFB1"
NAME_BYTES, TOKEN_BYTES = 16, 32
MAX_CHUNK = 128 << 10
"""A small answer waits for a few chunks of others at most."""
MAX_UNFINISHED = 4 * MAX_FRAME
"""Bytes of incomplete answers that a gateway holds. A broker stays below (sender.py)."""
WINDOW = 16 << 20
"""Chunk bytes that may be under way, unacknowledged."""

_HEADER = struct.Struct(">BII")
_TOTAL = struct.Struct(">Q")


class ChunkKind(IntEnum):
    """The kinds of chunks.

    - READY: the token was accepted; the first chunk of a connection, empty.
    - DATA: bytes of a frame; END: its last bytes.
    - RESET: the rest of the frame will not be sent; empty.
    """

    READY = 0
    DATA = 1
    END = 2
    RESET = 3


_EMPTY = (ChunkKind.READY, ChunkKind.RESET)


def chunk_header(kind: ChunkKind, stream: int, length: int) -> bytes:
    """Encode the header of a chunk."""
    return _HEADER.pack(kind, stream & 0xFFFF_FFFF, length)


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


class ChunkReader:
    """Cuts chunks into the frames of answers.

    Attributes:
        ready: whether READY has arrived.
        received: chunk bytes so far, as an acknowledgement counts them.
    """

    def __init__(self) -> None:
        self.ready = False
        self.received = 0
        self._frames = StreamFrames(MAX_UNFINISHED)
        self._head = b""
        self._kind = ChunkKind.DATA
        self._stream = 0
        self._left = 0

    def feed(self, data: Buffer) -> list[Frame]:
        """Return the frames that `data` completes. Payloads may be views of `data`.

        Raises:
            ProtocolError: it does not consist of chunks, or they do not consist of frames.
        """
        frames: list[Frame] = []
        data = memoryview(data)
        at = 0
        while at < len(data):
            if not self._left:
                at = self._read_header(data, at)
                continue
            part = data[at : at + self._left]
            at += len(part)
            self._left -= len(part)
            self.received += len(part)
            ends = self._kind is ChunkKind.END and not self._left
            frames += self._frames.feed(self._stream, part, ends)
        return frames

    def _read_header(self, data: memoryview, at: int) -> int:
        missing = _HEADER.size - len(self._head)
        self._head += data[at : at + missing]
        if len(self._head) == _HEADER.size:
            kind, self._stream, length = _HEADER.unpack(self._head)
            self._head = b""
            self._begin(kind, length)
        return at + missing

    def _begin(self, kind: int, length: int) -> None:
        try:
            self._kind = ChunkKind(kind)
        except ValueError:
            raise ProtocolError(f"unknown kind of chunk {kind}") from None
        if length > MAX_CHUNK or bool(length) == (self._kind in _EMPTY):
            raise ProtocolError(f"a {self._kind.name} chunk of {length} bytes")
        if self.ready == (self._kind is ChunkKind.READY):
            raise ProtocolError("READY is the first chunk and no other")
        self.ready = True
        self._left = length
        if self._kind is ChunkKind.RESET:
            self._frames.drop(self._stream)
