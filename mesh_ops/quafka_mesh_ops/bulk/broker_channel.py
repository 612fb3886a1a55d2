"""The broker's end of one TLS connection for bulk answers."""

from __future__ import annotations

import asyncio
import hmac
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, cast

from quafka_mesh_ops.bulk.chunks import (
    NAME_BYTES,
    OPENING,
    TOKEN_BYTES,
    ChunkKind,
    TotalReader,
    empty_chunk,
)
from quafka_mesh_ops.bulk.sender import BulkSender
from quafka_mesh_ops.bulk.sockets import tune
from quafka_mesh_ops.bulk.tls import TlsPipe
from quafka_mesh_ops.errors import PeerRefusedError, ProtocolError
from quafka_mesh_ops.ops.base import Buffer
from quafka_mesh_ops.transport.silence import Silence

_STEP = 512 << 10
"""Bytes that are encrypted in one turn of the loop: less than a millisecond."""
_TICK = 0.5
STALLED_SECONDS = 3.0
"""Without an acknowledgement for this long, the connection is given up."""


@dataclass(frozen=True, slots=True, eq=False)
class BulkOffer:
    """An offer of one TLS connection to the peer of one QUIC connection.

    Attributes:
        name, token: identify it; the token is secret.
        context: trusts the peer's `certificate` (DER) and no other.
        attach: receives the connection once the peer is authenticated.
    """

    name: bytes
    token: bytes
    context: ssl.SSLContext
    certificate: bytes
    attach: Callable[[BrokerChannel], None]


class ChannelOwner(Protocol):
    """The listener that accepted the connection."""

    def arrived(self, channel: BrokerChannel) -> None:
        """The connection is open; its peer is a stranger."""
        ...

    def claim(self, name: bytes) -> BulkOffer | None:
        """Take the offer of this name; None: there is none."""
        ...

    def accepted(self, channel: BrokerChannel) -> None:
        """The peer is authenticated."""
        ...

    def closed(self, channel: BrokerChannel, reason: str) -> None:
        """The connection has ended; called once."""
        ...


