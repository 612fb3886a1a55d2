"""The gateway's end of the mesh: one connection to a broker, kept up, and ops sent over it."""

from __future__ import annotations

import asyncio
import logging
import random
from collections import OrderedDict
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from aioquic.quic.packet import QuicErrorCode

from quafka_mesh_ops.errors import (
    OpFailedError,
    OutcomeUnknownError,
    PeerUnavailableError,
    ProtocolError,
)
from quafka_mesh_ops.frames import (
    MAX_FRAME,
    Response,
    StreamFrames,
    Tag,
    decode_response,
    encode_body,
    encode_number,
    encode_request,
)
from quafka_mesh_ops.identity import Identity, NodeId
from quafka_mesh_ops.ops import Buffer, Op, OpCode, from_wire
from quafka_mesh_ops.server import LANES
from quafka_mesh_ops.tracing import CLIENT, TraceContext, Tracer, parse_traceparent
from quafka_mesh_ops.transport.connection import Connection
from quafka_mesh_ops.transport.endpoint import dial

logger = logging.getLogger("quafka.mesh.client")

BUDGET = 64 << 20
"""Bytes of produce and lane ops that are sent and unanswered. A single larger op goes alone."""
MAX_IN_FLIGHT = 8192
"""Ops sent and unanswered; half of what a broker bears with."""
MAX_UNFINISHED = 4 * MAX_FRAME
"""Bytes of incomplete replies. A broker sends three bulk replies at a time."""

PING_INTERVAL = 1.0
PING_DEADLINE = 2.0
_TICK = 0.1
_HANDSHAKE_TIMEOUT = 3.0
_FIRST_DELAY, _LONGEST_DELAY = 0.02, 1.0


@dataclass(slots=True, eq=False)
class _Call:
    """An op between `call` and its answer."""

    request_id: int
    op: Op
    org_id: int
    body: list[Buffer]
    size: int
    stream_index: int
    is_bulk: bool
    deadline: float
    trace: TraceContext | None
    future: asyncio.Future[Any]
    session: _Session | None = None


