"""The gateway's side of the mesh: the only module that sends ops, and that knows the mesh's errors.

A broker answers an op, or `BrokerUnavailableError` means that no answer came.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

from quafka_gateway.cluster.joint_heartbeats import JointHeartbeats
from quafka_gateway.cluster.joint_produces import JointProduces
from quafka_gateway.cluster.topic_lister import TopicLister
from quafka_loop.eager_task import DirectFuture, EagerTask
from quafka_loop.fair_turns import FairTurns
from quafka_mesh_ops.counters import PeerCounters
from quafka_mesh_ops.errors import OpFailedError, OutcomeUnknownError, PeerUnavailableError
from quafka_mesh_ops.ops.base import Op, R
from quafka_mesh_ops.ops.groups import Heartbeat
from quafka_mesh_ops.ops.leases import HoldLease, HoldLeaseResp
from quafka_mesh_ops.ops.places import OpenPlaces, OpenPlacesResp
from quafka_mesh_ops.ops.records import (
    FetchOpResp,
    FetchOps,
    FetchOpsResp,
    ProduceOp,
    ProduceOpResp,
    ProduceOps,
    ProduceOpsResp,
)
from quafka_mesh_ops.ops.topics import DescribeTopics, DescribeTopicsResp, TopicDescription
from quafka_mesh_ops.shard_client import OpClient
from quafka_mesh_ops.shards import shard_number
from quafka_proto.errors import ErrorCode, Malformed
from quafka_proto.records import read_header
from quafka_telemetry.tracing import TraceContext

SMALL_OP_SECONDS = 10.0
RETURN_SECONDS = 1.0
"""How long an op waits for a broker that has just disconnected, if other brokers can answer."""
MOVE_SECONDS = 3.0
"""How long ops are held for a moving shard. A move usually takes less than a second."""
# A restarted broker is back within this time, so its consumers see latency and no error.
_FETCH_GRACE_SECONDS = 5.0
_SHORTEST_PRODUCE_SECONDS, _LONGEST_PRODUCE_SECONDS = 1.0, 30.0
# Long enough for a restart; requests to other brokers must not wait longer for a lost one.
_RESTARTED_SECONDS = 2.0
_MOVED = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_COORDINATOR)
_AGAIN_SECONDS = 0.05
_VAIN_SECONDS = 0.25  # the mesh client finds a broker that is back within about this time


class BrokerUnavailableError(Exception):
    """An op has no answer.

    Attributes:
        code: the Kafka error with which the broker failed the whole op, or BROKER_NOT_AVAILABLE if
            it did not answer. Callers raise the error again with the code that clients expect.
    """

    def __init__(self, message: str, code: int = ErrorCode.BROKER_NOT_AVAILABLE) -> None:
        super().__init__(message)
        self.code = code

    @property
    def unanswered(self) -> bool:
        """Whether the broker did not answer at all."""
        return self.code == ErrorCode.BROKER_NOT_AVAILABLE

    def code_or(self, unanswered: int) -> int:
        """The broker's error, or the code `unanswered` if it did not answer."""
        return unanswered if self.unanswered else self.code


def coordinator_code(error: BrokerUnavailableError) -> int:
    """The error code for clients: a coordinator that does not answer in time has moved."""
    late = error.code == ErrorCode.REQUEST_TIMED_OUT
    return ErrorCode.NOT_COORDINATOR if late else error.code_or(ErrorCode.NOT_COORDINATOR)


