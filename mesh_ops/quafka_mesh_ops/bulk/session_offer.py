"""The offer of a TLS connection to the peer of one QUIC connection, at the broker."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from quafka_mesh_ops.bulk.broker_channel import BrokerChannel
from quafka_mesh_ops.bulk.listener import BulkListener
from quafka_mesh_ops.bulk.replies import Replies
from quafka_mesh_ops.errors import OpFailedError, PeerRefusedError
from quafka_mesh_ops.handlers import OpContext
from quafka_mesh_ops.ops.bulk import OpenBulk, OpenBulkResp
from quafka_proto.errors import ErrorCode

_INTERVAL = 0.05
"""Seconds between two offers to a peer: one costs a millisecond."""


class SessionOffer:
    """Makes at most one offer at a time, and hands the TLS connection to the replies."""

    def __init__(
        self, listener: BulkListener | None, replies: Replies, progress: Callable[[], None]
    ) -> None:
        """`progress` is called when the peer has acknowledged replies over TLS."""
        self._listener = listener
        self._replies = replies
        self._progress = progress
        self._name = b""
        self._over = False
        self._loop = asyncio.get_running_loop()
        self._next_at = self._loop.time()

    async def open(self, context: OpContext, op: OpenBulk) -> OpenBulkResp:
        """The handler of the op: make an offer, which replaces an earlier one.

        Raises:
            OpFailedError: the certificate is not acceptable, or the peer asks too often.
        """
        listener = self._listener
        if listener is None or not listener.listening or self._over:
            return OpenBulkResp(b"", b"", b"")
        now = self._loop.time()
        if now < self._next_at:
            raise OpFailedError(ErrorCode.THROTTLING_QUOTA_EXCEEDED)
        self._next_at = now + _INTERVAL
        listener.withdraw(self._name)
        try:
            answer = listener.offer(op.certificate, context.peer, self._attach)
        except PeerRefusedError as e:
            raise OpFailedError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED) from e
        self._name = answer.name
        return answer

    def close(self) -> None:
        """The QUIC connection is over."""
        self._over = True
        if self._listener is not None:
            self._listener.withdraw(self._name)
        self._replies.close()

    def _attach(self, channel: BrokerChannel) -> None:
        if self._over:
            channel.close("the QUIC connection is over")
        else:
            self._replies.attach(channel, self._progress)
