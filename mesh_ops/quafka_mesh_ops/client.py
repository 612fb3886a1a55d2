"""The gateway's end of the mesh: one connection to a broker, kept up, and ops sent over it."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Collection
from typing import TypeVar

from aioquic.quic.packet import QuicErrorCode

from quafka_mesh_ops.counters import PeerCounters
from quafka_mesh_ops.credit import BUDGETS, LARGEST, MAX_OPS, Credit, kind_of
from quafka_mesh_ops.errors import (
    OpFailedError,
    OpTooLargeError,
    OutcomeUnknownError,
    PeerUnavailableError,
    ProtocolError,
)
from quafka_mesh_ops.frames import (
    LANES,
    Response,
    encode_body,
    encode_request,
)
from quafka_mesh_ops.identity import REVOKED, Identity, NodeId
from quafka_mesh_ops.long_payloads import LongPayload, encode_body_in_steps
from quafka_mesh_ops.ops.base import AnyOp, Buffer, Op, WireStruct
from quafka_mesh_ops.ops.codec import from_wire, from_wire_in_steps, long_lists, weight
from quafka_mesh_ops.settings import join_address
from quafka_mesh_ops.transport.broker_session import BrokerSession, Call, UnreadResponse, fail
from quafka_mesh_ops.transport.connection import Connection
from quafka_mesh_ops.transport.counters import read as transport_counters
from quafka_mesh_ops.transport.endpoint import dial
from quafka_mesh_ops.transport.log_limit import LimitedLog
from quafka_telemetry import semconv
from quafka_telemetry.slices import in_slices
from quafka_telemetry.tracing import CLIENT, TraceContext, Tracer, fail_with, parse_traceparent

logger = logging.getLogger("quafka.mesh.client")

R = TypeVar("R", bound=WireStruct)

# Every producer and consumer waits for this; an attempt that is refused costs a few milliseconds.
_FIRST_DELAY, _LONGEST_DELAY = 0.02, 0.25


class MeshClient:
    """Sends ops to one broker. Reconnects by itself, with capped and jittered back-off.

    `allowed` is looked at for each connection; `enforce` applies its changes to the one there is.

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
        batched: bool = True,
    ) -> None:
        self._host = host
        self._port = port
        self._identity = identity
        self._allowed = allowed
        self._tracer = tracer
        self._datagram_size = datagram_size
        self._batched = batched
        self._session: BrokerSession | None = None
        self._live: BrokerSession | None = None  # also one that begins or drains
        self._connected = asyncio.Event()
        self._away_since = 0.0
        self._peer: NodeId = ""
        self._connections = 0
        self._task: asyncio.Task[None] | None = None
        self._closed = False
        self._limited = LimitedLog(logger)
        self._last_id = 0
        self._encoding = [asyncio.Lock() for _ in range(LANES)]
        self._credits = [Credit(*each) for each in zip(MAX_OPS, BUDGETS, LARGEST, strict=True)]

    @property
    def connected(self) -> bool:
        """Whether an op would be sent now."""
        return self._session is not None

    @property
    def seconds_away(self) -> float:
        """How long there has been no connection, from the start on."""
        if self.connected:
            return 0.0
        return asyncio.get_running_loop().time() - self._away_since

    async def start(self) -> None:
        """Begin connecting, in the background."""
        self._away_since = asyncio.get_running_loop().time()
        self._task = asyncio.get_running_loop().create_task(self._keep_connected())
        self._task.add_done_callback(_log_failure)

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
        for credit in self._credits:
            for call in credit.waiting.values():
                fail(call, PeerUnavailableError("the mesh client was closed"))
            credit.waiting.clear()

    def counters(self) -> PeerCounters:
        """What is known of the broker now."""
        session = self._session
        return PeerCounters(
            peer=self._peer,
            address=join_address(self._host, self._port),
            connected=session is not None,
            reconnects=max(0, self._connections - 1),
            ops=sum(len(credit.waiting) + credit.unanswered for credit in self._credits),
            credit_used_bytes=sum(credit.used for credit in self._credits),
            credit_bytes=sum(credit.budget for credit in self._credits),
            backlog_bytes=0,
            refused_ops=0,  # a gateway takes no ops
            transport=None if session is None else transport_counters(session.connection.quic),
        )

    def enforce(self) -> None:
        """Close the connection if the broker is not allowed any more. Calls on it fail."""
        session = self._live
        if session is not None and session.peer and session.peer not in self._allowed:
            self._refuse(session)

    async def call(
        self,
        op: Op[R],
        *,
        org_id: int,
        deadline: float,
        trace: TraceContext | None = None,
        lane: int | None = None,
    ) -> R:
        """Send an op and return its answer.

        `deadline` is in seconds from now and covers the wait for a connection, for earlier ops of
        its kind (what is unanswered is bounded, first come first served) and for the answer. Ops
        with the same `lane` reach their handlers in the order in which they were called. If the
        awaiting task is cancelled, so is the broker's handler.

        Raises:
            PeerUnavailableError: it was not sent within the deadline.
            OutcomeUnknownError: it was sent, but the connection was lost or the deadline passed.
            OpFailedError: the broker answered an error.
            OpTooLargeError: the op was not sent, nor will it ever be.
            TypeError, ValueError, OverflowError: the op cannot be encoded.
        """
        if self._closed:
            raise PeerUnavailableError("the mesh client was closed")
        loop = asyncio.get_running_loop()
        until = loop.time() + deadline
        if lane is None:
            body = await _encoded(op)
        else:
            async with self._encoding[lane % LANES]:  # else a short op would pass a long one
                body = await _encoded(op)
        self._last_id += 1
        with self._tracer.start(semconv.SENT, trace, kind=CLIENT) as span:
            if span.context is not None:
                span.set({semconv.OP: type(op).__name__, semconv.ORG: org_id})
            call = Call(
                self._last_id,
                op,
                org_id,
                body,
                sum(map(len, body)) + weight(op),
                0 if lane is None else 1 + lane % LANES,
                kind_of(op, lane),
                until,
                span.context,
                loop.create_future(),
            )
            self._credits[call.kind].check(call)
            timer = loop.call_at(call.deadline, self._expire, call)
            self._credits[call.kind].waiting[call.request_id] = call
            self._flush()
            if call.session is None:  # for credit, or for a connection
                call.queued = self._tracer.start(semconv.QUEUED, span.context)
            try:
                answer = await call.future
                if isinstance(answer, Response):
                    return self._read(op, answer)
                return await self._read_long(op, call, answer)
            except OpFailedError as e:
                fail_with(span, [e.error_code])
                raise
            finally:
                timer.cancel()
                call.queued.end()
                self._forget(call)

    # --- calls ------------------------------------------------------------------------------

    def _flush(self) -> None:
        """Send what may be sent now, in the order of the calls."""
        session = self._session
        if session is None:
            return
        for credit in self._credits:
            while (call := credit.next()) is not None:
                self._send(session, call)

    def _send(self, session: BrokerSession, call: Call) -> None:
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
        except (OpTooLargeError, TypeError, ValueError, OverflowError) as e:
            fail(call, e)
            return
        call.body = []
        call.session = session
        call.queued.end()
        self._credits[call.kind].take(call)
        session.send(call, frame)

    def _expire(self, call: Call) -> None:
        if call.session is None:
            fail(call, PeerUnavailableError(f"no connection to {self._host}:{self._port} in time"))
        else:
            fail(call, OutcomeUnknownError("no answer within the deadline"))

    def _forget(self, call: Call) -> None:
        """The caller is gone: with its answer, with an error, or cancelled."""
        credit = self._credits[call.kind]
        if call.session is None:
            credit.waiting.pop(call.request_id, None)
            return
        call.session.forget(call)
        credit.give(call)
        self._flush()

    def answered(self, call: Call, response: Response, long: LongPayload | None) -> None:
        """Hand a response to its caller, which decodes the body.

        A body that cannot be decoded fails that call alone: the stream after it is intact.
        """
        if long is not None:
            if not call.future.done():
                call.future.set_result(UnreadResponse(response, long))
            return
        if call.trace is not None:
            self._trace_answer(call.trace, response)
        if not call.future.done():
            call.future.set_result(response)

    def _read(self, op: Op[R], response: Response) -> R:
        """Raises OutcomeUnknownError, OpFailedError."""
        if response.error_code:
            raise OpFailedError(response.error_code)
        try:
            return from_wire(op.response, response.body)
        except ProtocolError as e:
            raise self._unreadable(op, e) from e

    async def _read_long(self, op: Op[R], call: Call, unread: UnreadResponse) -> R:
        """Read a long answer in slices. Raises OutcomeUnknownError, OpFailedError."""
        try:
            body = await in_slices(unread.long.body())
            response = unread.long.rest(unread.response, body)
        except ProtocolError as e:
            if call.session is not None:
                call.session.refuse(str(e))
            raise OutcomeUnknownError("the answer could not be read") from e
        if call.trace is not None:
            self._trace_answer(call.trace, response)
        if response.error_code:
            raise OpFailedError(response.error_code)
        try:
            return await in_slices(from_wire_in_steps(op.response, response.body))
        except ProtocolError as e:
            raise self._unreadable(op, e) from e

    def _unreadable(self, op: AnyOp, error: ProtocolError) -> OutcomeUnknownError:
        name = type(op).__name__
        self._limited.warning(name, "an answer to %s could not be read: %s", name, error)
        return OutcomeUnknownError("the answer could not be read")

    def _trace_answer(self, trace: TraceContext, response: Response) -> None:
        parent = parse_traceparent(response.traceparent, trace.tracestate)
        self._tracer.start(semconv.ACK_RECEIVED, parent).end()

    # --- the connection ---------------------------------------------------------------------

    async def _keep_connected(self) -> None:
        delay = 0.0
        last_reason = ""
        loop = asyncio.get_running_loop()
        while True:
            began = loop.time()
            was_ready, reason = await self._connect_once()
            if was_ready:
                last_reason = ""
            if was_ready and loop.time() > began + _LONGEST_DELAY:
                delay = 0.0  # else a broker that ends each connection would have no peace
            if reason != last_reason:
                logger.warning("no connection to %s:%d: %s", self._host, self._port, reason)
                last_reason = reason
            await asyncio.sleep(delay * random.uniform(0.5, 1.0))  # noqa: S311 - no secret
            delay = min(max(_FIRST_DELAY, 2 * delay), _LONGEST_DELAY)

    async def _connect_once(self) -> tuple[bool, str]:
        """Hold one connection until it ends; whether it ever was usable, and why it ended."""
        sessions: list[BrokerSession] = []

        def make_session(connection: Connection) -> BrokerSession:
            sessions.append(BrokerSession(self, connection))
            return sessions[0]

        try:
            await dial(
                self._host,
                self._port,
                self._identity,
                self._allowed,
                make_session,
                datagram_size=self._datagram_size,
                batched=self._batched,
            )
        except OSError as e:
            return False, e.strerror or str(e)
        (session,) = sessions
        self._live = session
        try:
            reason = await session.over
        finally:
            self._live = None
            session.shut()
        return session.was_ready, reason

    def session_ready(self, session: BrokerSession, peer: NodeId) -> None:
        """The broker answers: ops may be sent."""
        if peer not in self._allowed:  # revoked during the handshake
            self._refuse(session)
            return
        logger.info("connected to node %s at %s:%d", peer[:16], self._host, self._port)
        self._peer = peer
        self._connections += 1
        self._session = session
        self._connected.set()
        self._flush()

    def _refuse(self, session: BrokerSession) -> None:
        logger.warning("closed node %s: it was taken off the allow-list", session.peer[:16])
        session.connection.close(REVOKED, QuicErrorCode.CONNECTION_REFUSED)

    def session_gone(self, session: BrokerSession) -> None:
        """No more ops on this connection."""
        if self._session is session:
            self._session = None
            self._away_since = asyncio.get_running_loop().time()
            self._connected.clear()


async def _encoded(op: AnyOp) -> list[Buffer]:
    if long_lists(op):
        return await in_slices(encode_body_in_steps(op))
    return encode_body(op)


def _log_failure(task: asyncio.Task[None]) -> None:
    """Nothing but a mistake of ours ends the task early; then nobody connects any more."""
    if not task.cancelled() and task.exception() is not None:
        logger.critical("no connection will be made any more", exc_info=task.exception())
