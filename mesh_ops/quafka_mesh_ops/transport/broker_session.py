"""One connection to the broker, seen from the gateway: calls go out, answers come back."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Protocol

from aioquic.quic.packet import QuicErrorCode

from quafka_mesh_ops.errors import OutcomeUnknownError, ProtocolError
from quafka_mesh_ops.frames import (
    LANES,
    MAX_FRAME,
    Response,
    StreamFrames,
    Tag,
    encode_number,
)
from quafka_mesh_ops.identity import NodeId
from quafka_mesh_ops.long_payloads import LongPayload, response_of
from quafka_mesh_ops.ops.base import AnyOp, Buffer
from quafka_mesh_ops.transport.connection import Connection
from quafka_mesh_ops.transport.silence import Silence
from quafka_telemetry.tracing import NO_SPAN, Span, TraceContext

MAX_UNFINISHED = 4 * MAX_FRAME
"""Bytes of incomplete replies. A broker sends three bulk replies at a time."""

PING_INTERVAL = 1.0
SILENT_SECONDS = 2.0
_TICK = 0.1
_HANDSHAKE_TIMEOUT = 3.0


@dataclass(frozen=True, slots=True)
class UnreadResponse:
    """A long response, of which only the head has been read."""

    response: Response
    long: LongPayload


@dataclass(slots=True, eq=False)
class Call:
    """An op between `call` and its answer."""

    request_id: int
    op: AnyOp
    org_id: int
    body: list[Buffer]
    size: int
    stream_index: int
    kind: int
    deadline: float
    trace: TraceContext | None
    future: asyncio.Future[Response | UnreadResponse]
    session: BrokerSession | None = None
    queued: Span = NO_SPAN


class SessionOwner(Protocol):
    """Who makes the calls."""

    def session_ready(self, session: BrokerSession, peer: NodeId) -> None:
        """The broker answers: ops may be sent."""
        ...

    def session_gone(self, session: BrokerSession) -> None:
        """No more ops on this connection."""
        ...

    def answered(self, call: Call, response: Response, long: LongPayload | None) -> None:
        """Hand a response to its caller; where it is `long`, its body is still to be read."""
        ...


class BrokerSession:
    """One connection to the broker."""

    def __init__(self, owner: SessionOwner, connection: Connection) -> None:
        self.connection = connection
        self.pending: dict[int, Call] = {}
        self.was_ready = False
        self._loop = asyncio.get_running_loop()
        self.over: asyncio.Future[str] = self._loop.create_future()
        self._owner = owner
        self.peer: NodeId = ""
        self._draining = False
        self._streams: list[int] = []
        self._frames = StreamFrames(MAX_UNFINISHED)
        self._next_ping = self._loop.time()
        self._handshake = Silence(_TICK, self._loop.time())
        self._silence = Silence(_TICK, self._loop.time())
        self._ping_sent = 0.0
        self._unanswered = 0.0  # seconds that a ping has been listened for
        self._pings = 0
        self._tick_timer = self._loop.call_later(_TICK, self._tick)

    def send(self, call: Call, frame: list[Buffer]) -> None:
        """Send an op and wait for its answer."""
        self.pending[call.request_id] = call
        self.connection.write(self._streams[call.stream_index], frame)

    def forget(self, call: Call) -> None:
        """Cancel an op, unless it has been answered."""
        if self.pending.pop(call.request_id, None) is not None:
            cancel = encode_number(Tag.CANCEL, call.request_id)
            self.connection.write(self._streams[call.stream_index], [cancel])
        self._close_if_drained()

    def shut(self) -> None:
        """Close the connection and its socket now."""
        self.connection.close("the gateway closes the connection")
        self.connection.abort("closed")

    # --- ConnectionUser ---------------------------------------------------------------------

    def connection_ready(self, peer: NodeId) -> None:
        """Our side of the handshake is done; the broker's is when it answers a PING."""
        self.peer = peer
        self._streams = [self.connection.open_stream() for _ in range(1 + LANES)]
        self._ping()

    def stream_data(self, stream_id: int, data: bytes, end_stream: bool) -> None:
        """Act on every frame that is complete."""
        # Server-initiated unidirectional streams: RFC 9000 section 2.1.
        if stream_id & 3 != 3 and (stream_id not in self._streams or end_stream):
            self.refuse(f"stream {stream_id} is not as the mesh uses streams")
            return
        try:
            for tag, payload in self._frames.feed(stream_id, data, end_stream):
                self._act(tag, payload)
        except ProtocolError as e:
            self.refuse(str(e))

    def stream_reset(self, stream_id: int) -> None:
        """A bulk reply is reset when we have cancelled its op; the others stay open."""
        self._frames.drop(stream_id)
        if stream_id & 3 != 3:
            self.refuse("a long-lived stream was reset")

    def connection_closed(self, reason: str) -> None:
        """What was sent and not answered may have happened or not."""
        self._tick_timer.cancel()
        self._owner.session_gone(self)
        calls = list(self.pending.values())
        self.pending.clear()
        for call in calls:
            fail(call, OutcomeUnknownError(f"the connection was lost: {reason}"))
        if not self.over.done():
            self.over.set_result(reason)

    # --- frames -----------------------------------------------------------------------------

    def _act(self, tag: Tag, payload: Buffer) -> None:
        if tag is Tag.RESPONSE:
            response, long = response_of(payload)
            call = self.pending.pop(response.request_id, None)
            if call is not None:  # else it was cancelled on the way
                self._owner.answered(call, response, long)
        elif tag is Tag.PONG:
            if not self.was_ready:
                self.was_ready = True
                self._owner.session_ready(self, self.peer)
        elif tag is Tag.GOAWAY:
            self._draining = True
            self._owner.session_gone(self)
            self._close_if_drained()
        else:
            raise ProtocolError(f"a {tag.name} frame from a broker")

    def refuse(self, reason: str) -> None:
        """The broker does not keep to the protocol."""
        self.connection.close(reason, QuicErrorCode.PROTOCOL_VIOLATION)

    def _close_if_drained(self) -> None:
        if self._draining and not self.pending:
            self.connection.close("drained")

    def _ping(self) -> None:
        now = self._loop.time()
        self._pings += 1
        self._next_ping = now + PING_INTERVAL
        self._ping_sent = now
        self._unanswered = 0.0
        self.connection.write(self._streams[0], [encode_number(Tag.PING, self._pings)])

    def _tick(self) -> None:
        """Notice a broker that is silent. Anything that arrives is a sign of life."""
        now = self._loop.time()
        heard = self.connection.last_received
        again = (heard if heard + _TICK > now else now) + _TICK
        self._tick_timer = self._loop.call_at(again, self._tick)
        if not self.was_ready:
            if self._handshake.look(now, 0.0) >= _HANDSHAKE_TIMEOUT:
                self.connection.abort("the handshake took too long")
            return
        silent = self._silence.look(now, heard)
        if heard < self._ping_sent:
            self._unanswered += self._silence.counted
            # Silent for so long, and asked long enough ago.
            if silent >= SILENT_SECONDS and self._unanswered >= SILENT_SECONDS / 2:
                # The path may be broken in one direction only, so the peer is told.
                self.connection.close(f"no sign of life for {SILENT_SECONDS:g} s")
        elif now >= self._next_ping or (self.pending and now >= heard + _TICK):
            # With ops in flight ask more often: a dead peer's port on this host refuses at once.
            self._ping()


def fail(call: Call, error: Exception) -> None:
    """End a call with an error, unless it has ended."""
    if not call.future.done():
        call.future.set_exception(error)
