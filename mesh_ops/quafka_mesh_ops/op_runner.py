"""The ops of one connection at the broker: started, run, answered, cancelled."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterator
from typing import cast

from quafka_loop import clock
from quafka_loop.deadlines import Deadlines
from quafka_loop.eager_task import EagerTask
from quafka_loop.log_context import CURRENT
from quafka_loop.org_queue import OrgQueue
from quafka_loop.slices import in_slices
from quafka_loop.turns import OpTurns
from quafka_mesh_ops.bulk.replies import Replies
from quafka_mesh_ops.envelopes import RequestEnvelope, encode_body, encode_response, length_of
from quafka_mesh_ops.errors import OpFailedError, OpTooLargeError, ProtocolError
from quafka_mesh_ops.grants import Gatekeeper
from quafka_mesh_ops.handlers import Handler
from quafka_mesh_ops.long_payloads import LongPayload, encode_body_in_steps
from quafka_mesh_ops.node_ids import NodeId
from quafka_mesh_ops.ops.base import AnyOp, AnyStruct, Buffer, OpCode
from quafka_mesh_ops.ops.codec import from_wire_in_steps, is_long, weight
from quafka_mesh_ops.running_op import REQUEST_TIMED_OUT, RunningOp
from quafka_mesh_ops.transport.connection import QuicSocketConnection
from quafka_mesh_ops.transport.log_limit import LimitedLog
from quafka_telemetry import semconv
from quafka_telemetry.tracing import (
    NO_SPAN,
    SERVER,
    Span,
    Tracer,
    fail_with,
    parse_traceparent,
)

logger = logging.getLogger("quafka.mesh.server")

SMALL_REPLY = 16 << 10
"""Bytes of a response that is still sent on the stream of its request."""

# Kafka error codes that the mesh itself answers.
UNKNOWN_SERVER_ERROR, UNSUPPORTED_VERSION, INVALID_REQUEST = -1, 35, 42

_FETCH = OpCode.FETCH  # reading a member from its class costs more than a comparison
_REPLY_BACKLOG = 32 << 20
"""Above this many bytes of unread replies, further fetches wait before they read anything."""
_CANCELLED_AT_ONCE = 64 << 10
"""Bytes, with those of the decoded op, up to which an op is cancelled together with others."""
_READING = 8
"""Ops that make large answers at a time: a thousand parked ones may wake at once."""


class OpRunner:
    """Runs the ops of one connection.

    Attributes:
        peer: the node at the other end; set when the connection is ready.
        running: the ops that are being read or handled, by request id.
        waiting: the fetches that wait until the peer has read earlier replies, by request id; orgs
            take turns.
        request_bytes: the bytes of running ops, with the memory that they take once decoded.
    """

    def __init__(
        self,
        connection: QuicSocketConnection,
        gatekeeper: Gatekeeper,
        tracer: Tracer,
        limited: LimitedLog,
    ) -> None:
        self.peer: NodeId = ""
        self.running: dict[int, RunningOp] = {}
        self.request_bytes = 0
        self._connection = connection
        self._gatekeeper = gatekeeper
        self._tracer = tracer
        self._limited = limited
        self._replies = Replies(connection)
        self._turns = OpTurns(_READING, lambda _org: self._replies.backlog > _REPLY_BACKLOG)
        self.waiting: dict[int, tuple[RunningOp, AnyOp]] = {}
        self._queue: OrgQueue[int] = OrgQueue()
        self._cancelled: deque[RunningOp] = deque()  # large ones, one in each turn of the loop
        self._cancelling = False
        self._loop = asyncio.get_running_loop()
        self._deadlines = Deadlines(self._loop)

    def __len__(self) -> int:
        """The number of unanswered ops."""
        return len(self.running) + len(self.waiting)

    @property
    def replies(self) -> Replies:
        """The bulk replies."""
        return self._replies

    @property
    def backlog(self) -> int:
        """Bytes of replies that the peer has not acknowledged."""
        return self._replies.backlog

    @property
    def busy(self) -> bool:
        """Whether an op is unanswered or a bulk reply not yet acknowledged."""
        return bool(self.running or self.waiting or self._replies.backlog)

    @property
    def is_waited_for(self) -> bool:
        """Whether a client waits for the answer to a running op."""
        for running in self.running.values():  # noqa: SIM110 - nearly always the first or second
            if not running.op_type.waits_for_news:
                return True
        return False

    # --- starting and ending ----------------------------------------------------------------

    def receive(
        self,
        stream_id: int,
        request: RequestEnvelope,
        op_type: type[AnyOp],
        handler: Handler,
        deadline: float,
        size: int,
    ) -> RunningOp:
        """Make the record of an op whose payload has `size` bytes."""
        return RunningOp(
            stream_id, request, op_type, handler, deadline, size, self.peer, self._tracer,
            self._turns.acquire,
        )  # fmt: skip

    def begin(self, running: RunningOp, op: AnyOp) -> None:
        """Run an op now, or once the peer has read the answers to earlier ones.

        Its handler runs in this call, up to its first wait.
        """
        if op.code is _FETCH and self._must_wait():
            running.request.queued_at = clock.time_ns()
            self.waiting[running.request_id] = running, op
            self._queue.add(running.org_id, running.request_id)
        else:
            self._start(running, op)

    def _start(self, running: RunningOp, op: AnyOp) -> None:
        self.request_bytes += running.size
        self.running[running.request_id] = running
        task = running.task = EagerTask(self._run(running, op), self._loop)
        if not task.done():
            running.expiring = self._deadlines.watch(running.deadline, running)

    def read_long(
        self,
        running: RunningOp,
        long: LongPayload,
        done: Callable[[int], None],
        refuse: Callable[[str], None],
    ) -> None:
        """Read a long op in slices, and begin it.

        `done` is called with the stream id once the op has begun, before any op that follows it on
        a lane; `refuse` with the reason if the payload violates the protocol.
        """
        self.request_bytes += running.size
        self.running[running.request_id] = running
        running.task = self._loop.create_task(self._read_long(running, long, done, refuse))

    async def _read_long(
        self,
        running: RunningOp,
        long: LongPayload,
        done: Callable[[int], None],
        refuse: Callable[[str], None],
    ) -> None:
        CURRENT.set(running)
        stream_id, request_id = running.stream_id, running.request_id
        op: AnyOp | None = None
        try:
            body = await in_slices(long.body())
            try:
                op = await in_slices(from_wire_in_steps(running.op_type, body))
            except ProtocolError as e:
                self.refuse_body(running, e)
        except ProtocolError as e:
            refuse(str(e))
        except asyncio.CancelledError:
            if running.stopped is None:
                raise
            self.answer_error(stream_id, request_id, running.stopped)
        finally:
            self.request_bytes -= running.size
            del self.running[request_id]
            # A cancelled task has a traceback, whose frames have `running` and all that was read.
            running.task = None
            # In the next turn of the loop: this op begins first.
            self._loop.call_soon(done, stream_id)
        if op is not None and not self.is_refused(stream_id, running.request):
            running.size += weight(op)
            self.begin(running, op)

    def refuse_body(self, running: RunningOp, error: ProtocolError) -> None:
        """Answer an op whose body cannot be decoded. The stream after it is intact."""
        name = running.op_type.__name__
        self._limited.warning(
            name, "%s of node %s could not be read: %s", name, self.peer[:16], error
        )
        self.answer_error(running.stream_id, running.request_id, INVALID_REQUEST)

    def is_refused(self, stream_id: int, request: RequestEnvelope) -> bool:
        """Whether the peer may not send this op, which is then answered with an error."""
        refusal = self._gatekeeper.refusal(self.peer, request.op_code, request.org_id)
        if refusal is None:
            return False
        self.answer_error(stream_id, request.request_id, refusal)
        return True

    def enforce(self) -> None:
        """End the running ops that the peer may no longer send."""
        for running in self.running.values():
            if running.stopped is None:
                request = running.request
                refusal = self._gatekeeper.refusal(self.peer, request.op_code, request.org_id)
                if refusal is not None:
                    running.stop(refusal)

    def cancel(self, request_id: int) -> None:
        """Cancel an op that its caller has given up, and drop its reply."""
        running = self.running.get(request_id)
        if running is not None:
            self._cancel(running)
        self._wait_no_longer(request_id)
        self._replies.drop(request_id)

    def _wait_no_longer(self, request_id: int) -> None:
        waiting = self.waiting.pop(request_id, None)
        if waiting is not None:
            self._queue.remove(waiting[0].org_id, request_id)

    def is_busy_with(self, shard: int) -> bool:
        """Whether an op for this shard is unanswered."""
        waiting = (running for running, _ in self.waiting.values())
        return any(running.shard == shard for running in (*self.running.values(), *waiting))

    def end_shard(self, shard: int) -> list[RunningOp]:
        """End the ops for a shard that leaves: their outcome is unknown. Returns those that ran."""
        for running, _ in list(self.waiting.values()):
            if running.shard == shard:
                self._wait_no_longer(running.request_id)
                self.answer_error(running.stream_id, running.request_id, REQUEST_TIMED_OUT)
        left = [running for running in self.running.values() if running.shard == shard]
        for running in left:
            running.stop(REQUEST_TIMED_OUT)
        return left

    def cancel_all(self) -> None:
        """Cancel every op: the connection is lost."""
        self.waiting.clear()
        self._queue.clear()
        self._deadlines.close()
        for running in self.running.values():
            self._cancel(running)

    def _cancel(self, running: RunningOp) -> None:
        """Cancel an op in a later turn of the loop, a large one in a turn of its own.

        A handler that is cancelled frees what it holds: of a hundred thousand items, milliseconds.
        """
        if running.size <= _CANCELLED_AT_ONCE:
            running.cancel()
            return
        self._cancelled.append(running)
        if not self._cancelling:
            self._cancel_next()

    def _cancel_next(self) -> None:
        self._cancelling = bool(self._cancelled)
        if self._cancelling:
            self._cancelled.popleft().cancel()
            self._loop.call_soon(self._cancel_next)

    # --- pace -------------------------------------------------------------------------------

    def progress(self) -> None:
        """Continue with replies and waiting fetches: the peer has acknowledged data."""
        self._replies.progress()
        self._turns.admit()
        while self.waiting and self._replies.backlog <= _REPLY_BACKLOG:
            running, op = self.waiting.pop(self._queue.pop())
            # The right may have been lost in the meantime.
            if not self.is_refused(running.stream_id, running.request):
                self._start(running, op)

    def reply_reset(self, stream_id: int) -> None:
        """Stop a bulk reply that the peer has refused."""
        self._replies.stream_over(stream_id)

    def _must_wait(self) -> bool:
        return bool(self.waiting) or self._replies.backlog > _REPLY_BACKLOG

    # --- one op -----------------------------------------------------------------------------

    async def _run(self, running: RunningOp, op: AnyOp) -> None:
        CURRENT.set(running)
        try:
            span = self._begin_span(running, op) if running.request.traceparent else NO_SPAN
            with span:
                code, body = await self._handle(running, op, span)
            self._respond(running, code, body)
        finally:
            self.request_bytes -= running.size
            del self.running[running.request_id]
            if running.reads:
                self._turns.release(running.request_id)

    def _begin_span(self, running: RunningOp, op: AnyOp) -> Span:
        tracer, request = self._tracer, running.request
        span = tracer.start(
            semconv.HANDLE,
            parse_traceparent(request.traceparent, request.tracestate),
            kind=SERVER,
            begun=request.queued_at,
        )
        running.trace = span.context
        if request.queued_at:
            tracer.start(semconv.QUEUED, span.context, begun=request.queued_at).end()
        if span.context is not None:
            span.set({semconv.OP: type(op).__name__, semconv.ORG: request.org_id})
            group: object = getattr(op, "group", "")
            if isinstance(group, str) and group:
                span.set({semconv.GROUP: group})
        return span

    async def _handle(
        self, running: RunningOp, op: AnyOp, span: Span
    ) -> tuple[int, list[Buffer] | None]:
        """Run the handler. Returns the error code and the encoded answer."""
        try:
            try:
                answer = await running.handler(running, op)
            finally:
                if running.expiring is not None:
                    running.expiring.pop(running, None)
            if running.trace is not None:
                fail_with(span, _error_codes(answer), type(op).__name__)
            if is_long(answer):
                return 0, await in_slices(encode_body_in_steps(answer))
            return 0, encode_body(answer)
        except OpFailedError as e:
            code = e.error_code
            if isinstance(e, OpTooLargeError):
                self._log_too_large(type(op).__name__, e)
        except asyncio.CancelledError:
            if running.stopped is None:
                raise
            code = running.stopped
        except Exception:
            # A bug in one handler must leave its caller an answer and the other ops running.
            logger.exception("%s failed", type(op).__name__)
            code = UNKNOWN_SERVER_ERROR
        fail_with(span, [code], type(op).__name__)
        return code, None

    # --- answers ----------------------------------------------------------------------------

    def answer_error(self, stream_id: int, request_id: int, error_code: int) -> None:
        """Answer an op with an error code."""
        self._answer(stream_id, request_id, encode_response(request_id, error_code, None))

    def _respond(self, running: RunningOp, code: int, body: list[Buffer] | None) -> None:
        """Answer an op that has run."""
        request_id = running.request_id
        ack = NO_SPAN
        if running.ack_parent is not None:
            ack = self._tracer.start(semconv.ACK, running.ack_parent)
        traceparent = "" if ack.context is None else ack.context.traceparent
        try:
            frame = encode_response(request_id, code, body, traceparent)
        except OpTooLargeError as e:
            self._log_too_large("an op", e)
            frame = encode_response(request_id, e.error_code, None, traceparent)
        self._answer(running.stream_id, request_id, frame)
        ack.end()

    def _answer(self, stream_id: int, request_id: int, frame: list[Buffer]) -> None:
        if not self._connection.is_ready:
            return
        if length_of(frame) <= SMALL_REPLY:
            self._connection.write(stream_id, frame)
        else:
            self._replies.add(request_id, frame)

    def _log_too_large(self, name: str, error: OpTooLargeError) -> None:
        self._limited.warning(
            name, "an answer to %s of node %s is not sent: %s", name, self.peer[:16], error
        )


def _error_codes(answer: AnyStruct) -> Iterator[int]:
    """The error codes of an answer, and of the partitions or groups that it lists."""
    yield getattr(answer, "error_code", 0)
    for name in ("partitions", "groups"):
        listed: object = getattr(answer, name, None)
        if isinstance(listed, list):  # of answers, or of bare codes
            for item in cast("list[object]", listed):
                yield item if isinstance(item, int) else getattr(item, "error_code", 0)