class MeshClient:
    """Sends ops to one broker. Reconnects by itself, with capped and jittered back-off.

    All methods are for one event loop. An op is sent at most once: whether to retry is the
    caller's decision, which the three errors of `call` make possible.
    """

    def __init__(
        self,
        host: str,
        port: int,
        identity: Identity,
        allowed: Collection[NodeId],
        tracer: Tracer,
        *,
        datagram_size: int | None = None,
    ) -> None:
        self._host = host
        self._port = port
        self._identity = identity
        self._allowed = frozenset(allowed)
        self._tracer = tracer
        self._datagram_size = datagram_size
        self._session: _Session | None = None
        self._connected = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._closed = False
        self._last_id = 0
        self._control: OrderedDict[int, _Call] = OrderedDict()
        self._bulk: OrderedDict[int, _Call] = OrderedDict()
        self._bulk_bytes = 0

    @property
    def connected(self) -> bool:
        """Whether an op would be sent now."""
        return self._session is not None

    async def start(self) -> None:
        """Begin connecting, in the background."""
        self._task = asyncio.get_running_loop().create_task(self._keep_connected())

    async def wait_connected(self, timeout: float) -> bool:
        """Wait for a connection for up to `timeout` seconds; False if there is none."""
        try:
            async with asyncio.timeout(timeout):
                await self._connected.wait()
        except TimeoutError:
            return False
        return True

    async def close(self) -> None:
        """Close the connection and fail what is unanswered."""
        self._closed = True
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        for queue in (self._control, self._bulk):
            for call in queue.values():
                _fail(call, PeerUnavailableError("the mesh client was closed"))
            queue.clear()

    async def call(
        self,
        op: Op,
        *,
        org_id: int,
        deadline: float,
        trace: TraceContext | None = None,
        lane: int | None = None,
    ) -> Any:
        """Send an op and return its answer, an instance of `op.response`.

        `deadline` is in seconds from now and covers the wait for a connection, for earlier ops of
        the lanes (their bytes are bounded, first come first served) and for the answer. Ops with
        the same `lane` reach their handlers in the order in which they were called. If the
        awaiting task is cancelled, so is the broker's handler.

        Raises:
            PeerUnavailableError: it was not sent within the deadline.
            OutcomeUnknownError: it was sent, but the connection was lost or the deadline passed.
            OpFailedError: the broker answered an error.
            TypeError, ValueError, OverflowError: the op cannot be encoded.
        """
        if self._closed:
            raise PeerUnavailableError("the mesh client was closed")
        loop = asyncio.get_running_loop()
        body = encode_body(op)
        self._last_id += 1
        with self._tracer.start("mesh.kafkaop.sent", trace, kind=CLIENT) as span:
            if span.context is not None:
                span.set({"op": type(op).__name__, "org_id": org_id})
            call = _Call(
                self._last_id,
                op,
                org_id,
                body,
                sum(map(len, body)),
                0 if lane is None else 1 + lane % LANES,
                lane is not None or op.code is OpCode.PRODUCE,
                loop.time() + deadline,
                span.context,
                loop.create_future(),
            )
            timer = loop.call_at(call.deadline, self._expire, call)
            (self._bulk if call.is_bulk else self._control)[call.request_id] = call
            self._flush()
            try:
                return await call.future
            finally:
                timer.cancel()
                self._forget(call)

    # --- calls ------------------------------------------------------------------------------

    def _flush(self) -> None:
        """Send what may be sent now, in the order of the calls."""
        session = self._session
        if session is None:
            return
        while self._control and len(session.pending) < MAX_IN_FLIGHT:
            self._send(session, self._control.popitem(last=False)[1])
        while self._bulk and len(session.pending) < MAX_IN_FLIGHT:
            head = next(iter(self._bulk.values()))
            if self._bulk_bytes and self._bulk_bytes + head.size > BUDGET:
                return
            del self._bulk[head.request_id]
            self._send(session, head)

    def _send(self, session: _Session, call: _Call) -> None:
        trace = call.trace
        left = call.deadline - asyncio.get_running_loop().time()
        try:
            frame = encode_request(
                call.request_id,
                call.op.code,
                call.org_id,
                trace.traceparent if trace is not None else "",
                trace.tracestate if trace is not None else "",
                max(0, round(left * 1000)),
                call.body,
            )
        except (TypeError, ValueError, OverflowError) as e:
            _fail(call, e)
            return
        call.body = []
        call.session = session
        if call.is_bulk:
            self._bulk_bytes += call.size
        session.send(call, frame)

    def _expire(self, call: _Call) -> None:
        if call.session is None:
            _fail(call, PeerUnavailableError(f"no connection to {self._host}:{self._port} in time"))
        else:
            _fail(call, OutcomeUnknownError("no answer within the deadline"))

    def _forget(self, call: _Call) -> None:
        """The caller is gone: with its answer, with an error, or cancelled."""
        if call.session is None:
            (self._bulk if call.is_bulk else self._control).pop(call.request_id, None)
            return
        call.session.forget(call)
        if call.is_bulk:
            self._bulk_bytes -= call.size
        self._flush()

    def answered(self, call: _Call, response: Response) -> None:
        """Hand a response to its caller. Raises ProtocolError: it is not the answer to the op."""
        if response.traceparent:
            parent = parse_traceparent(response.traceparent)
            self._tracer.start("kafkaop.ack_received", parent).end()
        if response.error_code:
            _fail(call, OpFailedError(response.error_code))
            return
        try:
            answer = from_wire(call.op.response, response.body)
        except ProtocolError:
            _fail(call, OutcomeUnknownError("the answer could not be read"))
            raise
        if not call.future.done():
            call.future.set_result(answer)

    # --- the connection ---------------------------------------------------------------------

    async def _keep_connected(self) -> None:
        delay = 0.0
        last_reason = ""
        while True:
            was_ready, reason = await self._connect_once()
            if was_ready:
                delay, last_reason = 0.0, ""
            if reason != last_reason:
                logger.warning("no connection to %s:%d: %s", self._host, self._port, reason)
                last_reason = reason
            await asyncio.sleep(delay * random.uniform(0.5, 1.0))  # noqa: S311 - no secret
            delay = min(max(_FIRST_DELAY, 2 * delay), _LONGEST_DELAY)

    async def _connect_once(self) -> tuple[bool, str]:
        """Hold one connection until it ends; whether it ever was usable, and why it ended."""
        sessions: list[_Session] = []

        def make_session(connection: Connection) -> _Session:
            sessions.append(_Session(self, connection))
            return sessions[0]

        try:
            await dial(
                self._host,
                self._port,
                self._identity,
                self._allowed,
                make_session,
                datagram_size=self._datagram_size,
            )
        except OSError as e:
            return False, e.strerror or str(e)
        (session,) = sessions
        try:
            reason = await session.over
        finally:
            session.shut()
        return session.was_ready, reason

    def session_ready(self, session: _Session, peer: NodeId) -> None:
        """The broker answers: ops may be sent."""
        logger.info("connected to node %s at %s:%d", peer[:16], self._host, self._port)
        self._session = session
        self._connected.set()
        self._flush()

    def session_gone(self, session: _Session) -> None:
        """No more ops on this connection."""
        if self._session is session:
            self._session = None
            self._connected.clear()