class BrokerLink:
    """Sends the ops of one org to one broker.

    A failed produce or fetch is a retriable Kafka error in every partition, unless the producer is
    idempotent. Every other failed op raises `BrokerUnavailableError`.
    """

    def __init__(
        self,
        client: OpClient,
        org_id: int,
        shard: str = "",
        turns: FairTurns | None = None,
    ) -> None:
        """`shard`: the name of the shard that the client is for, wherever it is. `turns`: when
        the org receives its answers."""
        self._client = client
        self._shard = shard
        self._org_id = org_id
        self._in_vain_at = -_VAIN_SECONDS
        self._lister = TopicLister(self.call)
        self.cluster_id = ""
        """The broker's, as it has said last when it described topics."""
        self._heartbeats = JointHeartbeats(partial(self.call, trace=None))
        self._joint = JointProduces(self._produce, _failed, lambda: client.connected, turns, org_id)

    @property
    def connected(self) -> bool:
        """Whether ops reach the broker right now."""
        return self._client.connected

    @property
    def usable(self) -> bool:
        """Whether an op may be sent: the broker is connected, or the shard is moving."""
        if self._client.connected:
            return True
        return self._moves and self._client.seconds_disconnected < MOVE_SECONDS

    @property
    def _moves(self) -> bool:
        """Whether the shard was handed over by its owner, and so will be back in a moment. After
        a kill it takes longer, and ops on other shards must not wait for it."""
        return bool(self._shard) and self._client.said_goodbye

    @property
    def shard(self) -> int:
        """The number of the shard that the ops are for; -1: they are for the broker."""
        number = shard_number(self._shard)
        return -1 if number is None else number

    @property
    def node_id(self) -> str:
        """The name that brokers use for this one: a shard's name, or the broker's node id.

        Empty before the first connection to a broker.
        """
        return self._shard or self._client.peer

    @property
    def seconds_disconnected(self) -> float:
        """How long the broker has been disconnected; 0 if it is connected."""
        return self._client.seconds_disconnected

    def wait_among_others(self, seconds: float) -> float:
        """How long to wait for an answer that other brokers may give, too.

        `seconds` while the broker is connected; then until RETURN_SECONDS after it disconnected, or
        MOVE_SECONDS for a shard that was handed over. 0 or less: do not call.
        """
        if self.connected:
            return seconds
        patience = MOVE_SECONDS if self._moves else RETURN_SECONDS
        return patience - self.seconds_disconnected

    def wait_once(self, seconds: float) -> float:
        """How long to wait in a series of calls: `seconds`, or 0 if the last call waited in vain.

        Avoids waiting once per call while the broker is unavailable.
        """
        now = asyncio.get_running_loop().time()
        if self.connected or now - self._in_vain_at > _VAIN_SECONDS:
            return seconds
        self._in_vain_at = now
        return 0.0

    def counters(self) -> PeerCounters:
        """The current state of the broker and of the connection to it."""
        return self._client.counters()

    async def produce(
        self, op: ProduceOps, lane: int, timeout: float, trace: TraceContext | None
    ) -> list[ProduceOpResp]:
        """Append. Ops on one `lane` reach the log in the order of the calls.

        `timeout` is the client's own, in seconds. An op whose outcome is unknown answers
        REQUEST_TIMED_OUT: the records may have been written. An op that was never sent answers
        NOT_LEADER_OR_FOLLOWER: they were not.

        Raises:
            BrokerUnavailableError: the broker did not answer an idempotent producer. The producer's
                connection must be closed, as a dying broker would close it: otherwise a later
                batch of the producer may reach the next broker first and be out of order there.
                librdkafka takes that as proof that none of the batches is in the log, and writes
                the first one again under another epoch.
        """
        joined = self._join(op, lane, timeout) if trace is None else None
        if joined is not None:
            return await joined
        return await self._produce_alone(op, lane, timeout, trace)

    def begin_produce(
        self, op: ProduceOps, lane: int, timeout: float
    ) -> DirectFuture[list[ProduceOpResp]]:
        """As `produce`, without a trace, for a caller outside a task: the op leaves within this
        call."""
        joined = self._join(op, lane, timeout)
        if joined is not None:
            return joined
        return EagerTask(self._produce_alone(op, lane, timeout, None), self._joint.loop)

    def _join(
        self, op: ProduceOps, lane: int, timeout: float
    ) -> DirectFuture[list[ProduceOpResp]] | None:
        if self._heartbeats.waiting:
            self._heartbeats.release()
        return self._joint.join(op, lane, _produce_seconds(timeout))

    async def _produce_alone(
        self, op: ProduceOps, lane: int, timeout: float, trace: TraceContext | None
    ) -> list[ProduceOpResp]:
        if self._heartbeats.waiting:
            self._heartbeats.release()
        joint = self._joint
        joint.unanswered += 1
        try:
            joint.send(lane)
            answer = await self._produce(op, lane, _produce_seconds(timeout), trace)
            joint.learn(op.partitions, answer.partitions)
        except (PeerUnavailableError, OutcomeUnknownError, OpFailedError) as e:
            return _failed(op.partitions, e)
        finally:
            joint.unanswered -= 1
        return answer.partitions

    def _produce(
        self, op: ProduceOps, lane: int, timeout: float, trace: TraceContext | None = None
    ) -> Coroutine[Any, Any, ProduceOpsResp]:
        return self._client.call(op, org_id=self._org_id, deadline=timeout, trace=trace, lane=lane)

    async def fetch(self, op: FetchOps, trace: TraceContext | None) -> FetchOpsResp:
        """Read; the broker parks the op for up to its max_wait_ms."""
        if self._heartbeats.waiting:
            self._heartbeats.release()
        deadline = op.max_wait_ms / 1000 + _FETCH_GRACE_SECONDS
        try:
            return await self._client.call(op, org_id=self._org_id, deadline=deadline, trace=trace)
        except (PeerUnavailableError, OutcomeUnknownError, OpFailedError) as e:
            code = _error_code(e)
            if code == ErrorCode.REQUEST_TIMED_OUT:  # a read has no unknown outcome
                code = ErrorCode.NOT_LEADER_OR_FOLLOWER
            failed = FetchOpResp([], high_watermark=-1, error_code=code)
            return FetchOpsResp([failed] * len(op.partitions))

    async def hold_lease(self, op: HoldLease) -> HoldLeaseResp:
        """Hold the lease under which fetches are answered from memory."""
        return await self.call(op, None)

    async def open_places(self, op: OpenPlaces) -> OpenPlacesResp:
        """Ask for the socket over which a broker on this host hands over descriptors."""
        return await self.call(op, None)

    async def describe_topics(
        self, op: DescribeTopics, trace: TraceContext | None, seconds: float = SMALL_OP_SECONDS
    ) -> DescribeTopicsResp:
        """Topics, their ids and partition counts. The list may be shared: do not change it."""
        try:
            answer = await self._lister.describe(op, trace, seconds)
        except BrokerUnavailableError as e:
            if e.code != ErrorCode.TOPIC_AUTHORIZATION_FAILED:
                raise
            return _refused(op)
        self.cluster_id = answer.cluster_id
        return answer

    async def heartbeat(self, op: Heartbeat, trace: TraceContext | None) -> int:
        """Send a heartbeat, which may be held for a moment to leave with others; its error code.

        Not with a trace, which would show the wait as latency. Raises as `call`.
        """
        if trace is None and self.connected:
            return await self._heartbeats.send(op)
        return (await self.call(op, trace)).error_code

    def hurry(self) -> None:
        """Send the held heartbeats: a client waits for a response behind one of them."""
        if self._heartbeats.waiting:
            self._heartbeats.release()

    async def call(
        self, op: Op[R], trace: TraceContext | None, seconds: float = SMALL_OP_SECONDS
    ) -> R:
        """Send an op and return its answer.

        An op that a shard refuses because it is moving is sent once more. An op that only reads is
        sent again if its connection is lost: the restart of a broker behind an idle connection is
        noticed only by the next op.

        Raises:
            BrokerUnavailableError: no answer came within `seconds`, or the broker failed the op.
        """
        if seconds <= 0:
            raise BrokerUnavailableError("the broker is unavailable")
        if self._heartbeats.waiting:
            self._heartbeats.release()
        now = asyncio.get_running_loop().time
        until, left, again = now() + seconds, seconds, False
        while True:
            try:
                return await self._client.call(op, org_id=self._org_id, deadline=left, trace=trace)
            except OpFailedError as e:
                if self._shard and not again and e.error_code in _MOVED and now() < until:
                    again = True
                    await asyncio.sleep(_AGAIN_SECONDS)
                    left = until - now()
                    continue
                raise BrokerUnavailableError(ErrorCode.name_of(e.error_code), e.error_code) from e
            except PeerUnavailableError as e:
                self._in_vain_at = now()
                raise BrokerUnavailableError(str(e)) from e
            except OutcomeUnknownError as e:
                lost = now()
                if not op.reads or lost >= until:
                    raise BrokerUnavailableError(str(e)) from e
                until = min(until, lost + _RESTARTED_SECONDS)
                left = until - lost


