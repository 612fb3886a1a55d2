"""Large OP frames in pieces, so that small ones of other orgs pass them on the same stream.

A gateway of several orgs writes a stream only as far as the network takes it, a piece of each org
in turn. The frames of an org keep their order, and so do those of each Kafka connection. The broker
joins the pieces and continues as if the whole frame had arrived.
"""

from __future__ import annotations

from collections import deque
from typing import Generic, Protocol, TypeVar

from quafka_loop.org_queue import OrgQueue
from quafka_mesh_ops.errors import ProtocolError
from quafka_mesh_ops.frames import (
    MAX_FRAME,
    Frame,
    FrameReader,
    PieceKind,
    Tag,
    decode_piece,
    encode_piece,
)
from quafka_mesh_ops.ops.base import Buffer
from quafka_proto.arriving import ArrivingBytes

PIECE_BYTES = 64 << 10
"""Less than a millisecond of either end."""
_LEAST_BYTES = 4 << 10
"""A piece with another one after it has this much: each costs some memory besides its bytes."""
AHEAD_BYTES = 128 << 10
"""Unsent bytes of a stream above which frames wait."""


class SentOp(Protocol):
    """As much of a call as its way to a stream needs."""

    request_id: int
    org_id: int


C = TypeVar("C", bound=SentOp)
C_contra = TypeVar("C_contra", bound=SentOp, contravariant=True)


class _Waiting(Generic[C]):
    """A frame of which something is not written yet."""

    __slots__ = ("begun", "call", "frame")

    def __init__(self, call: C, frame: list[Buffer]) -> None:
        self.call = call
        self.frame = deque(frame)
        self.begun = False

    def next_piece(self) -> list[Buffer]:
        """Remove a piece, and return the frame that carries it."""
        self.begun = True
        data: list[Buffer] = []
        room = PIECE_BYTES
        while self.frame and room:
            part = memoryview(self.frame.popleft())
            if len(part) > room:
                self.frame.appendleft(part[room:])
                part = part[:room]
            data.append(part)
            room -= len(part)
        return encode_piece(
            self.call.request_id, PieceKind.MORE if self.frame else PieceKind.LAST, data
        )


class Streams(Protocol[C_contra]):
    """The streams of a connection, as `StreamTurns` needs them."""

    def write_op(self, call: C_contra, frame: list[Buffer]) -> None:
        """Write the whole frame of an op."""
        ...

    def write_piece(self, call: C_contra, frame: list[Buffer], *, is_last: bool) -> None:
        """Write a frame that carries a piece of an op's."""
        ...

    def unsent(self, index: int) -> int:
        """How many bytes of a stream have not been sent."""
        ...

    @property
    def largest_whole(self) -> int:
        """Bytes of a frame above which it is written in pieces."""
        ...


class StreamTurns(Generic[C]):
    """The OP frames of one stream that wait to be written: orgs take turns."""

    def __init__(self, streams: Streams[C], index: int) -> None:
        self._streams = streams
        self._index = index
        self._waiting: dict[int, _Waiting[C]] = {}
        """By request id."""
        self._queue: OrgQueue[int] = OrgQueue()

    @property
    def waits(self) -> bool:
        """Whether anything waits."""
        return bool(self._waiting)

    def add(self, call: C, frame: list[Buffer]) -> None:
        """Write the frame of an op after the earlier ones of its org."""
        self._waiting[call.request_id] = _Waiting(call, frame)
        self._queue.add(call.org_id, call.request_id)
        self.progress()

    def progress(self) -> None:
        """Write as much as the stream takes."""
        streams = self._streams
        while self._waiting and streams.unsent(self._index) < AHEAD_BYTES:
            first = self._waiting[self._queue.rotate()]
            if first.begun or sum(map(len, first.frame)) > streams.largest_whole:
                piece = first.next_piece()
                streams.write_piece(first.call, piece, is_last=not first.frame)
            else:
                streams.write_op(first.call, list(first.frame))
                first.frame.clear()
            if not first.frame:
                self._drop(first.call)

    def cancel(self, call: C) -> bool:
        """Drop what waits of an op; False: nothing does."""
        found = self._waiting.get(call.request_id)
        if found is None:
            return False
        self._drop(call)
        if found.begun:
            frame = encode_piece(call.request_id, PieceKind.ABANDONED, [])
            self._streams.write_piece(call, frame, is_last=False)
        return True

    def _drop(self, call: C) -> None:
        del self._waiting[call.request_id]
        self._queue.remove(call.org_id, call.request_id)


class Pieces:
    """Joins the pieces of one connection's frames.

    Attributes:
        unfinished: bytes of frames that are not whole.
    """

    def __init__(self, limit: int) -> None:
        """`limit`: of all unfinished frames together."""
        self.unfinished = 0
        self._limit = limit
        self._arriving: dict[tuple[int, int], ArrivingBytes] = {}
        """By stream and request id."""

    def clear(self) -> None:
        """Drop all pieces: the connection is over."""
        self._arriving.clear()
        self.unfinished = 0

    def feed(self, stream_id: int, payload: Buffer) -> Frame | None:
        """Take a PIECE frame; returns the OP frame that it completes.

        Raises:
            ProtocolError: it is no piece, the frame is none of an op, or there are too many bytes.
        """
        request_id, piece, data = decode_piece(payload)
        if piece is PieceKind.MORE and len(data) < _LEAST_BYTES:
            raise ProtocolError(f"a piece of {len(data)} bytes")
        key = stream_id, request_id
        if piece is PieceKind.MORE:
            self._arriving.setdefault(key, ArrivingBytes()).add(data)
            self.unfinished += len(data)
            if self.unfinished > self._limit:
                raise ProtocolError(f"more than {self._limit} bytes of unfinished frames")
            return None
        arriving = self._arriving.pop(key, None) or ArrivingBytes()
        self.unfinished -= arriving.size
        if piece is PieceKind.ABANDONED:
            return None
        arriving.add(data)
        frames = FrameReader(MAX_FRAME).feed(arriving.take())
        if len(frames) != 1 or frames[0][0] is not Tag.OP:
            raise ProtocolError("pieces that are not the frame of an op")
        return frames[0]
