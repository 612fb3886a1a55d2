"""Bulk replies: each on a unidirectional stream of its own, a bounded amount at once.

A bulk reply never stands in the way of the control stream, nor for long in that of other replies.
QUIC itself has no back-pressure that its user sees, so the bound is here: the next reply is begun
when one of those before it has been sent, which the peer's acknowledgements set the pace for.
"""

from __future__ import annotations

from collections import OrderedDict

from quafka_mesh_ops.ops.base import Buffer
from quafka_mesh_ops.transport.connection import Connection

_SENDING = 3
"""Replies whose bytes are being sent. aioquic tries every such stream for every packet."""
_OPEN = 32
"""Replies that are not acknowledged in full."""


class BulkReplies:
    """The bulk replies of one connection, begun in the order in which they were added."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._queued: OrderedDict[int, tuple[list[Buffer], int]] = OrderedDict()
        self._open: dict[int, tuple[int, int]] = {}  # stream id -> (request id, bytes)
        self._sending: set[int] = set()
        self.backlog = 0
        """Bytes of replies that the peer has not acknowledged in full."""

    def add(self, request_id: int, frame: list[Buffer]) -> None:
        """Send a frame, now or when it is its turn."""
        size = sum(map(len, frame))
        self._queued[request_id] = (frame, size)
        self.backlog += size
        self._begin()

    def drop(self, request_id: int) -> None:
        """The peer does not want this reply any more."""
        queued = self._queued.pop(request_id, None)
        if queued is not None:
            self.backlog -= queued[1]
            return
        for stream_id, (request, _) in self._open.items():
            if request == request_id:
                self._connection.reset_stream(stream_id)
                self.stream_over(stream_id)
                return

    def progress(self) -> None:
        """Begin replies in place of those that have been sent."""
        connection = self._connection
        self._sending.difference_update([s for s in self._sending if connection.is_sent(s)])
        for stream_id in [s for s in self._open if connection.is_delivered(s)]:
            self.stream_over(stream_id)
        self._begin()

    def stream_over(self, stream_id: int) -> None:
        """Nothing more will be sent on this stream."""
        over = self._open.pop(stream_id, None)
        if over is not None:
            self.backlog -= over[1]
            self._sending.discard(stream_id)

    def _begin(self) -> None:
        while self._queued and len(self._sending) < _SENDING and len(self._open) < _OPEN:
            request_id, (frame, size) = self._queued.popitem(last=False)
            stream_id = self._connection.open_stream(unidirectional=True)
            self._open[stream_id] = (request_id, size)
            self._sending.add(stream_id)
            self._connection.write(stream_id, frame, end_stream=True)
