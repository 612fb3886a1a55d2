"""The gateway's side of the mesh: the only module here that talks to quafka_mesh_ops.client."""

from __future__ import annotations

from typing import cast

from quafka_mesh_ops.client import MeshClient
from quafka_mesh_ops.errors import OpFailedError, OutcomeUnknownError, PeerUnavailableError
from quafka_mesh_ops.group_ops import (
    CommitOffsets,
    CommitOffsetsResp,
    CommittedOffsets,
    CommittedOffsetsResp,
    DeleteGroups,
    DeleteGroupsResp,
    DeleteOffsets,
    DeleteOffsetsResp,
    DescribeGroups,
    DescribeGroupsResp,
    Heartbeat,
    HeartbeatResp,
    JoinGroup,
    JoinGroupResp,
    LeaveGroup,
    LeaveGroupResp,
    ListGroups,
    ListGroupsResp,
    SyncGroup,
    SyncGroupResp,
)
from quafka_mesh_ops.ops import (
    CreateTopic,
    CreateTopicResp,
    DeleteRecordsOpResp,
    DeleteRecordsOps,
    DeleteRecordsOpsResp,
    DeleteTopic,
    DeleteTopicResp,
    DescribeTopics,
    DescribeTopicsResp,
    EpochEnd,
    EpochEndOpResp,
    EpochEndOps,
    EpochEndOpsResp,
    FetchOpResp,
    FetchOps,
    FetchOpsResp,
    HoldLease,
    HoldLeaseResp,
    InitProducerId,
    InitProducerIdResp,
    ListOffsetsOpResp,
    ListOffsetsOps,
    ListOffsetsOpsResp,
    Op,
    ProduceOpResp,
    ProduceOps,
    ProduceOpsResp,
)
from quafka_mesh_ops.tracing import TraceContext
from quafka_proto.errors import ErrorCode

_SMALL_OP_SECONDS = 10.0
# What a long poll may take beyond its own wait: a broker that restarts is back within this, so
# its consumers see latency and no error.
_FETCH_GRACE_SECONDS = 5.0
_PRODUCE_SECONDS = (1.0, 30.0)
# A group's members wait for each other for as long as the slowest of them may take.
_GROUP_WAIT_SECONDS = 3_600.0