class BrokerChannel(asyncio.Protocol):
    """Sends the answers of one QUIC connection.

    Until the peer has proven its key and the token, it can only end its own connection.

    Attributes:
        named: whether the peer has named an offer.
        address: the peer's address.
        on_progress: called when the peer has acknowledged data.
        on_closed: called once, when the connection has ended.
    """

    def __init__(self, owner: ChannelOwner) -> None:
        self.named = False
        self.address = ""
        self.on_progress: Callable[[], None] = _nothing
        self.on_closed: Callable[[], None] = _nothing
        self._owner = owner
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._offer: BulkOffer | None = None
        self._pipe: TlsPipe | None = None
        self._open = False
        self._held = b""
        """Bytes before the handshake, then of the token."""
        self._sender = BulkSender()
        self._totals = TotalReader()
        self._paused = False
        self._pumping: asyncio.Handle | None = None
        self._stall: asyncio.TimerHandle | None = None
        self._silence = Silence(_TICK, 0.0)
        self._heard = 0.0

    @property
    def backlog(self) -> int:
        """Bytes of answers that the peer has not acknowledged."""
        return self._sender.backlog

    @property
    def bytes_sent(self) -> int:
        """Bytes of answers that have been sent."""
        return self._sender.sent

    def add(self, request_id: int, frame: list[Buffer]) -> None:
        """Send an answer. Its bytes must not change until it is acknowledged."""
        self._sender.add(request_id, frame)
        self._pump_soon()
        if self._stall is None:
            self._heard = self._loop.time()
            self._silence = Silence(_TICK, self._heard)
            self._stall = self._loop.call_later(_TICK, self._watch)

    def drop(self, request_id: int) -> None:
        """Send no more of an answer that the peer no longer wants."""
        self._sender.drop(request_id)
        self._pump_soon()

    def unacknowledged(self) -> list[tuple[int, list[Buffer]]]:
        """Return the answers that the peer may lack."""
        return self._sender.unacknowledged()

    def close(self, reason: str) -> None:
        """Close the connection at once; what is not sent yet is dropped."""
        transport, self._transport = self._transport, None
        if transport is None:
            return
        transport.abort()
        for handle in (self._pumping, self._stall):
            if handle is not None:
                handle.cancel()
        self._owner.closed(self, reason)
        self.on_closed()

    # --- asyncio.Protocol -------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Wait for the opening."""
        self._transport = cast(asyncio.Transport, transport)
        self.address = str((transport.get_extra_info("peername") or ("",))[0])
        self._transport.set_write_buffer_limits(high=_STEP)
        self._owner.arrived(self)

    def connection_lost(self, exc: Exception | None) -> None:
        """See asyncio.Protocol."""
        self.close(str(exc) if exc else "the peer closed it")

    def pause_writing(self) -> None:
        """See asyncio.Protocol."""
        self._paused = True

    def resume_writing(self) -> None:
        """See asyncio.Protocol."""
        self._paused = False
        self._pump_soon()

    def data_received(self, data: bytes) -> None:
        """Act on the opening, the handshake, the token or acknowledgements."""
        try:
            if self._pipe is None:
                data = self._opening(data)
            if self._pipe is not None:
                self._pipe.receive(data)
                plain = self._pipe.read()
                self._acknowledged(plain if self._open else self._token(plain))
                self._flush()
        except (PeerRefusedError, ProtocolError, ConnectionError) as e:
            self._flush()  # an alert, which names the reason for the peer
            self.close(str(e))

    # --- inside -----------------------------------------------------------------------------

    def _opening(self, data: bytes) -> bytes:
        """Read the name of the offer. Returns the bytes after it.

        Raises:
            ProtocolError, PeerRefusedError: it is not an opening, or names no offer.
        """
        held = self._held = self._held + data
        if not OPENING.startswith(held[: len(OPENING)]):
            raise ProtocolError("not a bulk connection")
        end = len(OPENING) + NAME_BYTES
        if len(held) < end:
            return b""
        offer = self._offer = self._owner.claim(held[len(OPENING) : end])
        if offer is None:
            raise PeerRefusedError("it names no offer")
        self.named = True
        self._pipe = TlsPipe(offer.context, offer.certificate, server_side=True)
        self._held = b""
        return held[end:]

    def _token(self, plain: bytes) -> bytes:
        """Read the token. Returns the bytes after it. Raises PeerRefusedError."""
        missing = TOKEN_BYTES - len(self._held)
        self._held += plain[:missing]
        offer = self._offer
        if len(self._held) < TOKEN_BYTES or offer is None or self._pipe is None:
            return b""
        if not hmac.compare_digest(self._held, offer.token):
            raise PeerRefusedError("it presented a wrong token")
        self._held = b""
        self._open = True
        if self._transport is not None:
            tune(self._transport)
        self._pipe.write(empty_chunk(ChunkKind.READY))
        self._owner.accepted(self)
        offer.attach(self)
        return plain[missing:]

    def _acknowledged(self, plain: bytes) -> None:
        total = self._totals.feed(plain) if plain else None
        if total is not None:
            self._heard = self._loop.time()
            self._sender.acknowledge(total)
            self._pump_soon()
            self.on_progress()

    def _flush(self) -> None:
        if self._transport is not None and self._pipe is not None:
            data = self._pipe.to_send()
            if data:
                self._transport.write(data)

    def _pump_soon(self) -> None:
        if self._pumping is None and self._transport is not None and self._open:
            self._pumping = self._loop.call_soon(self._pump)

    def _pump(self) -> None:
        """Encrypt and send a few chunks, unless the socket is full."""
        self._pumping = None
        pipe, written = self._pipe, 0
        while pipe is not None and not self._paused and written < _STEP:
            chunk = self._sender.next_chunk()
            if not chunk:
                return
            for piece in chunk:
                pipe.write(piece)
            written += sum(map(len, chunk))
            self._flush()
        if not self._paused:
            self._pump_soon()

    def _watch(self) -> None:
        """Give up a connection on which nothing is acknowledged, though the gateway lives."""
        self._stall = None
        if not self._sender.backlog:
            return
        if self._silence.observe(self._loop.time(), self._heard) >= STALLED_SECONDS:
            self.close(f"nothing was acknowledged for {STALLED_SECONDS:g} s")
        else:
            self._stall = self._loop.call_later(_TICK, self._watch)


def _nothing() -> None:
    """Does nothing."""
