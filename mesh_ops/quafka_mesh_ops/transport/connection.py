"""The asyncio shell around one QUIC connection: feed, handle events, transmit.

Code above this seam handles streams and frames, code below it datagrams. Another packet codec would
replace only `MeshQuic`.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from typing import Protocol, cast

from aioquic.quic import events
from aioquic.quic.packet import QuicErrorCode

from quafka_loop.turn_end import turn_end
from quafka_mesh_ops.node_ids import NodeId
from quafka_mesh_ops.ops.base import Buffer
from quafka_mesh_ops.transport.aioquic_adapter.mutual_tls import MAX_DATA
from quafka_mesh_ops.transport.aioquic_adapter.quic import BURST, MeshQuic
from quafka_mesh_ops.transport.udp import Address, UdpSocket

logger = logging.getLogger("quafka.mesh")

_DOUBT_TIMEOUTS = 2
"""Probe timeouts within which a doubted peer must be heard; one covers a round trip."""
_EARLY = 0.001
_BUSY_TICK = 0.01
"""Seconds after which the timer of a busy connection fires again at the latest. Each packet moves
the deadlines, and the next ACK will be due after about this time: a later timer would be replaced.
"""
_TOP_UP_BELOW = 512 << 10
_TOP_UP_TO = 1 << 20
"""Bounds of the bytes of a stream that QUIC holds unsent: they are topped up below the first."""
_JOINED = 16 << 10
"""Bytes that a stream waits to send, up to which a copy costs less than to hold each piece."""


class ConnectionUser(Protocol):
    """Receives the events of a connection. Nothing is called after `connection_closed`."""

    def connection_ready(self, peer: NodeId) -> None:
        """The handshake is done; the peer is authenticated and allowed."""
        ...

    def stream_data(self, stream_id: int, data: bytes, end_stream: bool) -> None:
        """Bytes arrived, in order."""
        ...

    def stream_reset(self, stream_id: int) -> None:
        """The peer stopped sending on this stream, or (STOP_SENDING) refuses further data of it."""
        ...

    def connection_closed(self, reason: str) -> None:
        """The connection has ended; called once, as early as possible."""
        ...


class CidRouter(Protocol):
    """The owner of the socket, which routes datagrams by connection id."""

    def refusal(self, connection: QuicSocketConnection, peer: NodeId) -> str | None:
        """Decide on a peer that is authenticated and allowed; the reason if it is refused."""
        ...

    def cid_issued(self, cid: bytes, connection: QuicSocketConnection) -> None:
        """Route datagrams with this connection id to the connection from now on."""
        ...

    def cid_retired(self, cid: bytes) -> None:
        """Stop routing this connection id."""
        ...

    def terminated(self, connection: QuicSocketConnection) -> None:
        """The connection needs no more datagrams."""
        ...


class QuicSocketConnection:
    """One QUIC connection on a socket. All methods are for the loop's thread.

    Writing never blocks and never fails; after the end it does nothing. Written data is held by
    reference until it is acknowledged, so it must not change.
    """

    def __init__(
        self,
        quic: MeshQuic,
        socket: UdpSocket,
        make_user: Callable[[QuicSocketConnection], ConnectionUser],
        router: CidRouter,
    ) -> None:
        self._quic = quic
        self._socket = socket
        self._router: CidRouter | None = router
        self._loop = asyncio.get_running_loop()
        self._waiting: dict[int, deque[Buffer]] = {}
        self._ends: set[int] = set()
        self._turn_end = turn_end(self._loop)
        self._transmits = False
        """Whether `_transmit_due` is called at the end of this turn."""
        self._timer: asyncio.TimerHandle | None = None
        self._fired_at = 0.0
        """When the timer last fired before the deadline."""
        self._doubt: asyncio.TimerHandle | None = None
        self._ready = False
        self._over = False
        self._terminated = False
        self._on_progress: Callable[[], None] | None = None
        self.last_received = self._loop.time()
        self._user = make_user(self)

    @property
    def is_ready(self) -> bool:
        """Whether the handshake is done and the connection is not closed."""
        return self._ready and not self._over

    @property
    def is_over(self) -> bool:
        """Whether `connection_closed` was called."""
        return self._over

    @property
    def quic(self) -> MeshQuic:
        """The QUIC connection."""
        return self._quic

    # --- for the user -----------------------------------------------------------------------

    def connect(self, address: Address) -> None:
        """Start the handshake (client)."""
        self._quic.connect(address, self._loop.time())
        self._transmit()

    def open_stream(self, *, unidirectional: bool = False) -> int:
        """Open a stream and return its id. The peer learns of it from the first data."""
        stream_id = self._quic.get_next_available_stream_id(is_unidirectional=unidirectional)
        self._quic.send_stream_data(stream_id, b"")
        return stream_id

    def write(self, stream_id: int, pieces: list[Buffer], *, end_stream: bool = False) -> None:
        """Queue bytes on a stream. All writes of a turn of the loop leave at its end."""
        if self._over or self._quic.is_closed:
            return
        waiting = self._waiting.get(stream_id)
        if waiting is None:
            waiting = self._waiting[stream_id] = deque()
        waiting.extend(pieces)
        if end_stream:
            self._ends.add(stream_id)
        self._transmit_soon()

    def reset_stream(self, stream_id: int) -> None:
        """Stop sending on a stream; its queued data is dropped."""
        if self._over or self._quic.is_closed:
            return
        self._waiting.pop(stream_id, None)
        self._ends.discard(stream_id)
        self._quic.reset_stream(stream_id, QuicErrorCode.NO_ERROR)
        self._transmit_soon()

    def is_sent(self, stream_id: int) -> bool:
        """Whether all data written to the stream has been sent once."""
        return stream_id not in self._waiting and not self._quic.unsent(stream_id)

    def unsent(self, stream_id: int) -> int:
        """The bytes written to the stream that have not been sent once."""
        waiting = sum(map(len, self._waiting.get(stream_id, ())))
        return waiting + self._quic.unsent(stream_id)

    def is_delivered(self, stream_id: int) -> bool:
        """Whether the peer has acknowledged all data written to the stream."""
        return stream_id not in self._waiting and self._quic.is_delivered(stream_id)

    def when_progress(self, callback: Callable[[], None]) -> None:
        """Call `callback` after every burst, when `is_sent` and `is_delivered` may have changed."""
        self._on_progress = callback

    def close(self, reason: str, error_code: int = QuicErrorCode.NO_ERROR) -> None:
        """Close the connection; `reason` is sent to the peer."""
        if not self._over:
            # RFC 9000 section 12.4: the frame must fit a packet together with its header.
            self._quic.close(error_code=error_code, reason_phrase=reason[:200])
            self._send_now()
            self._arm_timer()
            self._end(reason)

    def too_large(self) -> None:
        """React to EMSGSIZE: the path does not take datagrams of this size."""
        size = self._quic.datagram_size
        if not self._quic.too_large(self._loop.time()):
            self.abort(f"the path does not take datagrams of {size} bytes")

    def nudge(self) -> None:
        """Send a PING, which a live peer acknowledges."""
        if not self._over:
            self._quic.send_ping(0)
            self._transmit_soon()

    def doubt(self, reason: str) -> None:
        """End for this reason, unless the peer is heard at once.

        Used for errors that an attacker may have forged: they alone end no connection.
        """
        if self._over or self._doubt is not None:
            return
        since = self._loop.time()
        self.nudge()
        self._look_again(_DOUBT_TIMEOUTS, since, reason)

    def _look_again(self, looks: int, since: float, reason: str) -> None:
        # One probe timeout per look: a stall of our own, after which several timers are due at
        # once, uses up one look. The socket is read before the next one.
        patience = self._quic.probe_timeout
        self._doubt = self._loop.call_later(patience, self._end_doubt, looks - 1, since, reason)

    def _end_doubt(self, looks: int, since: float, reason: str) -> None:
        self._doubt = None
        if self.last_received >= since:
            return
        if looks:
            self._look_again(looks, since, reason)
        else:
            self.abort(reason)

    def abort(self, reason: str) -> None:
        """End without a close frame: the peer cannot receive it."""
        self._end(reason)
        self._terminate()

    # --- for the socket ---------------------------------------------------------------------

    def receive(self, datagrams: list[bytes], address: Address) -> None:
        """Process the datagrams of one system call, and answer."""
        now = self.last_received = self._loop.time()
        try:
            self._quic.receive_datagrams(datagrams, address, now)
        except Exception:
            # The packet parser is aioquic's: a bug in it must end no more than this connection.
            logger.exception("a packet from %s could not be handled", address)
            self.abort("a packet could not be handled")
            return
        if self._quic.was_reset:
            self.abort("the peer has restarted")
            return
        self._handle_events()
        if self._quic.holds_unordered(MAX_DATA):
            self.close("too much data out of order", QuicErrorCode.PROTOCOL_VIOLATION)
        if self._waiting or self._ends or not self._quic.is_quiet(now):
            self._transmit_soon()
        elif not self._transmits and not self._terminated:
            self._progress()

    def resume(self) -> None:
        """Continue to send: the socket accepts datagrams again."""
        self._transmit()

    # --- inside -----------------------------------------------------------------------------

    def _handle_events(self) -> None:
        quic = self._quic
        while (event := quic.next_event()) is not None:
            if isinstance(event, events.StreamDataReceived):
                if self._ready and not self._over:
                    self._user.stream_data(event.stream_id, event.data, event.end_stream)
            elif isinstance(event, events.HandshakeCompleted):
                self._handshake_completed()
            elif isinstance(event, events.StreamReset | events.StopSendingReceived):
                if self._ready and not self._over:
                    self._waiting.pop(event.stream_id, None)
                    self._ends.discard(event.stream_id)
                    self._user.stream_reset(event.stream_id)
            elif isinstance(event, events.ConnectionTerminated):
                self._end(quic.close_reason)
                self._terminate()
            else:
                self._handle_cid_event(event)
        if quic.is_closed:
            # aioquic reports the end only after its closing period.
            self._end(quic.close_reason)

    def _handle_cid_event(self, event: events.QuicEvent) -> None:
        if self._router is None:
            return
        if isinstance(event, events.ConnectionIdIssued):
            self._router.cid_issued(event.connection_id, self)
        elif isinstance(event, events.ConnectionIdRetired):
            self._router.cid_retired(event.connection_id)

    def _handshake_completed(self) -> None:
        peer = self._quic.peer
        if peer is None:
            # Impossible: the TLS context judges the peer before it completes the handshake.
            self.close("no peer identity")
            return
        refusal = self._router.refusal(self, peer) if self._router is not None else None
        if refusal is not None:
            self.close(refusal, QuicErrorCode.CONNECTION_REFUSED)
            return
        self._ready = True
        self._user.connection_ready(peer)

    def _end(self, reason: str) -> None:
        if self._over:
            return
        self._over = True
        self._waiting.clear()
        self._ends.clear()
        self._user.connection_closed(reason)

    def _terminate(self) -> None:
        for handle in (self._timer, self._doubt):
            if handle is not None:
                handle.cancel()
        self._timer = self._doubt = None
        self._terminated = True
        if self._router is not None:
            self._router.terminated(self)
            self._router = None

    def _transmit_soon(self) -> None:
        if not self._transmits:
            self._transmits = True
            self._turn_end.call(self._transmit_due)

    def _transmit_due(self) -> None:
        self._transmits = False
        if not self._terminated:
            self._transmit()

    def _transmit(self) -> None:
        if not self._socket.blocked and self._send_now() >= BURST // 2:
            # Let the loop read the socket, which may hold ACKs, before the next burst is built.
            self._transmit_soon()
        self._progress()

    def _progress(self) -> None:
        """React to what was sent or acknowledged."""
        if self._on_progress is not None and not self._over:
            self._on_progress()
        self._arm_timer()

    def _send_now(self) -> int:
        """Build and send one burst; returns its size in bytes."""
        if self._waiting or self._ends:
            self._top_up()
        datagrams = self._quic.datagrams_to_send(self._loop.time())
        if not datagrams:
            return 0
        self._socket.send(datagrams)
        if len(datagrams) == 1:
            return len(datagrams[0][0])
        return sum([len(data) for data, _ in datagrams])

    def _top_up(self) -> None:
        quic = self._quic
        for stream_id, waiting in list(self._waiting.items()):
            unsent = quic.unsent(stream_id)
            if unsent >= _TOP_UP_BELOW:
                continue
            room = _TOP_UP_TO - unsent
            if len(waiting) > 1 and sum(map(len, waiting)) <= _JOINED:
                joined = b"".join(waiting)
                waiting.clear()
                waiting.append(joined)
            while waiting and room > 0:
                piece = waiting.popleft()
                if len(piece) > room:
                    piece = memoryview(piece)
                    waiting.appendleft(piece[room:])
                    piece = piece[:room]
                quic.send_stream_data(stream_id, cast(bytes, piece))
                room -= len(piece)
            if not waiting:
                del self._waiting[stream_id]
                if stream_id in self._ends:
                    self._ends.remove(stream_id)
                    quic.send_stream_data(stream_id, b"", end_stream=True)

    def _arm_timer(self) -> None:
        when = self._quic.get_timer()
        if when is None:
            return
        # A timer that fires too early is rearmed, which is cheaper than a new one per packet.
        if self._timer is not None:
            if self._timer.when() <= when:
                return
            self._timer.cancel()
        self._timer = self._loop.call_at(when, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        when = self._quic.get_timer()
        if when is None:
            return
        now = self._loop.time()
        # asyncio runs timers up to its clock's resolution early.
        if now + _EARLY >= when:
            self._quic.handle_timer(max(now, when))
            self._handle_events()
            self._transmit()
        else:
            if self.last_received > self._fired_at:
                when = min(when, now + _BUSY_TICK)
            self._fired_at = now
            self._timer = self._loop.call_at(when, self._on_timer)
