"""Kafka's request framing: a 4-byte big-endian length, then that many bytes. Sans-IO."""

from __future__ import annotations

import struct

from quafka_proto.arriving import ArrivingBytes
from quafka_proto.errors import Malformed

_LENGTH = struct.Struct(">i")
_LENGTH_SIZE = _LENGTH.size


class RequestFramer:
    """Cuts a byte stream into request frames.

    Holds little more memory than the bytes that have arrived: a forged length costs nothing until
    its bytes arrive, and a length above `limit` bytes is refused at once. A frame is copied once,
    as it arrives.
    """

    __slots__ = ("_arriving", "_limit", "_want", "partial")

    def __init__(self, limit: int) -> None:
        self.partial = 0
        """Bytes of the unfinished frame. Only to be read."""
        self._limit = limit
        self._arriving: ArrivingBytes | None = None  # the unfinished frame, or its length
        self._want = 0  # length of the frame being read; 0: not known yet

    def feed(self, data: bytes) -> list[bytes]:
        """Add the bytes that arrived; return the frames that are now whole, without length prefix.

        Raises:
            Malformed: a length is not positive or above the limit.
        """
        arriving = self._arriving
        if arriving is None:
            return self._cut(data, 0)
        missing = (self._want or _LENGTH_SIZE) - arriving.size
        if len(data) < missing:
            arriving.add(data)
            self.partial = arriving.size
            return []
        self._arriving = None
        self.partial = 0
        if not self._want:  # some bytes of a length have arrived before
            arriving.add(data)
            return self._cut(arriving.take(), 0)
        arriving.add(memoryview(data)[:missing])
        self._want = 0
        return [arriving.take(), *self._cut(data, missing)]

    def _cut(self, data: bytes, at: int) -> list[bytes]:
        frames: list[bytes] = []
        end = len(data)
        want = self._want
        while True:
            if not want:
                if end - at < _LENGTH_SIZE:
                    break
                (want,) = _LENGTH.unpack_from(data, at)
                if not 0 < want <= self._limit:
                    raise bad_length(data[at : at + _LENGTH_SIZE], self._limit)
                at += _LENGTH_SIZE
            if end - at < want:
                break
            frames.append(data[at : at + want])
            at += want
            want = 0
        rest = data[at:]
        self._want = want
        if rest or want:
            self._arriving = ArrivingBytes()
            self._arriving.add(rest)
            self.partial = len(rest)
        return frames


def bad_length(head: bytes, limit: int) -> Malformed:
    """Why no request begins with these four bytes."""
    if head in (b"GET ", b"POST", b"HEAD", b"PUT ", b"OPTI"):
        return Malformed("an HTTP request: this port speaks the Kafka protocol")
    if head[:2] == b"\x16\x03":
        return Malformed("a TLS handshake: this port speaks the Kafka protocol without TLS")
    length = int.from_bytes(head, "big", signed=True)
    return Malformed(f"request length {length} is outside 1 to {limit} bytes")
