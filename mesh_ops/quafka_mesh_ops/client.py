"""The gateway's end of the mesh: ops sent to one broker, over a connection that is kept up."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Coroutine
from functools import partial
from typing import Any, TypeVar

from quafka_loop.deadlines import Deadlines
from quafka_loop.fair_turns import FairTurns
from quafka_loop.slices import in_slices
from quafka_mesh_ops.broker_session import BrokerSession, Call, UnreadResponse
from quafka_mesh_ops.bulk.carrier import BulkCarrier
from quafka_mesh_ops.bulk.link import BulkLink
from quafka_mesh_ops.connector import BrokerConnector, ConnectionFollower
from quafka_mesh_ops.counters import PeerCounters
from quafka_mesh_ops.envelopes import ResponseEnvelope, encode_body, encode_request
from quafka_mesh_ops.errors import (
    DisplacedError,
    OpFailedError,
    OpTooLargeError,
    OutcomeUnknownError,
    PeerUnavailableError,
    ProtocolError,
    ShardLeftError,
)
from quafka_mesh_ops.frames import LANES
from quafka_mesh_ops.identity import Identity
from quafka_mesh_ops.long_payloads import LongPayload, encode_body_in_steps
from quafka_mesh_ops.memory_link import MemoryLink
from quafka_mesh_ops.node_ids import NodeId
from quafka_mesh_ops.ops.base import AnyOp, AnyStruct, Buffer, Op, OpKind
from quafka_mesh_ops.ops.codec import from_wire, from_wire_in_steps, is_long
from quafka_mesh_ops.ops.group_offsets import CommitOffsetsResp
from quafka_mesh_ops.ops.records import ProduceOpsResp
from quafka_mesh_ops.scheduler import BOUNDS, Scheduler
from quafka_mesh_ops.settings import join_address
from quafka_mesh_ops.transport.aioquic_adapter.counters import read as transport_counters
from quafka_mesh_ops.transport.log_limit import LimitedLog
from quafka_telemetry import semconv
from quafka_telemetry.expected_errors import OP_OF_A_SHARD
from quafka_telemetry.tracing import (
    CLIENT,
    AttributeValue,
    TraceContext,
    Tracer,
    fail_with,
    parse_traceparent,
)

logger = logging.getLogger("quafka.mesh.client")

R = TypeVar("R", bound=AnyStruct)

_RECORDS = OpKind.RECORDS
_ASK_AGAIN = {OpKind.FETCHES: 6, OpKind.GROUP_WAITS: 14}
"""NOT_LEADER_OR_FOLLOWER, COORDINATOR_LOAD_IN_PROGRESS: the answers to calls that are given up."""


class MeshClient:
    """Sends ops to one broker, and reconnects to it by itself.

    Each connection attempt reads `allowed`; `enforce` applies its changes to an open connection.

    All methods are for one event loop. An op is sent at most once: whether to retry is the
    caller's decision; the errors of `call` tell whether the op may have been executed.
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
        bulk: BulkCarrier = BulkCarrier.QUIC,
        memory: bool = False,
        shard: int | None = None,
        turns: FairTurns | None = None,
    ) -> None:
        """`bulk`: on what bulk answers travel if the broker agrees. `memory`: large ops lie in
        memory that is shared with a broker on this host.

        `shard`: the shard that ops are for; None: the broker's only one. Port 0: the address is not
        known before the first `move`. `turns`: in which orgs have their answers.
        """
        self._loop: asyncio.AbstractEventLoop
        self._deadlines: Deadlines | None = None
        """None before the start and after the end."""
        self._tracer = tracer
        self._turns = turns or FairTurns()
        self._limited = LimitedLog(logger)
        self._last_id = 0
        self._encoding = [_LaneEncoding() for _ in range(LANES)]
        self._schedulers = [Scheduler[Call](BOUNDS[kind]) for kind in OpKind]
        self._connector = BrokerConnector(
            host,
            port,
            identity,
            allowed,
            datagram_size=datagram_size,
            batched=batched,
            answered=self._on_response,
            ready=self._flush,
            refused=self._fail_waiting,
            shard=shard,
        )
        self._shards = 0
        self._bulk = (
            None
            if bulk is BulkCarrier.QUIC
            else BulkLink(self._connector, self.call, identity, allowed, bulk)
        )
        self._memory = MemoryLink(self._connector, self.call) if memory else None

    @property
    def connected(self) -> bool:
        """Whether an op would be sent now."""
        return self._connector.session is not None

    @property
    def peer(self) -> NodeId:
        """The node id of the broker; empty before the first connection."""
        return self._connector.peer

    @property
    def refusal(self) -> str:
        """Why the broker accepts no further connection; empty: it does, or is not there."""
        return self._connector.refusal

    @property
    def said_goodbye(self) -> bool:
        """Whether the broker has closed the last connection in good order."""
        return self._connector.said_goodbye

    @property
    def seconds_disconnected(self) -> float:
        """Seconds without a connection, counted from the start; 0 while connected."""
        return self._connector.seconds_disconnected

    async def start(self) -> None:
        """Begin to connect, in the background. Comes before the first call."""
        self._loop = asyncio.get_running_loop()
        self._deadlines = Deadlines(self._loop)
        self._connector.start()
        if self._bulk is not None:
            self._bulk.start()
        if self._memory is not None:
            self._memory.start()

    async def wait_connected(self, timeout: float) -> bool:
        """Wait for a connection for up to `timeout` seconds; returns `connected`."""
        return await self._connector.wait_connected(timeout)

    async def close(self) -> None:
        """Close the connection and fail the unanswered calls."""
        if self._bulk is not None:
            await self._bulk.close()
        if self._memory is not None:
            await self._memory.close()
        if self._deadlines is not None:
            self._deadlines.close()
            self._deadlines = None
        await self._connector.close()
        self._fail_waiting("the mesh client was closed")

    def _fail_waiting(self, reason: str) -> None:
        for scheduler in self._schedulers:
            for call in scheduler.remove_all():
                call.fail(PeerUnavailableError(reason))

    # --- several shards ---------------------------------------------------------------------

    @property
    def followers(self) -> dict[ConnectionFollower, None]:
        """The followers of the connection, in their order."""
        return self._connector.followers

    async def next_session(self) -> BrokerSession:
        """Wait for a session that accepts ops, if there is none, and return it."""
        return await self._connector.next_session()

    def count_shards(self, more: int) -> None:
        """Count the shards that are open: each may have as many ops as a connection of its own, but
        all share the bytes."""
        self._shards += more
        for scheduler, bounds in zip(self._schedulers, BOUNDS.values(), strict=True):
            scheduler.bounds = bounds._replace(ops=bounds.ops * max(1, self._shards))

    def recall(self, shard: int | None) -> None:
        """Fail the calls for a shard that are not sent yet: ShardLeftError."""
        for scheduler in self._schedulers:
            for call in scheduler.remove_all():
                if call.shard == shard:
                    call.fail(ShardLeftError("the shard has left the broker"))
                else:
                    scheduler.wait(call)

    def abandon(self, shard: int) -> None:
        """Fail the unanswered calls for a shard, which has another broker: OutcomeUnknownError."""
        if self._connector.session is not None:
            self._connector.session.abandon(shard)

    # --- calls ------------------------------------------------------------------------------

    def counters(self) -> PeerCounters:
        """Return the current figures of the broker and the connection to it."""
        connector = self._connector
        session = connector.session
        return PeerCounters(
            peer=connector.peer,
            address=join_address(connector.host, connector.port),
            connected=session is not None,
            refusal=connector.refusal,
            reconnects=max(0, connector.connections - 1),
            ops=sum(each.waiting + each.unanswered for each in self._schedulers),
            credit_used_bytes=sum(each.used for each in self._schedulers),
            credit_bytes=sum(each.bounds.size for each in self._schedulers),
            backlog_bytes=0,
            bulk_over_tls=self._bulk is not None and self._bulk.connected,
            bulk_tls_bytes=self._bulk.received if self._bulk is not None else 0,
            memory_shared=self._memory is not None and self._memory.shared,
            memory_bytes=self._memory.placed if self._memory is not None else 0,
            refused_ops=0,  # a gateway receives no ops
            transport=None if session is None else transport_counters(session.connection.quic),
        )

    def move(self, host: str, port: int) -> None:
        """Send ops to another address from now on; port 0: hold them until the next move.

        Ops that are sent and unanswered fail: OutcomeUnknownError.
        """
        self._connector.move(host, port)

    def enforce(self) -> None:
        """Close the connection if the broker is no longer allowed. Calls on it fail."""
        self._connector.enforce()

    def call(
        self,
        op: Op[R],
        *,
        org_id: int,
        deadline: float,
        trace: TraceContext | None = None,
        lane: int | None = None,
        shard: int | None = None,
    ) -> Coroutine[Any, Any, R]:
        """Send an op and return its answer.

        `deadline` is in seconds from now and covers the wait for a connection, for earlier ops of
        its kind and for the answer. The number of unanswered ops is bounded; ops that wait are sent
        in the order of their calls within an org, and orgs in turn. Ops with the same `lane` reach
        their handlers in the order of the calls. If the awaiting task is cancelled, so is the
        broker's handler. `shard`: one of several shards that an OpenShard has opened.

        An eager task that awaits the answer continues in the call that processes it.

        Raises:
            PeerUnavailableError: it was not sent within the deadline, or the broker accepts no more
                connections.
            ShardLeftError: it was not sent, and its shard was recalled.
            OutcomeUnknownError: it was sent, but the connection was lost or the deadline passed.
            OpFailedError: the broker answered an error.
            OpTooLargeError: the op was not sent and never can be.
            TypeError, ValueError, OverflowError: the op cannot be encoded.
        """
        if trace is None:
            return self._call(op, org_id, deadline, None, lane, shard)
        return self._call_traced(op, org_id, deadline, trace, lane, shard)

    async def _call_traced(
        self,
        op: Op[R],
        org_id: int,
        deadline: float,
        trace: TraceContext,
        lane: int | None,
        shard: int | None,
    ) -> R:
        with self._tracer.start(semconv.SENT, trace, kind=CLIENT) as span:
            if span.context is not None:
                span.set({semconv.OP: type(op).__name__, semconv.ORG: org_id, **self._place(shard)})
            try:
                return await self._call(op, org_id, deadline, span.context, lane, shard)
            except OpFailedError as e:
                steps = [type(op).__name__]
                if shard is not None and type(e) is OpFailedError:
                    steps.append(OP_OF_A_SHARD)
                fail_with(span, [e.error_code], *steps)
                raise

    async def _call(
        self,
        op: Op[R],
        org_id: int,
        deadline: float,
        trace: TraceContext | None,
        lane: int | None,
        shard: int | None,
    ) -> R:
        deadlines = self._deadlines
        if deadlines is None:
            raise PeerUnavailableError("the mesh client is closed")
        if self._connector.refusal:
            raise PeerUnavailableError(self._connector.refusal)
        until = self._loop.time() + deadline
        if lane is None:
            index, kind = 0, op.kind
            body = encode_body(op) if not is_long(op) else await _encoded(op)
        else:
            lane %= LANES
            # The ops of a lane are ordered, so they must be of one kind.
            index, kind = 1 + lane, _RECORDS
            if is_long(op) or self._encoding[lane].busy:
                body = await self._encoding[lane].encoded(op)
            else:
                body = encode_body(op)
        self._last_id += 1
        call = Call(self, self._last_id, op, org_id, body, index, kind, until, trace, self._loop)
        call.shard = shard
        self._begin(call)
        expiring = deadlines.watch(until, call)
        try:
            answer = await call
            if isinstance(answer, ResponseEnvelope):
                found = self._read(op, answer)
            else:
                found = await self._read_long(op, call, answer)
            if isinstance(found, (ProduceOpsResp, CommitOffsetsResp)):
                self._schedulers[call.kind].committed(found.commit_us / 1e6)
                if isinstance(found, ProduceOpsResp):
                    call.cost = found.check_us / 1e6
            return found
        finally:
            expiring.pop(call, None)
            self._finish(call)
            # A failed call has the exception, whose traceback has this frame: with the call in it,
            # that circle would hold the op's records until the next search for garbage.
            del call

    # --- sending ----------------------------------------------------------------------------

    def _begin(self, call: Call) -> None:
        """Send a call, or queue it until it may be sent. Raises OpTooLargeError."""
        scheduler = self._schedulers[call.kind]
        scheduler.check(call)
        session = self._connector.session
        if session is None:
            self._wait(scheduler, call)
        elif scheduler.admits(call):
            self._send(session, call)
        elif displaced := scheduler.displaced_by(call):
            for each in displaced:
                self._give_up(scheduler, each)
            self._send(session, call)
        else:
            self._wait(scheduler, call)

    def _wait(self, scheduler: Scheduler[Call], call: Call) -> None:
        scheduler.wait(call)
        call.queued = queued = self._tracer.start(semconv.QUEUED, call.trace)
        if queued.context is not None:
            queued.set(self._place(call.shard))

    def _place(self, shard: int | None) -> dict[str, AttributeValue]:
        """Where an op goes, for its spans."""
        connector = self._connector
        place: dict[str, AttributeValue] = {
            semconv.PEER_ADDRESS: connector.host,
            semconv.PEER_PORT: connector.port,
        }
        if shard is not None:
            place[semconv.SHARD] = shard
        return place

    @staticmethod
    def _give_up(scheduler: Scheduler[Call], call: Call) -> None:
        """End a parked call, so that there is room for one of another org."""
        assert call.session is not None
        call.session.cancel(call)
        scheduler.release(call)
        call.session = None
        call.fail(DisplacedError(_ASK_AGAIN[call.kind]))

    def _flush(self) -> None:
        """Send the waiting calls that may be sent now."""
        for scheduler in self._schedulers:
            self._send_waiting(scheduler)

    def _send_waiting(self, scheduler: Scheduler[Call]) -> None:
        session = self._connector.session
        if session is not None:
            scheduler.round_trip = session.connection.quic.shortest_round_trip
        while session is not None and (call := scheduler.pop_next()) is not None:
            self._send(session, call)
            session = self._connector.session

    def _send(self, session: BrokerSession, call: Call) -> None:
        trace = call.trace
        parent, state = ("", "") if trace is None else (trace.traceparent, trace.tracestate)
        left = max(0, round((call.deadline - self._loop.time()) * 1000))
        try:
            frame = encode_request(
                call.request_id, call.op.code, call.org_id, parent, state, left, call.body
            )
        except (OpTooLargeError, TypeError, ValueError, OverflowError) as e:
            call.fail(e)
            return
        call.body = []
        call.session = session
        call.queued.end()
        self._schedulers[call.kind].reserve(call)
        session.send(call, frame, in_turn=self._turns.shared)

    def expired(self, call: Call) -> None:
        """See CallOwner."""
        if call.session is None:
            address = f"{self._connector.host}:{self._connector.port}"
            call.fail(PeerUnavailableError(f"no connection to {address} in time"))
        else:
            call.fail(OutcomeUnknownError("no answer within the deadline"))

    def _finish(self, call: Call) -> None:
        """Release a call that has ended: by an answer, an error or a cancellation."""
        scheduler, session = self._schedulers[call.kind], call.session
        call.queued.end()
        if session is None:
            scheduler.remove(call)
            return
        session.cancel(call)
        scheduler.release(call, call.cost)
        if scheduler.waiting:
            self._send_waiting(scheduler)

    # --- responses --------------------------------------------------------------------------

    def _on_response(
        self, call: Call, response: ResponseEnvelope, long: LongPayload | None
    ) -> None:
        """Hand a response to its caller, which decodes the body.

        A body that cannot be decoded fails that call alone: the stream after it is intact.
        """
        if call.trace is not None and long is None:
            self._trace_answer(call.trace, response)
        if self._turns.shared:
            self._turns.run(call.org_id, partial(self._answer, call, response, long))
        else:
            self._answer(call, response, long)

    @staticmethod
    def _answer(call: Call, response: ResponseEnvelope, long: LongPayload | None) -> None:
        if not call.done():
            call.set_result(response if long is None else UnreadResponse(response, long))

    def _read(self, op: Op[R], response: ResponseEnvelope) -> R:
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

    def _trace_answer(self, trace: TraceContext, response: ResponseEnvelope) -> None:
        parent = parse_traceparent(response.traceparent, trace.tracestate)
        self._tracer.start(semconv.ACK_RECEIVED, parent).end()


class _LaneEncoding:
    """The encoding of one lane's ops, in the order of the calls.

    Attributes:
        busy: the ops that are being encoded or wait for that. While it is 0, a short op may be
            encoded directly.
    """

    __slots__ = ("_lock", "busy")

    def __init__(self) -> None:
        self.busy = 0
        self._lock = asyncio.Lock()

    async def encoded(self, op: AnyOp) -> list[Buffer]:
        """Encode an op after the earlier ones."""
        self.busy += 1
        try:
            async with self._lock:
                return await _encoded(op)
        finally:
            self.busy -= 1


async def _encoded(op: AnyOp) -> list[Buffer]:
    if is_long(op):
        return await in_slices(encode_body_in_steps(op))
    return encode_body(op)
