"""The order in which the answers of one TLS connection are sent, chunk by chunk. No I/O."""

from __future__ import annotations

from collections import OrderedDict, deque

from quafka_mesh_ops.bulk.chunks import MAX_CHUNK, WINDOW, ChunkKind, data_header, empty_chunk
from quafka_mesh_ops.errors import ProtocolError
from quafka_mesh_ops.frames import MAX_FRAME
from quafka_mesh_ops.ops.base import Buffer

_UNDER_WAY = 32
"""Answers that are being sent at a time; the receiver has a buffer for each."""
_BYTES_UNDER_WAY = 2 * MAX_FRAME
"""Bytes of the answers that are being sent at a time: the receiver holds the incomplete ones."""


class _Answer:
    __slots__ = ("frame", "left", "pieces", "request_id", "size", "stream")

    def __init__(self, request_id: int, frame: list[Buffer], stream: int) -> None:
        self.request_id = request_id
        self.frame = frame
        self.stream = stream
        self.pieces = deque([memoryview(piece) for piece in frame])
        self.size = self.left = sum(map(len, frame))

    def take(self) -> list[Buffer]:
        """Remove the next chunk; returns it with its header."""
        length = min(self.left, MAX_CHUNK)
        self.left -= length
        chunk: list[Buffer] = [data_header(self.stream, self.size, length)]
        while length:
            piece = self.pieces.popleft()
            if len(piece) > length:
                self.pieces.appendleft(piece[length:])
                piece = piece[:length]
            length -= len(piece)
            if piece:
                chunk.append(piece)
        return chunk


class BulkSender:
    """The answers that wait for being sent, are being sent, or are not acknowledged yet.

    The oldest answer and the one with the fewest bytes left take turns. So a small answer never
    waits for a large one, and a large one always advances.

    Attributes:
        backlog: bytes of answers that are not fully acknowledged.
        sent: chunk bytes so far; `acknowledged` of them have been acknowledged.
    """

    def __init__(self) -> None:
        self.backlog = 0
        self.sent = 0
        self.acknowledged = 0
        self._queued: OrderedDict[int, _Answer] = OrderedDict()
        self._under_way: OrderedDict[int, _Answer] = OrderedDict()
        self._bytes_under_way = 0
        self._finished: deque[tuple[int, _Answer]] = deque()
        """The answers that have been sent, with `sent` at their end."""
        self._resets: list[int] = []
        self._last_stream = 0
        self._oldest_next = False

    def add(self, request_id: int, frame: list[Buffer]) -> None:
        """Queue an answer."""
        self._last_stream += 1
        answer = self._queued[request_id] = _Answer(request_id, frame, self._last_stream)
        self.backlog += answer.size

    def drop(self, request_id: int) -> None:
        """Send no more of an answer that the peer no longer wants."""
        answer = self._queued.pop(request_id, None)
        if answer is None:
            answer = self._under_way.pop(request_id, None)
            if answer is None:
                return
            self._bytes_under_way -= answer.size
            self._resets.append(answer.stream)
        self.backlog -= answer.size

    def next_chunk(self) -> list[Buffer]:
        """Return the next chunk with its header; empty if none may be sent now."""
        if self._resets:
            return [empty_chunk(ChunkKind.RESET, stream) for stream in self._take_resets()]
        self._begin()
        if not self._under_way or self.sent - self.acknowledged >= WINDOW:
            return []
        self._oldest_next = not self._oldest_next
        if self._oldest_next:
            answer = next(iter(self._under_way.values()))
        else:
            answer = min(self._under_way.values(), key=lambda answer: answer.left)
        before = answer.left
        chunk = answer.take()
        self.sent += before - answer.left
        if not answer.left:
            del self._under_way[answer.request_id]
            self._bytes_under_way -= answer.size
            self._finished.append((self.sent, answer))
        return chunk

    def acknowledge(self, total: int) -> None:
        """The peer has received `total` chunk bytes. Raises ProtocolError."""
        if not self.acknowledged <= total <= self.sent:
            raise ProtocolError("an acknowledgement of bytes that were not sent")
        self.acknowledged = total
        while self._finished and self._finished[0][0] <= total:
            self.backlog -= self._finished.popleft()[1].size

    def unacknowledged(self) -> list[tuple[int, list[Buffer]]]:
        """Return the answers that the peer may lack, by request id, in the order of `add`."""
        answers = [answer for _, answer in self._finished]
        answers += [*self._under_way.values(), *self._queued.values()]
        answers.sort(key=lambda answer: answer.stream)
        return [(answer.request_id, answer.frame) for answer in answers]

    def _take_resets(self) -> list[int]:
        resets, self._resets = self._resets, []
        return resets

    def _begin(self) -> None:
        while self._queued and len(self._under_way) < _UNDER_WAY:
            request_id, answer = next(iter(self._queued.items()))
            if self._under_way and self._bytes_under_way + answer.size > _BYTES_UNDER_WAY:
                return
            del self._queued[request_id]
            self._under_way[request_id] = answer
            self._bytes_under_way += answer.size
