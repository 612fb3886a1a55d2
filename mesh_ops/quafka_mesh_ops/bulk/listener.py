"""The broker's TCP port for bulk connections."""

from __future__ import annotations

import asyncio
import errno
import logging
import secrets
from collections.abc import Callable, Collection

from quafka_loop import clock
from quafka_mesh_ops.bulk.broker_channel import BrokerChannel, BulkOffer
from quafka_mesh_ops.bulk.chunks import NAME_BYTES, TOKEN_BYTES
from quafka_mesh_ops.bulk.tls import check_certificate, encoded, tls_context
from quafka_mesh_ops.identity import Identity
from quafka_mesh_ops.node_ids import NodeId
from quafka_mesh_ops.ops.bulk import OpenBulkResp
from quafka_mesh_ops.transport.log_limit import LimitedLog

logger = logging.getLogger("quafka.mesh.server")

OFFER_SECONDS = 10.0
HANDSHAKE_SECONDS = 5.0
"""From the accepted connection to the token."""
MAX_STRANGERS = 64
"""Connections that have not named an offer. One more closes the oldest of them."""


class BulkListener:
    """Accepts one TLS connection for each offer. A stranger gets no TLS handshake."""

    def __init__(
        self,
        identity: Identity,
        allowed: Collection[NodeId],
        *,
        handshake_seconds: float = HANDSHAKE_SECONDS,
        offer_seconds: float = OFFER_SECONDS,
    ) -> None:
        self._identity = identity
        self._allowed = allowed
        self._handshake_seconds = handshake_seconds
        self._offer_seconds = offer_seconds
        self._offers: dict[bytes, tuple[BulkOffer, asyncio.TimerHandle]] = {}
        self._pending: dict[BrokerChannel, asyncio.TimerHandle] = {}
        """Connections that are not authenticated yet, the oldest first."""
        self._channels: dict[BrokerChannel, None] = {}  # in the order of their begins
        self._limited = LimitedLog(logger)
        self._loop = asyncio.get_running_loop()
        self._server: asyncio.Server | None = None
        self._offered_port = 0

    @property
    def listening(self) -> bool:
        """Whether the port is open."""
        return self._server is not None

    async def start(self, host: str, port: int, *, any_port: bool) -> None:
        """Listen on `port`, or with `any_port` on another one if it is taken. Raises OSError."""
        try:
            self._server = await self._loop.create_server(self._arrived, host, port)
        except OSError as e:
            if not any_port or e.errno != errno.EADDRINUSE:
                raise
            self._server = await self._loop.create_server(self._arrived, host, 0)
            self._offered_port = self._server.sockets[0].getsockname()[1]

    def offer(
        self, certificate: bytes, peer: NodeId, attach: Callable[[BrokerChannel], None]
    ) -> OpenBulkResp:
        """Offer a connection to a peer that will present `certificate` (DER).

        Raises:
            PeerRefusedError: it is not a valid certificate of the peer.
        """
        check_certificate(certificate, peer, self._allowed)
        ours = self._identity.certificate(clock.utc_now())
        offer = BulkOffer(
            secrets.token_bytes(NAME_BYTES),
            secrets.token_bytes(TOKEN_BYTES),
            tls_context(ours, certificate, server_side=True),
            certificate,
            attach,
        )
        expiry = self._loop.call_later(self._offer_seconds, self.withdraw, offer.name)
        self._offers[offer.name] = offer, expiry
        return OpenBulkResp(offer.name, offer.token, encoded(ours), self._offered_port)

    def withdraw(self, name: bytes) -> None:
        """Forget an offer, if it was not taken."""
        _, expiry = self._offers.pop(name, (None, None))
        if expiry is not None:
            expiry.cancel()

    def stop_accepting(self) -> None:
        """Close the port and the connections that are not authenticated; others continue."""
        if self._server is not None:
            self._server.close()
        for channel in list(self._pending):
            channel.close("the broker shuts down")

    def close(self) -> None:
        """Close everything."""
        self.stop_accepting()
        for name in list(self._offers):
            self.withdraw(name)
        for channel in list(self._channels):
            channel.close("the broker shuts down")

    # --- ChannelOwner -----------------------------------------------------------------------

    def claim(self, name: bytes) -> BulkOffer | None:
        """See ChannelOwner."""
        offer, expiry = self._offers.pop(name, (None, None))
        if expiry is not None:
            expiry.cancel()
        return offer

    def arrived(self, channel: BrokerChannel) -> None:
        """See ChannelOwner."""
        self._pending[channel] = self._loop.call_later(
            self._handshake_seconds, channel.close, "the handshake took too long"
        )
        strangers = [pending for pending in self._pending if not pending.named]
        if len(strangers) > MAX_STRANGERS:
            strangers[0].close("too many connections that name no offer")

    def accepted(self, channel: BrokerChannel) -> None:
        """See ChannelOwner."""
        self._pending.pop(channel).cancel()
        self._channels[channel] = None

    def closed(self, channel: BrokerChannel, reason: str) -> None:
        """See ChannelOwner."""
        timer = self._pending.pop(channel, None)
        self._channels.pop(channel, None)
        if timer is not None:
            timer.cancel()
            self._limited.warning(
                reason, "closed a TCP connection from %s: %s", channel.address, reason
            )

    def _arrived(self) -> BrokerChannel:
        return BrokerChannel(self)
