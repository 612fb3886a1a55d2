"""The gateway's side of the mesh: the only module here that talks to quafka_mesh_ops.client."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress

from quafka_gateway.cluster.topic_lister import TopicLister
from quafka_mesh_ops.client import MeshClient
from quafka_mesh_ops.counters import PeerCounters
from quafka_mesh_ops.errors import OpFailedError, OutcomeUnknownError, PeerUnavailableError
from quafka_mesh_ops.ops.base import Op, R
from quafka_mesh_ops.ops.leases import HoldLease, HoldLeaseResp
from quafka_mesh_ops.ops.offsets import (
    EpochEnd,
    EpochEndOpResp,
    EpochEndOps,
    ListOffsetsOpResp,
    ListOffsetsOps,
)
from quafka_mesh_ops.ops.probe import Probe, ProbeResp
from quafka_mesh_ops.ops.records import (
    DeleteRecordsOpResp,
    DeleteRecordsOps,
    FetchOpResp,
    FetchOps,
    FetchOpsResp,
    InitProducerId,
    InitProducerIdResp,
    ProduceOpResp,
    ProduceOps,
)
from quafka_mesh_ops.ops.topics import (
    CreateTopic,
    CreateTopicResp,
    DeleteTopic,
    DeleteTopicResp,
    DescribeTopics,
    DescribeTopicsResp,
    TopicDescription,
)
from quafka_proto.errors import ErrorCode, Malformed
from quafka_proto.records import read_header
from quafka_telemetry.tracing import TraceContext

SMALL_OP_SECONDS = 10.0
RETURN_SECONDS = 1.0
"""How long a broker that has just gone, or was not there yet, is waited for where others have
answered, or could."""
# What a long poll may take beyond its own wait: a broker that restarts is back within this, so
# its consumers see latency and no error.
_FETCH_GRACE_SECONDS = 5.0
_PRODUCE_SECONDS = (1.0, 30.0)
# One that was restarted is there again; for one that has gone, others are not kept waiting.
_RESTARTED_SECONDS = 2.0
_VAIN_SECONDS = 0.25  # a broker that is back is found within about as long


class BrokerLink:
    """One broker, as handlers see it: one method per op, for one org.

    In the calls that carry many partitions a broker that is away, or an answer that never came,
    becomes a retriable Kafka error in every partition, but for idempotent producers. The calls
    about topics and producers raise `UnavailableError`.
    """

    def __init__(self, client: MeshClient, org_id: int) -> None:
        self._client = client
        self._org_id = org_id
        self.on_produced: Callable[[ProduceOps, list[ProduceOpResp]], None] | None = None
        """Called with each produce that the broker has answered, before the answer is passed on."""
        self._in_vain_at = -_VAIN_SECONDS
        self._lister = TopicLister(self.ask)

    @property
    def connected(self) -> bool:
        """Whether ops reach the broker right now."""
        return self._client.connected

    @property
    def seconds_away(self) -> float:
        """How long ops have not reached it; 0 while they do."""
        return self._client.seconds_away

    def among_others(self, seconds: float) -> float:
        """How long to wait for it where others do not: so long while it is there, and no more than
        until it has been away for RETURN_SECONDS; 0 or less is not at all."""
        return seconds if self.connected else RETURN_SECONDS - self.seconds_away

    def patience(self, seconds: float) -> float:
        """How long to wait for it: so long, or not at all where somebody just has, in vain.

        Who asks a broker that is away many things in a row so does not wait for each of them.
        """
        now = asyncio.get_running_loop().time()
        if self.connected or now - self._in_vain_at > _VAIN_SECONDS:
            return seconds
        self._in_vain_at = now
        return 0.0

    async def start(self) -> None:
        """Begin to connect, in the background."""
        await self._client.start()

    async def close(self) -> None:
        """Close the connection. Calls in flight fail."""
        await self._client.close()

    def counters(self) -> PeerCounters:
        """What is known of the broker and the connection to it now."""
        return self._client.counters()

    def enforce(self) -> None:
        """Close the connection if the broker is not allowed any more."""
        self._client.enforce()

    async def produce(
        self, op: ProduceOps, lane: int, timeout: float, trace: TraceContext | None
    ) -> list[ProduceOpResp]:
        """Append. Ops on one `lane` reach the log in the order of the calls.

        `timeout` is the client's own, in seconds. An op whose outcome is unknown answers
        REQUEST_TIMED_OUT, which tells clients that the records may have been written;
        one that never left answers NOT_LEADER_OR_FOLLOWER, which tells them they were not.

        Raises:
            UnavailableError: either, of an idempotent producer. Its connection must be closed, as
                a broker that dies closes it: of the batches that it has sent behind these, one
                may reach the next broker first, and be out of order there. librdkafka takes that
                for proof that none of them is in the log, and stores the first one again under
                another epoch.
        """
        low, high = _PRODUCE_SECONDS
        deadline = min(max(timeout, low), high)
        try:
            answer = await self._client.call(
                op, org_id=self._org_id, deadline=deadline, trace=trace, lane=lane
            )
        except (PeerUnavailableError, OutcomeUnknownError, OpFailedError) as e:
            code = _error_code(e)
            unanswered = code in (ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NOT_LEADER_OR_FOLLOWER)
            if unanswered and _is_idempotent(op):
                raise UnavailableError(str(e)) from e
            failed = ProduceOpResp(base_offset=-1, error_code=code, log_start_offset=-1)
            return [failed] * len(op.partitions)
        answers = answer.partitions
        if self.on_produced is not None:
            self.on_produced(op, answers)
        return answers

    async def fetch(self, op: FetchOps, trace: TraceContext | None) -> FetchOpsResp:
        """Read; the broker parks the op for up to its max_wait_ms."""
        deadline = op.max_wait_ms / 1000 + _FETCH_GRACE_SECONDS
        try:
            answer = await self._client.call(
                op, org_id=self._org_id, deadline=deadline, trace=trace
            )
        except (PeerUnavailableError, OutcomeUnknownError, OpFailedError) as e:
            code = _error_code(e)
            if code == ErrorCode.REQUEST_TIMED_OUT:  # nothing was written: there is no doubt
                code = ErrorCode.NOT_LEADER_OR_FOLLOWER
            failed = FetchOpResp([], high_watermark=-1, error_code=code)
            return FetchOpsResp([failed] * len(op.partitions))
        return answer

    async def hold_lease(self, op: HoldLease) -> HoldLeaseResp:
        """Ask for the lease under which fetches are answered from memory."""
        return await self.ask(op, None)

    async def list_offsets(
        self, op: ListOffsetsOps, trace: TraceContext | None
    ) -> list[ListOffsetsOpResp]:
        """Resolve earliest, latest and timestamps to offsets."""
        try:
            answer = await self.ask(op, trace)
        except UnavailableError:
            away = ListOffsetsOpResp(-1, error_code=ErrorCode.NOT_LEADER_OR_FOLLOWER)
            return [away] * len(op.partitions)
        except OpFailedError as e:
            return [ListOffsetsOpResp(-1, error_code=e.error_code)] * len(op.partitions)
        return answer.partitions

    async def epoch_ends(self, op: EpochEndOps, trace: TraceContext | None) -> list[EpochEndOpResp]:
        """Where leader epochs end."""
        unknown = EpochEnd(-1, -1)
        try:
            answer = await self.ask(op, trace)
        except UnavailableError:
            away = EpochEndOpResp(unknown, ErrorCode.NOT_LEADER_OR_FOLLOWER)
            return [away] * len(op.partitions)
        except OpFailedError as e:
            return [EpochEndOpResp(unknown, e.error_code)] * len(op.partitions)
        return answer.partitions

    async def delete_records(
        self, op: DeleteRecordsOps, trace: TraceContext | None
    ) -> list[DeleteRecordsOpResp]:
        """Move log starts, durably."""
        try:
            answer = await self.ask(op, trace)
        except UnavailableError:
            away = DeleteRecordsOpResp(-1, ErrorCode.NOT_LEADER_OR_FOLLOWER)
            return [away] * len(op.partitions)
        except OpFailedError as e:
            return [DeleteRecordsOpResp(-1, e.error_code)] * len(op.partitions)
        return answer.partitions

    async def describe_topics(
        self, op: DescribeTopics, trace: TraceContext | None, seconds: float = SMALL_OP_SECONDS
    ) -> DescribeTopicsResp:
        """Topics, their ids and partition counts. The list may be shared."""
        try:
            return await self._lister.describe(op, trace, seconds)
        except OpFailedError as e:
            if e.error_code != ErrorCode.TOPIC_AUTHORIZATION_FAILED:
                raise
            return _refused(op)

    async def create_topic(
        self, op: CreateTopic, trace: TraceContext | None, seconds: float = SMALL_OP_SECONDS
    ) -> CreateTopicResp:
        """Create one topic, durably."""
        try:
            return await self.ask(op, trace, seconds)
        except OpFailedError as e:
            return CreateTopicResp(b"", -1, e.error_code, ErrorCode.name_of(e.error_code))

    async def delete_topic(
        self, op: DeleteTopic, trace: TraceContext | None, seconds: float = SMALL_OP_SECONDS
    ) -> DeleteTopicResp:
        """Delete one topic, durably."""
        try:
            return await self.ask(op, trace, seconds)
        except OpFailedError as e:
            return DeleteTopicResp(op.topic, op.topic_id, e.error_code)

    async def init_producer_id(
        self, op: InitProducerId, trace: TraceContext | None
    ) -> InitProducerIdResp:
        """A fresh producer id, or the next epoch of one."""
        try:
            return await self.ask(op, trace)
        except OpFailedError as e:
            return InitProducerIdResp(-1, -1, e.error_code)

    async def probe(self, trace: TraceContext | None, seconds: float) -> ProbeResp:
        """How the broker is. Raises UnavailableError and OpFailedError."""
        return await self.ask(Probe(), trace, seconds)

    async def ask(
        self, op: Op[R], trace: TraceContext | None, seconds: float = SMALL_OP_SECONDS
    ) -> R:
        """Any op, answered within so many seconds. Raises UnavailableError and OpFailedError.

        What only reads is asked again when the connection that it went by is lost: that of a
        broker that was restarted while nobody spoke is found out by the next op.
        """
        if not seconds:
            raise UnavailableError("the broker is away")
        until = asyncio.get_running_loop().time() + seconds
        while True:
            left = until - asyncio.get_running_loop().time()
            try:
                return await self._client.call(op, org_id=self._org_id, deadline=left, trace=trace)
            except OutcomeUnknownError as e:
                now = asyncio.get_running_loop().time()
                if not op.reads or now >= until:
                    raise UnavailableError(str(e)) from e
                until = min(until, now + _RESTARTED_SECONDS)
            except PeerUnavailableError as e:
                self._in_vain_at = asyncio.get_running_loop().time()
                raise UnavailableError(str(e)) from e


class UnavailableError(Exception):
    """A broker did not answer an op, or failed all of it. `code` is the Kafka error of that."""

    def __init__(self, message: str, code: int = ErrorCode.BROKER_NOT_AVAILABLE) -> None:
        super().__init__(message)
        self.code = code


def _refused(op: DescribeTopics) -> DescribeTopicsResp:
    """What a broker's refusal means to clients: an error for each topic named, none to list."""
    code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    named = [TopicDescription(name, b"", 0, code) for name in op.topics or ()]
    return DescribeTopicsResp(
        "", [*named, *(TopicDescription("", topic_id, 0, code) for topic_id in op.topic_ids or ())]
    )


def _is_idempotent(op: ProduceOps) -> bool:
    for part in op.partitions:
        with suppress(Malformed):  # refused by the broker, when it is there
            if read_header(part.records).producer_id >= 0:
                return True
    return False


def _error_code(error: Exception) -> int:
    if isinstance(error, OpFailedError):
        return error.error_code
    if isinstance(error, OutcomeUnknownError):
        return ErrorCode.REQUEST_TIMED_OUT
    return ErrorCode.NOT_LEADER_OR_FOLLOWER
