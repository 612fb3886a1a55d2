"""The broker's end of the mesh: takes ops from allowed gateways and runs their handlers."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Collection, Iterator, Mapping
from functools import partial
from typing import cast

from aioquic.quic.packet import QuicErrorCode

from quafka_mesh_ops.counters import PeerCounters
from quafka_mesh_ops.errors import OpFailedError, OpTooLargeError, ProtocolError
from quafka_mesh_ops.frames import (
    LANES,
    MAX_FRAME,
    Frame,
    Request,
    StreamFrames,
    Tag,
    decode_number,
    encode_body,
    encode_goaway,
    encode_number,
    encode_response,
)
from quafka_mesh_ops.grants import Gatekeeper, Grant, everything
from quafka_mesh_ops.handlers import Handler, OpContext
from quafka_mesh_ops.identity import REVOKED, Identity, NodeId
from quafka_mesh_ops.long_payloads import LongPayload, encode_body_in_steps, request_of
from quafka_mesh_ops.ops.base import AnyOp, Buffer, OpCode, WireStruct
from quafka_mesh_ops.ops.codec import from_wire, from_wire_in_steps, long_lists, weight
from quafka_mesh_ops.ops.table import OPS
from quafka_mesh_ops.settings import join_address
from quafka_mesh_ops.transport.connection import Connection
from quafka_mesh_ops.transport.counters import read as transport_counters
from quafka_mesh_ops.transport.endpoint import HANDSHAKE_DEADLINE, Listener
from quafka_mesh_ops.transport.liveness import Liveness
from quafka_mesh_ops.transport.log_limit import LimitedLog
from quafka_mesh_ops.transport.replies import BulkReplies
from quafka_mesh_ops.transport.silence import Silence
from quafka_mesh_ops.transport.udp import Address
from quafka_telemetry import semconv
from quafka_telemetry.log_context import CURRENT
from quafka_telemetry.slices import in_slices
from quafka_telemetry.tracing import (
    SERVER,
    Span,
    TraceContext,
    Tracer,
    fail_with,
    parse_traceparent,
)
from quafka_telemetry.turns import Turns

logger = logging.getLogger("quafka.mesh.server")

SMALL_REPLY = 16 << 10
"""Bytes of a response that still goes on the stream of its request."""

# Kafka error codes that the mesh itself answers.
UNKNOWN_SERVER_ERROR, REQUEST_TIMED_OUT, UNSUPPORTED_VERSION, INVALID_REQUEST = -1, 7, 35, 42

MAX_IN_FLIGHT = 32_768
MAX_UNFINISHED = 2 * MAX_FRAME
MAX_REQUEST_BYTES = 448 << 20
"""Per connection: ops begun and unanswered; bytes of frames that are not complete (one on the
control stream, one on a lane); bytes of both, with what the ops take once decoded. A gateway keeps
below them, whatever its clients send (credit.py); above them its connection is closed."""

_REPLY_BACKLOG = 32 << 20
"""Above this many bytes of unread replies, further fetches wait before they read anything."""
_READING = 8
"""Ops that make large answers at a time: a thousand that were parked may wake at once."""
_MAX_DEADLINE_MS = 3_600_000
_DRAIN_POLL = 0.005
_DRAIN_LOOK = 0.05  # a look at a peer's silence counts for at most twice as long
_SILENT_SECONDS = 2.0
"""A draining broker waits no longer for a peer that does not even acknowledge."""


class MeshServer:
    """Accepts mesh connections and runs one task per op.

    Ops of one lane are started in the order in which they arrived, each up to its first await
    before the next begins. So are those of the control stream, but for fetches, which may have to
    wait for the peer to read earlier replies, and long ops, which are read in slices. A
    handler's OpFailedError is answered as its code, any other exception as UNKNOWN_SERVER_ERROR, a
    passed deadline as REQUEST_TIMED_OUT. A handler is cancelled when the caller cancels the op and
    when the connection is lost.

    `allowed` is looked at for each connection, `grants` for each op before its body is decoded:
    what the node may not do is answered with the error code of `rights.NEEDS`. `enforce` applies
    changes of both to connections and ops that there are.
    """

    def __init__(
        self,
        identity: Identity,
        allowed: Collection[NodeId],
        handlers: Mapping[OpCode, Handler],
        tracer: Tracer,
        *,
        grants: Callable[[NodeId], Grant] = everything,
        datagram_size: int | None = None,
        batched: bool = True,
        handshake_deadline: float = HANDSHAKE_DEADLINE,
    ) -> None:
        self.handlers = dict(handlers)
        self.allowed = allowed
        self.gatekeeper = Gatekeeper(grants, logger)
        self.tracer = tracer
        self.limited = LimitedLog(logger)
        self.sessions: set[_Session] = set()
        self.connections: Counter[NodeId] = Counter()  # of nodes that were allowed
        self._listener = Listener(
            identity,
            allowed,
            lambda connection, address: _Session(self, connection, address),
            datagram_size=datagram_size,
            batched=batched,
            handshake_deadline=handshake_deadline,
        )

    async def start(self, host: str, port: int) -> tuple[str, int]:
        """Listen; returns the address bound (port 0 asks for any). Raises OSError."""
        return self._listener.start(host, port)

    def counters(self) -> list[PeerCounters]:
        """What is known of each gateway that is connected now."""
        return [session.counters() for session in self.sessions]

    def first_packets(self) -> Mapping[str, int]:
        """What became of the first packets of strangers, by outcome."""
        return self._listener.outcomes

    def enforce(self) -> None:
        """Close the connections of nodes that are not allowed any more; end ops likewise."""
        for session in list(self.sessions):
            session.enforce()

    async def close(self, drain: float) -> None:
        """Take no more connections, let running ops end for up to `drain` seconds, then stop."""
        loop = asyncio.get_running_loop()
        self._listener.stop_accepting()
        for session in self.sessions:
            session.say_goodbye()
        until = loop.time() + drain
        silences = {session: Silence(_DRAIN_LOOK, loop.time()) for session in self.sessions}
        while any(s.busy and not s.is_silent(silences) for s in self.sessions):
            if loop.time() >= until:
                break
            await asyncio.sleep(_DRAIN_POLL)
        tasks = [task for session in self.sessions for task in session.tasks.values()]
        for session in list(self.sessions):
            session.connection.close("the broker shuts down")
        await asyncio.gather(*tasks, return_exceptions=True)
        self._listener.close()


class _Session:
    """One gateway's connection."""

    def __init__(self, server: MeshServer, connection: Connection, address: Address) -> None:
        self.connection = connection
        self.tasks: dict[int, asyncio.Task[None]] = {}
        self._server = server
        self._address = address
        self._peer: NodeId = ""
        self._frames = StreamFrames(MAX_UNFINISHED)
        self._replies = BulkReplies(connection)
        self._waiting: OrderedDict[int, Callable[[], None]] = OrderedDict()
        self._request_bytes = 0
        self._turns = Turns(_READING, lambda: self._replies.backlog > _REPLY_BACKLOG)
        self._asked: dict[int, tuple[int, int]] = {}  # op code and org of each running op
        self._stopped: dict[int, int] = {}  # running ops that lost their right: the error code
        self._behind: dict[int, deque[Frame]] = {}  # of lanes on which a long op is being read
        self._streams: set[int] = set()
        self._liveness: Liveness | None = None
        self._loop = asyncio.get_running_loop()

    @property
    def busy(self) -> bool:
        """Whether an op is unanswered or an answer not yet acknowledged."""
        return bool(
            self.tasks
            or self._waiting
            or self._replies.backlog
            or not all(map(self.connection.is_delivered, self._streams))
        )

    def is_silent(self, silences: Mapping[_Session, Silence]) -> bool:
        """Look once more whether anything comes; whether nothing has for a while."""
        silence = silences.get(self)
        if silence is None:
            return False
        heard = self.connection.last_received
        return silence.look(self._loop.time(), heard) > _SILENT_SECONDS

    def say_goodbye(self) -> None:
        """Ask the peer to send no more ops on this connection."""
        if 0 in self._streams:
            self.connection.write(0, [encode_goaway()])

    # --- ConnectionUser ---------------------------------------------------------------------

    def connection_ready(self, peer: NodeId) -> None:
        """The gateway is proven and allowed."""
        self._peer = peer
        self._server.sessions.add(self)
        self._server.connections[peer] += 1
        self.connection.when_progress(self._progress)
        self._liveness = Liveness(self.connection, lambda: bool(self.tasks))
        logger.info("node %s connected from %s", peer[:16], self._address[0])
        self.enforce()  # it may have been revoked during the handshake

    def counters(self) -> PeerCounters:
        """What is known of the gateway now."""
        return PeerCounters(
            peer=self._peer,
            address=join_address(*self._address[:2]),
            connected=self.connection.is_ready,
            reconnects=self._server.connections[self._peer] - 1,
            ops=len(self.tasks) + len(self._waiting),
            credit_used_bytes=self._request_bytes + self._frames.unfinished,
            credit_bytes=MAX_REQUEST_BYTES,
            backlog_bytes=self._replies.backlog,
            refused_ops=self._server.gatekeeper.refused[self._peer],
            transport=transport_counters(self.connection.quic),
        )

    def enforce(self) -> None:
        """Close the connection if the gateway is not allowed any more, or end ops that are not."""
        if self._peer not in self._server.allowed:
            logger.warning("closed node %s: it was taken off the allow-list", self._peer[:16])
            self.connection.close(REVOKED, QuicErrorCode.CONNECTION_REFUSED)
            return
        for request_id, task in self.tasks.items():
            refusal = self._server.gatekeeper.refusal(self._peer, *self._asked[request_id])
            if refusal is not None and request_id not in self._stopped:
                self._stopped[request_id] = refusal
                self._cancel_soon(task)

    def stream_data(self, stream_id: int, data: bytes, end_stream: bool) -> None:
        """Act on every frame that is complete."""
        # Client-initiated bidirectional streams have ids 0, 4, 8, ... (RFC 9000 section 2.1).
        if stream_id & 3 or stream_id >> 2 > LANES or end_stream:
            self._refuse(f"stream {stream_id} is not as the mesh uses streams")
            return
        self._streams.add(stream_id)
        try:
            for tag, payload in self._frames.feed(stream_id, data, end_stream):
                behind = self._behind.get(stream_id)
                if behind is None:
                    self._act(stream_id, tag, payload)
                else:
                    behind.append((tag, payload))
                    self._request_bytes += len(payload)
        except ProtocolError as e:
            self._refuse(str(e))
            return
        if self._request_bytes + self._frames.unfinished > MAX_REQUEST_BYTES:
            self._refuse(f"more than {MAX_REQUEST_BYTES} bytes of requests at once")

    def stream_reset(self, stream_id: int) -> None:
        """The peer may refuse a bulk reply; the long-lived streams stay open."""
        if stream_id & 3 == 3:
            self._replies.stream_over(stream_id)
        else:
            self._refuse("a long-lived stream was reset")

    def connection_closed(self, reason: str) -> None:
        """Cancel what the peer had asked for."""
        if self._liveness is not None:
            self._liveness.stop()
        self._waiting.clear()
        self._behind.clear()
        for task in self.tasks.values():
            self._cancel_soon(task)
        if self._peer:
            self._server.sessions.discard(self)
            logger.info("node %s disconnected: %r", self._peer[:16], reason)

    # --- frames -----------------------------------------------------------------------------

    def _act(self, stream_id: int, tag: Tag, payload: Buffer) -> None:
        if tag is Tag.OP:
            self._op(stream_id, *request_of(payload), len(payload))
        elif tag is Tag.CANCEL:
            self._cancel(decode_number(payload))
        elif tag is Tag.PING:
            self.connection.write(stream_id, [encode_number(Tag.PONG, decode_number(payload))])
        else:
            raise ProtocolError(f"a {tag.name} frame from a client")

    def _op(self, stream_id: int, request: Request, long: LongPayload | None, size: int) -> None:
        request_id = request.request_id
        if request_id in self.tasks or request_id in self._waiting:
            raise ProtocolError("a request id that is in use")
        if len(self.tasks) + len(self._waiting) >= MAX_IN_FLIGHT:
            raise ProtocolError(f"more than {MAX_IN_FLIGHT} ops at once")
        if self._is_refused(stream_id, request):
            return
        op_type = OPS.get(request.op_code)
        handler = self._server.handlers.get(op_type.code) if op_type is not None else None
        if op_type is None or handler is None:
            self._answer(
                stream_id, request_id, encode_response(request_id, UNSUPPORTED_VERSION, None)
            )
            return
        deadline = self._loop.time() + min(request.deadline_ms, _MAX_DEADLINE_MS) / 1000
        if long is not None:
            self._request_bytes += size
            self._asked[request_id] = request.op_code, request.org_id
            self.tasks[request_id] = self._loop.create_task(
                self._read_long(stream_id, request, op_type, handler, long, deadline, size)
            )
            if stream_id:  # a lane
                self._behind[stream_id] = deque()
            return
        try:
            op = from_wire(op_type, request.body)
        except ProtocolError as e:
            self._refuse_body(stream_id, request_id, op_type, e)
            return
        request.body = []
        self._begin(stream_id, request, handler, op, deadline, size)

    def _refuse_body(
        self, stream_id: int, request_id: int, op_type: type[AnyOp], error: ProtocolError
    ) -> None:
        """The stream is intact behind it: one op's body must not end the others."""
        name = op_type.__name__
        self._server.limited.warning(
            name, "%s of node %s could not be read: %s", name, self._peer[:16], error
        )
        self._answer(stream_id, request_id, encode_response(request_id, INVALID_REQUEST, None))

    async def _read_long(
        self,
        stream_id: int,
        request: Request,
        op_type: type[AnyOp],
        handler: Handler,
        long: LongPayload,
        deadline: float,
        size: int,
    ) -> None:
        """Read a long op in slices, and begin it. On a lane, what is behind it waits."""
        request_id = request.request_id
        op: AnyOp | None = None
        try:
            body = await in_slices(long.body())
            try:
                op = await in_slices(from_wire_in_steps(op_type, body))
            except ProtocolError as e:
                self._refuse_body(stream_id, request_id, op_type, e)
        except ProtocolError as e:
            self._refuse(str(e))
        except asyncio.CancelledError:
            stopped = self._stopped.pop(request_id, None)
            if stopped is None:
                raise
            self._answer(stream_id, request_id, encode_response(request_id, stopped, None))
        finally:
            self._request_bytes -= size
            del self.tasks[request_id], self._asked[request_id]
            # When this one has begun, which is before those behind it do.
            self._loop.call_soon(self._go_on, stream_id)
        if op is not None and not self._is_refused(stream_id, request):
            self._begin(stream_id, request, handler, op, deadline, size)

    def _go_on(self, stream_id: int) -> None:
        """Act on the frames of a lane that waited for a long op."""
        behind = self._behind.pop(stream_id, None)
        try:
            while behind:
                tag, payload = behind.popleft()
                self._request_bytes -= len(payload)
                self._act(stream_id, tag, payload)
                if stream_id in self._behind:  # it is long as well
                    self._behind[stream_id] = behind
                    break
        except ProtocolError as e:
            self._refuse(str(e))

    def _begin(
        self,
        stream_id: int,
        request: Request,
        handler: Handler,
        op: AnyOp,
        deadline: float,
        size: int,
    ) -> None:
        """Run an op, now or when the peer has read what it was answered before."""
        request_id = request.request_id
        size += weight(op)

        def start() -> None:
            self._request_bytes += size
            self._asked[request_id] = request.op_code, request.org_id
            self.tasks[request_id] = self._loop.create_task(
                self._run(stream_id, request, handler, op, deadline, size)
            )

        def start_late() -> None:
            if not self._is_refused(stream_id, request):  # the right may have been lost meanwhile
                start()

        if op.code is OpCode.FETCH and self._must_wait():
            request.came = time.time_ns()
            self._waiting[request_id] = start_late
        else:
            start()

    def _is_refused(self, stream_id: int, request: Request) -> bool:
        """Answer an op that the peer may not send."""
        gatekeeper = self._server.gatekeeper
        refusal = gatekeeper.refusal(self._peer, request.op_code, request.org_id)
        if refusal is None:
            return False
        frame = encode_response(request.request_id, refusal, None)
        self._answer(stream_id, request.request_id, frame)
        return True

    def _cancel(self, request_id: int) -> None:
        task = self.tasks.get(request_id)
        if task is not None:
            self._cancel_soon(task)
        self._waiting.pop(request_id, None)
        self._replies.drop(request_id)

    def _cancel_soon(self, task: asyncio.Task[None]) -> None:
        """Cancel a task once it has begun: one that never begins would never clean up."""
        self._loop.call_soon(task.cancel)

    def _must_wait(self) -> bool:
        return bool(self._waiting) or self._replies.backlog > _REPLY_BACKLOG

    def _progress(self) -> None:
        self._replies.progress()
        self._turns.admit()
        while self._waiting and self._replies.backlog <= _REPLY_BACKLOG:
            self._waiting.popitem(last=False)[1]()

    def _refuse(self, reason: str) -> None:
        self._server.limited.warning(
            reason, "closed node %s at %s: %s", self._peer[:16], self._address[0], reason
        )
        self.connection.close(reason, QuicErrorCode.PROTOCOL_VIOLATION)

    # --- one op -----------------------------------------------------------------------------

    async def _run(
        self,
        stream_id: int,
        request: Request,
        handler: Handler,
        op: WireStruct,
        deadline: float,
        size: int,
    ) -> None:
        tracer = self._server.tracer
        span = tracer.start(
            semconv.HANDLE,
            parse_traceparent(request.traceparent, request.tracestate),
            kind=SERVER,
            begun=request.came,
        )
        if request.came:
            tracer.start(semconv.QUEUED, span.context, begun=request.came).end()
        context = OpContext(
            request.org_id,
            span.context,
            deadline,
            self._peer,
            tracer,
            may_read=partial(self._turns.take, request.request_id),
            request_id=request.request_id,
        )
        CURRENT.set(context)
        try:
            with span:
                if span.context is not None:
                    span.set({semconv.OP: type(op).__name__, semconv.ORG: request.org_id})
                    group: object = getattr(op, "group", "")
                    if isinstance(group, str) and group:
                        span.set({semconv.GROUP: group})
                code, body = await self._handle(handler, context, op, span)
            self._respond(stream_id, request.request_id, code, body, context.ack_parent)
        finally:
            self._request_bytes -= size
            del self.tasks[request.request_id], self._asked[request.request_id]
            self._stopped.pop(request.request_id, None)
            self._turns.give(request.request_id)

    async def _handle(
        self, handler: Handler, context: OpContext, op: WireStruct, span: Span
    ) -> tuple[int, list[Buffer] | None]:
        """Run the handler. Returns the error code and the encoded answer."""
        timeout = asyncio.timeout_at(context.deadline)
        try:
            async with timeout:
                answer = await handler(context, op)
            if span.context is not None:
                fail_with(span, _error_codes(answer))
            if long_lists(answer):
                return 0, await in_slices(encode_body_in_steps(answer))
            return 0, encode_body(answer)
        except OpFailedError as e:
            code = e.error_code
            if isinstance(e, OpTooLargeError):
                self._note_too_large(type(op).__name__, e)
        except asyncio.CancelledError:
            stopped = self._stopped.get(context.request_id)
            if stopped is None:
                raise
            code = stopped
        except TimeoutError:
            code = REQUEST_TIMED_OUT
            if not timeout.expired():
                logger.exception("%s failed", type(op).__name__)
                code = UNKNOWN_SERVER_ERROR
        except Exception:
            # Whatever a handler does, its caller gets an answer and the other ops go on.
            logger.exception("%s failed", type(op).__name__)
            code = UNKNOWN_SERVER_ERROR
        fail_with(span, [code])
        return code, None

    def _respond(
        self,
        stream_id: int,
        request_id: int,
        code: int,
        body: list[Buffer] | None,
        ack_parent: TraceContext | None,
    ) -> None:
        with self._server.tracer.start(semconv.ACK, ack_parent) as ack:
            traceparent = ack.context.traceparent if ack.context is not None else ""
            try:
                frame = encode_response(request_id, code, body, traceparent)
            except OpTooLargeError as e:
                self._note_too_large("an op", e)
                frame = encode_response(request_id, e.error_code, None, traceparent)
            self._answer(stream_id, request_id, frame)

    def _note_too_large(self, name: str, error: OpTooLargeError) -> None:
        self._server.limited.warning(
            name, "an answer to %s of node %s is not sent: %s", name, self._peer[:16], error
        )

    def _answer(self, stream_id: int, request_id: int, frame: list[Buffer]) -> None:
        if not self.connection.is_ready:
            return
        if sum(map(len, frame)) <= SMALL_REPLY:
            self.connection.write(stream_id, frame)
        else:
            self._replies.add(request_id, frame)


def _error_codes(answer: WireStruct) -> Iterator[int]:
    """Those of an answer, and of what it lists first of all."""
    yield getattr(answer, "error_code", 0)
    for name in ("partitions", "groups"):
        listed: object = getattr(answer, name, None)
        if isinstance(listed, list):  # of answers, or of bare codes
            for part in cast("list[object]", listed):
                yield part if isinstance(part, int) else getattr(part, "error_code", 0)