def _refused(op: DescribeTopics) -> DescribeTopicsResp:
    """A broker's refusal as clients see it: an error for each named topic; no topics to list."""
    code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    named = [TopicDescription(name, b"", 0, code) for name in op.topics or ()]
    return DescribeTopicsResp(
        "", [*named, *(TopicDescription("", topic_id, 0, code) for topic_id in op.topic_ids or ())]
    )


def _produce_seconds(timeout: float) -> float:
    """The deadline of a produce, from the client's own timeout."""
    return min(max(timeout, _SHORTEST_PRODUCE_SECONDS), _LONGEST_PRODUCE_SECONDS)


def _failed(partitions: Sequence[ProduceOp], error: BaseException) -> list[ProduceOpResp]:
    """The answers to a produce whose op failed. Raises BrokerUnavailableError: see `produce`."""
    if not isinstance(error, (PeerUnavailableError, OutcomeUnknownError, OpFailedError)):
        raise error
    code = _error_code(error)
    unanswered = code in (ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NOT_LEADER_OR_FOLLOWER)
    if unanswered and _is_idempotent(partitions):
        raise BrokerUnavailableError(str(error)) from error
    failed = ProduceOpResp(base_offset=-1, error_code=code, log_start_offset=-1)
    return [failed] * len(partitions)


def _is_idempotent(partitions: Sequence[ProduceOp]) -> bool:
    for part in partitions:
        with suppress(Malformed):  # the broker refuses the batch once it is available
            if read_header(part.records).producer_id >= 0:
                return True
    return False


def _error_code(error: Exception) -> int:
    if isinstance(error, OpFailedError):
        return error.error_code
    if isinstance(error, OutcomeUnknownError):
        return ErrorCode.REQUEST_TIMED_OUT
    return ErrorCode.NOT_LEADER_OR_FOLLOWER
