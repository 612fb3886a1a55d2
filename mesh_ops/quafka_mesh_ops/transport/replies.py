"""Bulk replies: each on a unidirectional stream of its own, a bounded number at a time.

A bulk reply never blocks the control stream, and never blocks other replies for long. aioquic
offers no back-pressure, so the bound is here: the next reply starts when an earlier one has been
sent, at the pace of the peer's acknowledgements.
"""

from __future__ import annotations

from collections import OrderedDict

from quafka_mesh_ops.ops.base import Buffer
from quafka_mesh_ops.transport.connection import QuicSocketConnection

_SENDING = 3
"""Replies that are being sent at a time. aioquic tries every such stream for every packet."""
_OPEN = 32
"""Replies that are not fully acknowledged, at a time."""


class BulkReplies:
    """The bulk replies of one connection, started in the order of `add`."""

    def __init__(self, connection: QuicSocketConnection) -> None:
        self._connection = connection
        self._queued: OrderedDict[int, tuple[list[Buffer], int]] = OrderedDict()
        self._open: dict[int, tuple[int, int]] = {}  # stream id -> (request id, bytes)
        self._sending: set[int] = set()
        self.backlog = 0
        """Bytes of replies that are not fully acknowledged."""

    def add(self, request_id: int, frame: list[Buffer]) -> None:
        """Send a frame, now or after earlier ones."""
        size = sum(map(len, frame))
        self._queued[request_id] = (frame, size)
        self.backlog += size
        self._begin()

    def drop(self, request_id: int) -> None:
        """Drop a reply that the peer no longer wants."""
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
        """Start replies to replace those that have been sent."""
        if not self._open and not self._queued:
            return
        connection = self._connection
        self._sending.difference_update([s for s in self._sending if connection.is_sent(s)])
        for stream_id in [s for s in self._open if connection.is_delivered(s)]:
            self.stream_over(stream_id)
        self._begin()

    def stream_over(self, stream_id: int) -> None:
        """Stop counting the reply on this stream: nothing more will be sent on it."""
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
