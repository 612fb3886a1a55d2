"""Bulk replies of one connection: over TLS while such a connection is open, else over QUIC."""

from __future__ import annotations

from collections.abc import Callable

from quafka_mesh_ops.bulk.broker_channel import BrokerChannel
from quafka_mesh_ops.ops.base import Buffer
from quafka_mesh_ops.transport.connection import QuicSocketConnection
from quafka_mesh_ops.transport.replies import BulkReplies


class Replies:
    """Sends each bulk reply one way or the other.

    A reply that a lost TLS connection may not have delivered is sent again over QUIC. The peer
    ignores a second response to a request.
    """

    def __init__(self, connection: QuicSocketConnection) -> None:
        self._quic = BulkReplies(connection)
        self._tls: BrokerChannel | None = None
        self._sent_before = 0

    @property
    def backlog(self) -> int:
        """Bytes of replies that the peer has not acknowledged."""
        return self._quic.backlog + (self._tls.backlog if self._tls is not None else 0)

    @property
    def over_tls(self) -> bool:
        """Whether further replies are sent over TLS."""
        return self._tls is not None

    @property
    def tls_bytes(self) -> int:
        """Bytes of replies that were sent over TLS."""
        return self._sent_before + (self._tls.bytes_sent if self._tls is not None else 0)

    def attach(self, channel: BrokerChannel, progress: Callable[[], None]) -> None:
        """Use a TLS connection from now on. `progress` is called when the peer acknowledges."""
        self.detach("replaced by another connection")
        self._tls = channel
        channel.on_progress = progress
        channel.on_closed = self._lost

    def detach(self, reason: str) -> None:
        """Close the TLS connection, if any; its unacknowledged replies are sent over QUIC."""
        if self._tls is not None:
            self._tls.close(reason)

    def add(self, request_id: int, frame: list[Buffer]) -> None:
        """Send a frame, now or after earlier ones."""
        (self._quic if self._tls is None else self._tls).add(request_id, frame)

    def drop(self, request_id: int) -> None:
        """Drop a reply that the peer no longer wants."""
        self._quic.drop(request_id)
        if self._tls is not None:
            self._tls.drop(request_id)

    def progress(self) -> None:
        """Continue with replies over QUIC: the peer has acknowledged packets."""
        self._quic.progress()

    def stream_over(self, stream_id: int) -> None:
        """Stop counting the reply on this QUIC stream: nothing more will be sent on it."""
        self._quic.stream_over(stream_id)

    def close(self) -> None:
        """The QUIC connection is over, and with it the TLS connection and all replies."""
        channel, self._tls = self._tls, None
        if channel is not None:
            self._sent_before += channel.bytes_sent
            channel.close("the QUIC connection is over")

    def _lost(self) -> None:
        channel, self._tls = self._tls, None
        if channel is not None:
            self._sent_before += channel.bytes_sent
            for request_id, frame in channel.unacknowledged():
                self._quic.add(request_id, frame)
