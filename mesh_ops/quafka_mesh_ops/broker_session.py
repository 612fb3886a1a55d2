"""One connection to the broker, seen from the gateway: calls go out, responses come back."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Protocol

from aioquic.quic.packet import QuicErrorCode

from quafka_loop.eager_task import DirectFuture
from quafka_loop.wakeups import Wakeups
from quafka_mesh_ops.envelopes import ResponseEnvelope, encode_body, encode_request, length_of
from quafka_mesh_ops.errors import OutcomeUnknownError, ProtocolError
from quafka_mesh_ops.frames import (
    LANES,
    MAX_FRAME,
    StreamFrames,
    Tag,
    decode_number,
    encode_number,
)
from quafka_mesh_ops.long_payloads import LongPayload, response_of
from quafka_mesh_ops.memory.shared import LEAST_BYTES, MOST_BYTES, SharedMemory
from quafka_mesh_ops.node_ids import NodeId
from quafka_mesh_ops.ops.base import AnyOp, Buffer, OpKind
from quafka_mesh_ops.ops.cluster import OpenShard
from quafka_mesh_ops.ops.codec import weight
from quafka_mesh_ops.ops.pieces import OpenPieces
from quafka_mesh_ops.pieces import PIECE_BYTES, StreamTurns
from quafka_mesh_ops.transport.connection import QuicSocketConnection
from quafka_mesh_ops.transport.silence import Silence
from quafka_telemetry.tracing import NO_SPAN, Span, TraceContext

MAX_UNFINISHED = 4 * MAX_FRAME
"""Bytes of incomplete replies. A broker sends three bulk replies at a time."""

PING_INTERVAL = 1.0
SILENT_SECONDS = 2.0
_TICK = 0.1
_RESPONSE = Tag.RESPONSE  # reading a member from its class costs more than a comparison
_HANDSHAKE_TIMEOUT = 3.0
_OPEN_SHARD_ID, _OPEN_PIECES_ID = 0, -1  # the ids of calls begin at 1
_ASK_MS = 3_000
_ANY_ORG = 1  # the op concerns the connection


@dataclass(frozen=True, slots=True)
class UnreadResponse:
    """A long response whose body is yet to be read."""

    response: ResponseEnvelope
    long: LongPayload


class Call(DirectFuture["ResponseEnvelope | UnreadResponse"]):
    """An op between `MeshClient.call` and its response, which is the result.

    Attributes:
        body: the encoded op; empty once it is sent.
        size: the bytes of the op, with the memory that it takes once decoded.
        deadline: the loop time at which the call fails.
        session: where it was sent; None before.
        shard: the shard that it is for; None: that of the connection, or the broker itself.
        turn: see `Schedulable`.
        cost: seconds that it has cost the broker, if the answer tells.
        queued: covers the wait before it is sent.
    """

    session: BrokerSession | None = None
    shard: int | None = None
    turn: int = 0
    cost: float = 0.0
    queued: Span = NO_SPAN

    def __init__(
        self,
        owner: CallOwner,
        request_id: int,
        op: AnyOp,
        org_id: int,
        body: list[Buffer],
        stream_index: int,
        kind: OpKind,
        deadline: float,
        trace: TraceContext | None,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        super().__init__(loop=loop)
        self._owner = owner
        self.request_id = request_id
        self.op = op
        self.org_id = org_id
        self.body = body
        self.size = length_of(body) + weight(op) + op.parked_bytes
        self.stream_index = stream_index
        self.kind = kind
        self.deadline = deadline
        self.trace = trace

    def fail(self, error: Exception) -> None:
        """End the call with an error, unless it has ended."""
        if not self.done():
            self.set_exception(error)

    def expire(self) -> None:
        """See Expiring."""
        self._owner.expired(self)


class CallOwner(Protocol):
    """The object that made the call."""

    def expired(self, call: Call) -> None:
        """The deadline of the call has passed."""
        ...


class SessionOwner(Protocol):
    """The object that opened the session and follows its state."""

    def session_ready(self, session: BrokerSession, peer: NodeId) -> None:
        """The broker has answered the first PING: ops may be sent."""
        ...

    def session_gone(self, session: BrokerSession) -> None:
        """The session accepts no more ops."""
        ...

    def shard_leaves(self, shard: int) -> None:
        """The broker takes no more ops for one of the shards of the session, and answers those that
        it has."""
        ...


Answered = Callable[[Call, ResponseEnvelope, LongPayload | None], None]
"""Receives each response; with a LongPayload, its body is yet to be read."""


class BrokerSession:
    """One connection to the broker."""

    def __init__(
        self,
        owner: SessionOwner,
        answered: Answered,
        connection: QuicSocketConnection,
        shard: int | None = None,
    ) -> None:
        """`shard`: the shard that the connection is for; None: the broker's only one."""
        self.connection = connection
        self._shard = shard
        self._shard_open = shard is None
        self._ponged = False
        self.pending: dict[int, Call] = {}
        self.was_ready = False
        self._loop = asyncio.get_running_loop()
        self.over: asyncio.Future[str] = self._loop.create_future()
        self.large: asyncio.Future[None] = self._loop.create_future()
        """Done once an op was sent that shared memory is for."""
        self.memory: SharedMemory | None = None
        self._owner = owner
        self._answered = answered
        self.peer: NodeId = ""
        self._draining = False
        self._streams: list[int] = []
        self._selected: dict[int, int] = {}
        """The shard that the broker takes the ops on a stream for, if we have named one."""
        self._turns: list[StreamTurns[Call]] = []
        """By stream; empty: the broker takes no pieces of frames."""
        self._frames = StreamFrames(MAX_UNFINISHED)
        self._wakeups = Wakeups()
        self._next_ping = self._loop.time()
        self._handshake = Silence(_TICK, self._loop.time())
        self._silence = Silence(_TICK, self._loop.time())
        self._ping_sent = 0.0
        self._unanswered = 0.0
        """Seconds listened since the last ping without an answer."""
        self._pings = 0
        self._before_ping: int | None = None
        """The last op in shared memory before the last ping, on its stream."""
        self._tick_timer = self._loop.call_later(_TICK, self._tick)

    def send(self, call: Call, frame: list[Buffer], *, in_turn: bool = False) -> None:
        """Send an op; its response ends the call. `in_turn`: orgs take turns on its stream."""
        self.pending[call.request_id] = call
        if self._turns:
            turns = self._turns[call.stream_index]
            if in_turn or turns.waits:
                turns.add(call, frame)
                return
        self.write_op(call, frame)

    def cancel(self, call: Call) -> None:
        """Cancel an op at the broker, unless it has been answered."""
        index = call.stream_index
        if self.pending.pop(call.request_id, None) is not None and not (
            self._turns and self._turns[index].cancel(call)
        ):
            frame = encode_number(Tag.CANCEL, call.request_id)
            self.connection.write(self._streams[index], [frame])
        if self._draining:
            self._close_if_drained()

    def abandon(self, shard: int) -> None:
        """Fail the unanswered ops for a shard that is elsewhere: their outcome is unknown."""
        for call in list(self.pending.values()):
            if call.shard == shard:
                call.fail(OutcomeUnknownError("the shard has moved"))

    @property
    def is_draining(self) -> bool:
        """Whether the broker takes no more ops, and answers those that it has."""
        return self._draining

    def shut(self) -> None:
        """Close the connection and its socket now."""
        self.connection.close("the gateway closes the connection")
        self.connection.abort("closed")

    def refuse(self, reason: str) -> None:
        """Close the connection because the broker violates the protocol."""
        self.connection.close(reason, QuicErrorCode.PROTOCOL_VIOLATION)

    def bulk_frame(self, tag: Tag, payload: Buffer) -> None:
        """Act on a frame that arrived over TLS. Raises ProtocolError."""
        if tag is not Tag.RESPONSE:
            raise ProtocolError(f"a {tag.name} frame over TLS")
        self._act(tag, payload)

    # --- Streams ----------------------------------------------------------------------------

    @property
    def largest_whole(self) -> int:
        """See Streams."""
        return PIECE_BYTES if self.memory is None else MOST_BYTES

    def unsent(self, index: int) -> int:
        """See Streams."""
        return self.connection.unsent(self._streams[index])

    def write_piece(self, call: Call, frame: list[Buffer], *, is_last: bool) -> None:
        """See Streams."""
        self._write(call, frame, is_op=is_last)

    def write_op(self, call: Call, frame: list[Buffer]) -> None:
        """See Streams. A large frame stays in shared memory, if there is any."""
        if call.size >= LEAST_BYTES:
            frame = self._placed(call, frame)
        self._write(call, frame, is_op=True)

    def _write(self, call: Call, frame: list[Buffer], *, is_op: bool) -> None:
        """Write a frame; `is_op`: the broker then acts on the op."""
        shard = call.shard
        if is_op and shard is not None and self._selected.get(call.stream_index) != shard:
            self._selected[call.stream_index] = shard
            frame = [encode_number(Tag.SHARD, shard), *frame]
        self.connection.write(self._streams[call.stream_index], frame)

    def _placed(self, call: Call, frame: list[Buffer]) -> list[Buffer]:
        """The frame to send: a large one stays in shared memory, if there is any with room."""
        length = length_of(frame)
        if not LEAST_BYTES <= length <= MOST_BYTES:
            return frame
        if self.memory is None:
            if not self.large.done():
                self.large.set_result(None)
            return frame
        return self.memory.place(call.stream_index, call.request_id, frame, length) or frame

    # --- ConnectionUser ---------------------------------------------------------------------

    def connection_ready(self, peer: NodeId) -> None:
        """Open the streams. Our side of the handshake is done; an answered PING proves theirs."""
        self.peer = peer
        self._streams = [self.connection.open_stream() for _ in range(1 + LANES)]
        self._ping()
        if self._shard is not None:
            self._ask(_OPEN_SHARD_ID, OpenShard(self._shard))
        self._ask(_OPEN_PIECES_ID, OpenPieces())

    def _ask(self, request_id: int, op: AnyOp) -> None:
        """Send an op that concerns the connection."""
        frame = encode_request(request_id, op.code, _ANY_ORG, "", "", _ASK_MS, encode_body(op))
        self.connection.write(self._streams[0], frame)

    def _pieces_answered(self, response: ResponseEnvelope) -> None:
        if response.error_code:
            return  # an earlier version
        self._turns = [StreamTurns(self, index) for index in range(len(self._streams))]
        self.connection.when_progress(self._progress)

    def _progress(self) -> None:
        for turns in self._turns:
            if turns.waits:
                turns.progress()

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
        """Drop a bulk reply, which the broker resets once its op is cancelled.

        The long-lived streams must stay open.
        """
        self._frames.drop(stream_id)
        if stream_id & 3 != 3:
            self.refuse("a long-lived stream was reset")

    def connection_closed(self, reason: str) -> None:
        """Fail the calls that are sent and unanswered: their outcome is unknown."""
        self._tick_timer.cancel()
        self._owner.session_gone(self)
        calls = list(self.pending.values())
        self.pending.clear()
        error = f"the connection was lost: {reason}"
        self._wakeups.wake([partial(call.fail, OutcomeUnknownError(error)) for call in calls])
        if not self.over.done():
            self.over.set_result(reason)

    # --- frames -----------------------------------------------------------------------------

    def _act(self, tag: Tag, payload: Buffer) -> None:
        if tag is _RESPONSE:
            response, long = response_of(payload)
            if self.memory is not None:
                self.memory.answered(response.request_id)
            if response.request_id == _OPEN_SHARD_ID:
                self._shard_answered(response)
                return
            if response.request_id == _OPEN_PIECES_ID:
                self._pieces_answered(response)
                return
            call = self.pending.pop(response.request_id, None)
            if call is not None:  # else it was cancelled while the response was under way
                self._answered(call, response, long)
        elif tag is Tag.PONG:
            self._ponged = True
            if decode_number(payload) == self._pings:
                self._read_before_ping()
            self._ready_if_open()
        elif tag is Tag.SHARD_GOAWAY:
            self._owner.shard_leaves(decode_number(payload))
        elif tag is Tag.GOAWAY:
            self._draining = True
            self._owner.session_gone(self)
            self._close_if_drained()
        else:
            raise ProtocolError(f"a {tag.name} frame from a broker")

    def _read_before_ping(self) -> None:
        """The broker has read what was sent before the last ping, also of cancelled ops."""
        if self.memory is not None and self._before_ping is not None:
            self.memory.answered(self._before_ping)
            self._before_ping = None

    def _shard_answered(self, response: ResponseEnvelope) -> None:
        if response.error_code:
            self.connection.close(f"shard {self._shard} is not there")
            return
        self._shard_open = True
        self._ready_if_open()

    def _ready_if_open(self) -> None:
        if self._ponged and self._shard_open and not self.was_ready and not self._draining:
            self.was_ready = True
            self._owner.session_ready(self, self.peer)

    def _close_if_drained(self) -> None:
        if self._draining and not self.pending:
            self.connection.close("drained")

    # --- liveness ---------------------------------------------------------------------------

    def _is_waited_for(self) -> bool:
        """Whether a client waits for the broker's answer."""
        for call in self.pending.values():  # noqa: SIM110 - nearly always the first or second
            if not call.op.waits_for_news:
                return True
        return False

    def _ping(self) -> None:
        now = self._loop.time()
        self._pings += 1
        self._next_ping = now + PING_INTERVAL
        self._ping_sent = now
        self._unanswered = 0.0
        self._before_ping = None if self.memory is None else self.memory.last_placed(0)
        self.connection.write(self._streams[0], [encode_number(Tag.PING, self._pings)])

    def _tick(self) -> None:
        """Detect a silent broker. Anything that arrives is a sign of life."""
        now = self._loop.time()
        heard = self.connection.last_received
        again = (heard if heard + _TICK > now else now) + _TICK
        self._tick_timer = self._loop.call_at(again, self._tick)
        if not self.was_ready:
            if self._handshake.observe(now, 0.0) >= _HANDSHAKE_TIMEOUT:
                self.connection.abort("the handshake took too long")
            return
        silent = self._silence.observe(now, heard)
        if heard < self._ping_sent:
            self._unanswered += self._silence.counted
            # The last ping must also be old enough to have been answered.
            if silent >= SILENT_SECONDS and self._unanswered >= SILENT_SECONDS / 2:
                # The path may be broken in one direction only, so the close is sent, too.
                self.connection.close(f"no sign of life for {SILENT_SECONDS:g} s")
        elif now >= self._next_ping or (now >= heard + _TICK and self._is_waited_for()):
            # With ops in flight ping more often: the port of a dead peer on this host refuses at
            # once.
            self._ping()
