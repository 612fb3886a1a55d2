"""The ops of one connection at the broker: started, run in tasks, answered, cancelled."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import cast

from quafka_mesh_ops.envelopes import Request, encode_body, encode_response
from quafka_mesh_ops.errors import OpFailedError, OpTooLargeError, ProtocolError
from quafka_mesh_ops.grants import Gatekeeper
from quafka_mesh_ops.handlers import Handler, OpContext
from quafka_mesh_ops.identity import NodeId
from quafka_mesh_ops.long_payloads import LongPayload, encode_body_in_steps
from quafka_mesh_ops.ops.base import AnyOp, Buffer, OpCode, WireStruct
from quafka_mesh_ops.ops.codec import from_wire_in_steps, long_lists, weight
from quafka_mesh_ops.transport.connection import Connection
from quafka_mesh_ops.transport.log_limit import LimitedLog
from quafka_mesh_ops.transport.replies import BulkReplies
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
"""Bytes of a response that is still sent on the stream of its request."""

# Kafka error codes that the mesh itself answers.
UNKNOWN_SERVER_ERROR, REQUEST_TIMED_OUT, UNSUPPORTED_VERSION, INVALID_REQUEST = -1, 7, 35, 42

_REPLY_BACKLOG = 32 << 20
"""Above this many bytes of unread replies, further fetches wait before they read anything."""
_READING = 8
"""Ops that make large answers at a time: a thousand parked ones may wake at once."""


@dataclass(slots=True, eq=False)
class Received:
    """An op as it was received. `size`: the bytes of its payload."""

    stream_id: int
    request: Request
    op_type: type[AnyOp]
    handler: Handler
    deadline: float
    size: int


class OpRunner:
    """Runs the ops of one connection.

    Attributes:
        peer: the node at the other end; set when the connection is ready.
        tasks: the running ops, by request id.
        request_bytes: the bytes of running ops, with the memory that they take once decoded.
    """

    def __init__(
        self, connection: Connection, gatekeeper: Gatekeeper, tracer: Tracer, limited: LimitedLog
    ) -> None:
        self.peer: NodeId = ""
        self.tasks: dict[int, asyncio.Task[None]] = {}
        self.request_bytes = 0
        self._connection = connection
        self._gatekeeper = gatekeeper
        self._tracer = tracer
        self._limited = limited
        self._replies = BulkReplies(connection)
        self._turns = Turns(_READING, lambda: self._replies.backlog > _REPLY_BACKLOG)
        self._waiting: OrderedDict[int, Callable[[], None]] = OrderedDict()
        """Fetches that wait until the peer has read earlier replies, by request id."""
        self._op_and_org: dict[int, tuple[int, int]] = {}
        """Op code and org of each running op."""
        self._stopped: dict[int, int] = {}
        """The error codes of running ops that have lost their right."""
        self._loop = asyncio.get_running_loop()

    def __len__(self) -> int:
        """The number of unanswered ops."""
        return len(self.tasks) + len(self._waiting)

    def __contains__(self, request_id: int) -> bool:
        return request_id in self.tasks or request_id in self._waiting

    @property
    def backlog(self) -> int:
        """Bytes of replies that the peer has not acknowledged."""
        return self._replies.backlog

    @property
    def busy(self) -> bool:
        """Whether an op is unanswered or a bulk reply not yet acknowledged."""
        return bool(self.tasks or self._waiting or self._replies.backlog)

    # --- starting and ending ----------------------------------------------------------------

    def begin(self, received: Received, op: AnyOp) -> None:
        """Run an op now, or once the peer has read the answers to earlier ones."""
        request = received.request
        request_id = request.request_id
        size = received.size + weight(op)

        def start() -> None:
            self.request_bytes += size
            self._op_and_org[request_id] = request.op_code, request.org_id
            self.tasks[request_id] = self._loop.create_task(self._run(received, op, size))

        def start_late() -> None:
            # The right may have been lost in the meantime.
            if not self.is_refused(received.stream_id, request):
                start()

        if op.code is OpCode.FETCH and self._must_wait():
            request.queued_at = time.time_ns()
            self._waiting[request_id] = start_late
        else:
            start()

    def read_long(
        self,
        received: Received,
        long: LongPayload,
        done: Callable[[int], None],
        refuse: Callable[[str], None],
    ) -> None:
        """Read a long op in slices, and begin it.

        `done` is called with the stream id once the op has begun, before any op that follows it on
        a lane; `refuse` with the reason where the payload violates the protocol.
        """
        request = received.request
        self.request_bytes += received.size
        self._op_and_org[request.request_id] = request.op_code, request.org_id
        self.tasks[request.request_id] = self._loop.create_task(
            self._read_long(received, long, done, refuse)
        )

    async def _read_long(
        self,
        received: Received,
        long: LongPayload,
        done: Callable[[int], None],
        refuse: Callable[[str], None],
    ) -> None:
        stream_id, request_id = received.stream_id, received.request.request_id
        op: AnyOp | None = None
        try:
            body = await in_slices(long.body())
            try:
                op = await in_slices(from_wire_in_steps(received.op_type, body))
            except ProtocolError as e:
                self.refuse_body(received, e)
        except ProtocolError as e:
            refuse(str(e))
        except asyncio.CancelledError:
            stopped = self._stopped.pop(request_id, None)
            if stopped is None:
                raise
            self.answer_error(stream_id, request_id, stopped)
        finally:
            self.request_bytes -= received.size
            del self.tasks[request_id], self._op_and_org[request_id]
            # In the next turn of the loop: this op begins first.
            self._loop.call_soon(done, stream_id)
        if op is not None and not self.is_refused(stream_id, received.request):
            self.begin(received, op)

    def refuse_body(self, received: Received, error: ProtocolError) -> None:
        """Answer an op whose body cannot be decoded. The stream after it is intact."""
        name = received.op_type.__name__
        self._limited.warning(
            name, "%s of node %s could not be read: %s", name, self.peer[:16], error
        )
        self.answer_error(received.stream_id, received.request.request_id, INVALID_REQUEST)

    def is_refused(self, stream_id: int, request: Request) -> bool:
        """Whether the peer may not send this op, which is then answered with an error."""
        refusal = self._gatekeeper.refusal(self.peer, request.op_code, request.org_id)
        if refusal is None:
            return False
        self.answer_error(stream_id, request.request_id, refusal)
        return True

    def enforce(self) -> None:
        """End the running ops that the peer may no longer send."""
        for request_id, task in self.tasks.items():
            refusal = self._gatekeeper.refusal(self.peer, *self._op_and_org[request_id])
            if refusal is not None and request_id not in self._stopped:
                self._stopped[request_id] = refusal
                self._cancel_soon(task)

    def cancel(self, request_id: int) -> None:
        """Cancel an op that its caller has given up, and drop its reply."""
        task = self.tasks.get(request_id)
        if task is not None:
            self._cancel_soon(task)
        self._waiting.pop(request_id, None)
        self._replies.drop(request_id)

    def cancel_all(self) -> None:
        """Cancel every op: the connection is lost."""
        self._waiting.clear()
        for task in self.tasks.values():
            self._cancel_soon(task)

    def _cancel_soon(self, task: asyncio.Task[None]) -> None:
        """Cancel a task after it has begun: one that never begins never cleans up."""
        self._loop.call_soon(task.cancel)

    # --- pace -------------------------------------------------------------------------------

    def progress(self) -> None:
        """Continue with replies and waiting fetches: the peer has acknowledged data."""
        self._replies.progress()
        self._turns.admit()
        while self._waiting and self._replies.backlog <= _REPLY_BACKLOG:
            self._waiting.popitem(last=False)[1]()

    def reply_reset(self, stream_id: int) -> None:
        """Stop a bulk reply that the peer has refused."""
        self._replies.stream_over(stream_id)

    def _must_wait(self) -> bool:
        return bool(self._waiting) or self._replies.backlog > _REPLY_BACKLOG

    # --- one op -----------------------------------------------------------------------------

    async def _run(self, received: Received, op: AnyOp, size: int) -> None:
        tracer, request = self._tracer, received.request
        span = tracer.start(
            semconv.HANDLE,
            parse_traceparent(request.traceparent, request.tracestate),
            kind=SERVER,
            begun=request.queued_at,
        )
        if request.queued_at:
            tracer.start(semconv.QUEUED, span.context, begun=request.queued_at).end()
        context = OpContext(
            request.org_id,
            span.context,
            received.deadline,
            self.peer,
            tracer,
            may_read=partial(self._turns.acquire, request.request_id),
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
                code, body = await self._handle(received.handler, context, op, span)
            self._respond(received.stream_id, request.request_id, code, body, context.ack_parent)
        finally:
            self.request_bytes -= size
            del self.tasks[request.request_id], self._op_and_org[request.request_id]
            self._stopped.pop(request.request_id, None)
            self._turns.release(request.request_id)

    async def _handle(
        self, handler: Handler, context: OpContext, op: AnyOp, span: Span
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
                self._log_too_large(type(op).__name__, e)
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
            # A bug in one handler must leave its caller an answer and the other ops running.
            logger.exception("%s failed", type(op).__name__)
            code = UNKNOWN_SERVER_ERROR
        fail_with(span, [code])
        return code, None

    # --- answers ----------------------------------------------------------------------------

    def answer_error(self, stream_id: int, request_id: int, error_code: int) -> None:
        """Answer an op with an error code."""
        self._answer(stream_id, request_id, encode_response(request_id, error_code, None))

    def _respond(
        self,
        stream_id: int,
        request_id: int,
        code: int,
        body: list[Buffer] | None,
        ack_parent: TraceContext | None,
    ) -> None:
        with self._tracer.start(semconv.ACK, ack_parent) as ack:
            traceparent = ack.context.traceparent if ack.context is not None else ""
            try:
                frame = encode_response(request_id, code, body, traceparent)
            except OpTooLargeError as e:
                self._log_too_large("an op", e)
                frame = encode_response(request_id, e.error_code, None, traceparent)
            self._answer(stream_id, request_id, frame)

    def _answer(self, stream_id: int, request_id: int, frame: list[Buffer]) -> None:
        if not self._connection.is_ready:
            return
        if sum(map(len, frame)) <= SMALL_REPLY:
            self._connection.write(stream_id, frame)
        else:
            self._replies.add(request_id, frame)

    def _log_too_large(self, name: str, error: OpTooLargeError) -> None:
        self._limited.warning(
            name, "an answer to %s of node %s is not sent: %s", name, self.peer[:16], error
        )


def _error_codes(answer: WireStruct) -> Iterator[int]:
    """The error codes of an answer, and of the partitions or groups that it lists."""
    yield getattr(answer, "error_code", 0)
    for name in ("partitions", "groups"):
        listed: object = getattr(answer, name, None)
        if isinstance(listed, list):  # of answers, or of bare codes
            for item in cast("list[object]", listed):
                yield item if isinstance(item, int) else getattr(item, "error_code", 0)