class _Session:
    """One connection to the broker."""

    def __init__(self, client: MeshClient, connection: Connection) -> None:
        self.connection = connection
        self.pending: dict[int, _Call] = {}
        self.was_ready = False
        self._loop = asyncio.get_running_loop()
        self.over: asyncio.Future[str] = self._loop.create_future()
        self._client = client
        self._peer: NodeId = ""
        self._draining = False
        self._streams: list[int] = []
        self._frames = StreamFrames(MAX_UNFINISHED)
        self._next_ping = self._loop.time()
        self._give_up = self._loop.time() + _HANDSHAKE_TIMEOUT
        self._ping_sent = 0.0
        self._pings = 0
        self._tick_timer = self._loop.call_later(_TICK, self._tick)

    def send(self, call: _Call, frame: list[Buffer]) -> None:
        """Send an op and wait for its answer."""
        self.pending[call.request_id] = call
        self.connection.write(self._streams[call.stream_index], frame)

    def forget(self, call: _Call) -> None:
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
        self._peer = peer
        self._streams = [self.connection.open_stream() for _ in range(1 + LANES)]
        self._ping()

    def stream_data(self, stream_id: int, data: bytes, end_stream: bool) -> None:
        """Act on every frame that is complete."""
        # Server-initiated unidirectional streams: RFC 9000 section 2.1.
        if stream_id & 3 != 3 and (stream_id not in self._streams or end_stream):
            self._refuse(f"stream {stream_id} is not as the mesh uses streams")
            return
        try:
            for tag, payload in self._frames.feed(stream_id, data, end_stream):
                self._act(tag, payload)
        except ProtocolError as e:
            self._refuse(str(e))

    def stream_reset(self, stream_id: int) -> None:
        """A bulk reply is reset when we have cancelled its op; the others stay open."""
        self._frames.drop(stream_id)
        if stream_id & 3 != 3:
            self._refuse("a long-lived stream was reset")

    def connection_closed(self, reason: str) -> None:
        """What was sent and not answered may have happened or not."""
        self._tick_timer.cancel()
        self._client.session_gone(self)
        calls = list(self.pending.values())
        self.pending.clear()
        for call in calls:
            _fail(call, OutcomeUnknownError(f"the connection was lost: {reason}"))
        if not self.over.done():
            self.over.set_result(reason)

    # --- frames -----------------------------------------------------------------------------

    def _act(self, tag: Tag, payload: Buffer) -> None:
        if tag is Tag.RESPONSE:
            response = decode_response(payload)
            call = self.pending.pop(response.request_id, None)
            if call is not None:  # else it was cancelled on the way
                self._client.answered(call, response)
        elif tag is Tag.PONG:
            if not self.was_ready:
                self.was_ready = True
                self._client.session_ready(self, self._peer)
        elif tag is Tag.GOAWAY:
            self._draining = True
            self._client.session_gone(self)
            self._close_if_drained()
        else:
            raise ProtocolError(f"a {tag.name} frame from a broker")

    def _refuse(self, reason: str) -> None:
        self.connection.close(reason, QuicErrorCode.PROTOCOL_VIOLATION)

    def _close_if_drained(self) -> None:
        if self._draining and not self.pending:
            self.connection.close("drained")

    def _ping(self) -> None:
        now = self._loop.time()
        self._pings += 1
        self._next_ping = now + PING_INTERVAL
        self._ping_sent = now
        self.connection.write(self._streams[0], [encode_number(Tag.PING, self._pings)])

    def _tick(self) -> None:
        """Notice a broker that is silent. Anything that arrives is a sign of life."""
        now = self._loop.time()
        heard = self.connection.last_received
        self._tick_timer = self._loop.call_later(_TICK, self._tick)
        if not self.was_ready:
            if now >= self._give_up:
                self.connection.abort("the handshake took too long")
            return
        if heard < self._ping_sent:
            if now >= self._ping_sent + PING_DEADLINE:
                self.connection.abort(f"no sign of life for {PING_DEADLINE:g} s")
        elif now >= self._next_ping or (self.pending and now >= heard + _TICK):
            # With ops in flight ask more often: a dead peer's port on this host refuses at once.
            self._ping()


def _fail(call: _Call, error: Exception) -> None:
    if not call.future.done():
        call.future.set_exception(error)