class BrokerLink:
    """The broker, as handlers see it: one method per op, for one org.

    The calls that carry many partitions never raise: a broker that is away, or an answer that
    never came, becomes a retriable Kafka error in every partition. The calls about topics and
    producers raise `BrokerAwayError`.
    """

    def __init__(self, client: MeshClient, org_id: int) -> None:
        self._client = client
        self._org_id = org_id

    @property
    def connected(self) -> bool:
        """Whether ops reach the broker right now."""
        return self._client.connected

    async def start(self) -> None:
        """Begin to connect, in the background."""
        await self._client.start()

    async def close(self) -> None:
        """Close the connection. Calls in flight fail."""
        await self._client.close()

    async def produce(
        self, op: ProduceOps, lane: int, timeout: float, trace: TraceContext | None
    ) -> list[ProduceOpResp]:
        """Append. Ops on one `lane` reach the log in the order of the calls.

        `timeout` is the client's own, in seconds. An op whose outcome is unknown answers
        REQUEST_TIMED_OUT, which tells clients that the records may have been written;
        one that never left answers NOT_LEADER_OR_FOLLOWER, which tells them they were not.
        """
        low, high = _PRODUCE_SECONDS
        deadline = min(max(timeout, low), high)
        try:
            answer = await self._client.call(
                op, org_id=self._org_id, deadline=deadline, trace=trace, lane=lane
            )
        except (PeerUnavailableError, OutcomeUnknownError, OpFailedError) as e:
            failed = ProduceOpResp(base_offset=-1, error_code=_error_code(e), log_start_offset=-1)
            return [failed] * len(op.partitions)
        return cast(ProduceOpsResp, answer).partitions

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
        return cast(FetchOpsResp, answer)

    async def hold_lease(self, op: HoldLease) -> HoldLeaseResp:
        """Ask for the lease under which fetches are answered from memory."""
        return cast(HoldLeaseResp, await self._small(op, None))

    async def list_offsets(
        self, op: ListOffsetsOps, trace: TraceContext | None
    ) -> list[ListOffsetsOpResp]:
        """Resolve earliest, latest and timestamps to offsets."""
        try:
            answer = await self._small(op, trace)
        except BrokerAwayError:
            away = ListOffsetsOpResp(-1, error_code=ErrorCode.NOT_LEADER_OR_FOLLOWER)
            return [away] * len(op.partitions)
        except OpFailedError as e:
            return [ListOffsetsOpResp(-1, error_code=e.error_code)] * len(op.partitions)
        return cast(ListOffsetsOpsResp, answer).partitions

    async def epoch_ends(self, op: EpochEndOps, trace: TraceContext | None) -> list[EpochEndOpResp]:
        """Where leader epochs end."""
        unknown = EpochEnd(-1, -1)
        try:
            answer = await self._small(op, trace)
        except BrokerAwayError:
            away = EpochEndOpResp(unknown, ErrorCode.NOT_LEADER_OR_FOLLOWER)
            return [away] * len(op.partitions)
        except OpFailedError as e:
            return [EpochEndOpResp(unknown, e.error_code)] * len(op.partitions)
        return cast(EpochEndOpsResp, answer).partitions

    async def delete_records(
        self, op: DeleteRecordsOps, trace: TraceContext | None
    ) -> list[DeleteRecordsOpResp]:
        """Move log starts, durably."""
        try:
            answer = await self._small(op, trace)
        except BrokerAwayError:
            away = DeleteRecordsOpResp(-1, ErrorCode.NOT_LEADER_OR_FOLLOWER)
            return [away] * len(op.partitions)
        except OpFailedError as e:
            return [DeleteRecordsOpResp(-1, e.error_code)] * len(op.partitions)
        return cast(DeleteRecordsOpsResp, answer).partitions

    async def describe_topics(
        self, op: DescribeTopics, trace: TraceContext | None
    ) -> DescribeTopicsResp:
        """Topics, their ids and partition counts."""
        return cast(DescribeTopicsResp, await self._small(op, trace))

    async def create_topic(self, op: CreateTopic, trace: TraceContext | None) -> CreateTopicResp:
        """Create one topic, durably."""
        return cast(CreateTopicResp, await self._small(op, trace))

    async def delete_topic(self, op: DeleteTopic, trace: TraceContext | None) -> DeleteTopicResp:
        """Delete one topic, durably."""
        return cast(DeleteTopicResp, await self._small(op, trace))

    async def init_producer_id(
        self, op: InitProducerId, trace: TraceContext | None
    ) -> InitProducerIdResp:
        """A fresh producer id, or the next epoch of one."""
        return cast(InitProducerIdResp, await self._small(op, trace))

    # --- consumer groups --------------------------------------------------------------------
    # A broker that is away is a coordinator that has moved: clients look for it, find this
    # gateway again, and go on. All of these may be said twice.

    async def join_group(self, op: JoinGroup, trace: TraceContext | None) -> JoinGroupResp:
        """Join; parked at the broker until the group's next generation begins."""
        try:
            return cast(JoinGroupResp, await self._group(op, trace, _GROUP_WAIT_SECONDS))
        except CoordinatorError as e:
            return JoinGroupResp(e.code, op.member_id)

    async def sync_group(self, op: SyncGroup, trace: TraceContext | None) -> SyncGroupResp:
        """Get an assignment; parked at the broker until there is one."""
        try:
            return cast(SyncGroupResp, await self._group(op, trace, _GROUP_WAIT_SECONDS))
        except CoordinatorError as e:
            return SyncGroupResp(e.code)

    async def heartbeat(self, op: Heartbeat, trace: TraceContext | None) -> int:
        """A member is alive; what it is told."""
        try:
            return cast(HeartbeatResp, await self._group(op, trace)).error_code
        except CoordinatorError as e:
            return e.code

    async def leave_group(self, op: LeaveGroup, trace: TraceContext | None) -> LeaveGroupResp:
        """Members leave."""
        try:
            return cast(LeaveGroupResp, await self._group(op, trace))
        except CoordinatorError as e:
            return LeaveGroupResp(e.code, [])

    async def commit_offsets(self, op: CommitOffsets, trace: TraceContext | None) -> list[int]:
        """Commit offsets, durably; one error code for each."""
        try:
            return cast(CommitOffsetsResp, await self._group(op, trace)).partitions
        except CoordinatorError as e:
            return [e.code] * len(op.offsets)

    async def committed_offsets(
        self, op: CommittedOffsets, trace: TraceContext | None
    ) -> CommittedOffsetsResp:
        """What was committed."""
        try:
            return cast(CommittedOffsetsResp, await self._group(op, trace))
        except CoordinatorError as e:
            return CommittedOffsetsResp([], e.code)

    async def delete_offsets(
        self, op: DeleteOffsets, trace: TraceContext | None
    ) -> DeleteOffsetsResp:
        """Delete committed offsets, durably."""
        try:
            return cast(DeleteOffsetsResp, await self._group(op, trace))
        except CoordinatorError as e:
            return DeleteOffsetsResp(e.code, [])

    async def delete_groups(self, op: DeleteGroups, trace: TraceContext | None) -> list[int]:
        """Delete groups, durably; one error code for each."""
        try:
            return cast(DeleteGroupsResp, await self._group(op, trace)).groups
        except CoordinatorError as e:
            return [e.code] * len(op.groups)

    async def list_groups(self, op: ListGroups, trace: TraceContext | None) -> ListGroupsResp:
        """The groups that there are. Raises CoordinatorError."""
        return cast(ListGroupsResp, await self._group(op, trace))

    async def describe_groups(
        self, op: DescribeGroups, trace: TraceContext | None
    ) -> DescribeGroupsResp:
        """Groups with their members. Raises CoordinatorError."""
        return cast(DescribeGroupsResp, await self._group(op, trace))

    async def _group(
        self, op: Op, trace: TraceContext | None, deadline: float = _SMALL_OP_SECONDS
    ) -> object:
        try:
            return await self._client.call(op, org_id=self._org_id, deadline=deadline, trace=trace)
        except (PeerUnavailableError, OutcomeUnknownError) as e:
            raise CoordinatorError(ErrorCode.NOT_COORDINATOR) from e
        except OpFailedError as e:
            late = e.error_code == ErrorCode.REQUEST_TIMED_OUT
            raise CoordinatorError(ErrorCode.NOT_COORDINATOR if late else e.error_code) from e

    async def _small(self, op: Op, trace: TraceContext | None) -> object:
        try:
            return await self._client.call(
                op, org_id=self._org_id, deadline=_SMALL_OP_SECONDS, trace=trace
            )
        except (PeerUnavailableError, OutcomeUnknownError) as e:
            raise BrokerAwayError(str(e)) from e


class BrokerAwayError(Exception):
    """The broker did not answer."""


class CoordinatorError(Exception):
    """A group's coordinator did not answer; `code` is what clients are told."""

    def __init__(self, code: int) -> None:
        super().__init__(ErrorCode.name_of(code))
        self.code = code


def _error_code(error: Exception) -> int:
    if isinstance(error, OpFailedError):
        return error.error_code
    if isinstance(error, OutcomeUnknownError):
        return ErrorCode.REQUEST_TIMED_OUT
    return ErrorCode.NOT_LEADER_OR_FOLLOWER
