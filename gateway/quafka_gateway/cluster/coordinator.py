"""The coordinator of all consumer groups, as handlers see it: the home broker.

A broker that is away is a coordinator that has moved: clients look for it, find this gateway
again, and go on. All of these ops may be said twice.
"""

from __future__ import annotations

from quafka_gateway.cluster import parked
from quafka_gateway.cluster.broker_link import SMALL_OP_SECONDS, BrokerLink, UnavailableError
from quafka_mesh_ops.errors import OpFailedError
from quafka_mesh_ops.ops.base import Op, R
from quafka_mesh_ops.ops.group_offsets import (
    CommitOffsets,
    CommittedOffsets,
    CommittedOffsetsResp,
    DeleteOffsets,
    DeleteOffsetsResp,
)
from quafka_mesh_ops.ops.groups import (
    DeleteGroups,
    DescribeGroups,
    DescribeGroupsResp,
    Heartbeat,
    JoinGroup,
    JoinGroupResp,
    LeaveGroup,
    LeaveGroupResp,
    ListGroups,
    ListGroupsResp,
    SyncGroup,
    SyncGroupResp,
)
from quafka_mesh_ops.ops.lag import GroupLag, GroupLagResp
from quafka_proto.errors import ErrorCode
from quafka_telemetry.tracing import TraceContext

# A group's members wait for each other for as long as the slowest of them may take.
_GROUP_WAIT_SECONDS = 3_600.0
# A person who asks is better told that the broker is away than kept waiting for it.
_AWAY_SECONDS = 1.0


class Coordinator:
    """Groups and their offsets: one method per op."""

    def __init__(self, broker: BrokerLink) -> None:
        self._broker = broker

    async def join_group(self, op: JoinGroup, trace: TraceContext | None) -> JoinGroupResp:
        """Join; parked at the broker until the group's next generation begins."""
        try:
            answer = await self._ask(op, trace, _GROUP_WAIT_SECONDS)
        except UnavailableError as e:
            return JoinGroupResp(_of_group(e.code), op.member_id)
        parked.note(answer.parked_us / 1e6)
        return answer

    async def sync_group(self, op: SyncGroup, trace: TraceContext | None) -> SyncGroupResp:
        """Get an assignment; parked at the broker until there is one."""
        try:
            answer = await self._ask(op, trace, _GROUP_WAIT_SECONDS)
        except UnavailableError as e:
            return SyncGroupResp(_of_group(e.code))
        parked.note(answer.parked_us / 1e6)
        return answer

    async def heartbeat(self, op: Heartbeat, trace: TraceContext | None) -> int:
        """A member is alive; what it is told."""
        try:
            return (await self._ask(op, trace)).error_code
        except UnavailableError as e:
            return e.code

    async def leave_group(self, op: LeaveGroup, trace: TraceContext | None) -> LeaveGroupResp:
        """Members leave."""
        try:
            return await self._ask(op, trace)
        except UnavailableError as e:
            return LeaveGroupResp(e.code, [])

    async def commit_offsets(self, op: CommitOffsets, trace: TraceContext | None) -> list[int]:
        """Commit offsets, durably; one error code for each."""
        try:
            return (await self._ask(op, trace)).partitions
        except UnavailableError as e:
            code = e.code
            if code == ErrorCode.MESSAGE_TOO_LARGE:
                code = ErrorCode.INVALID_COMMIT_OFFSET_SIZE
            return [code] * len(op.offsets)

    async def committed_offsets(
        self, op: CommittedOffsets, trace: TraceContext | None
    ) -> CommittedOffsetsResp:
        """What was committed."""
        try:
            return await self._ask(op, trace)
        except UnavailableError as e:
            return CommittedOffsetsResp([], e.code)

    async def delete_offsets(
        self, op: DeleteOffsets, trace: TraceContext | None
    ) -> DeleteOffsetsResp:
        """Delete committed offsets, durably."""
        try:
            return await self._ask(op, trace)
        except UnavailableError as e:
            return DeleteOffsetsResp(e.code, [])

    async def delete_groups(self, op: DeleteGroups, trace: TraceContext | None) -> list[int]:
        """Delete groups, durably; one error code for each."""
        try:
            return (await self._ask(op, trace)).groups
        except UnavailableError as e:
            return [e.code] * len(op.groups)

    async def list_groups(self, op: ListGroups, trace: TraceContext | None) -> ListGroupsResp:
        """The groups that there are. Raises UnavailableError."""
        return await self._ask(op, trace)

    async def describe_groups(
        self, op: DescribeGroups, trace: TraceContext | None
    ) -> DescribeGroupsResp:
        """Groups with their members. Raises UnavailableError."""
        return await self._ask(op, trace)

    async def group_lag(self, op: GroupLag, trace: TraceContext | None) -> GroupLagResp:
        """How far behind groups are. Raises UnavailableError, soon where the broker is away."""
        seconds = SMALL_OP_SECONDS if self._broker.connected else _AWAY_SECONDS
        return await self._ask(op, trace, seconds)

    async def _ask(
        self, op: Op[R], trace: TraceContext | None, seconds: float = SMALL_OP_SECONDS
    ) -> R:
        try:
            return await self._broker.ask(op, trace, seconds)
        except UnavailableError as e:
            raise UnavailableError(str(e), ErrorCode.NOT_COORDINATOR) from e
        except OpFailedError as e:
            late = e.error_code == ErrorCode.REQUEST_TIMED_OUT
            code = ErrorCode.NOT_COORDINATOR if late else e.error_code
            raise UnavailableError(str(e), code) from e


def _of_group(code: int) -> int:
    """What a member is told of an op that is too large for the mesh."""
    too_large = code == ErrorCode.MESSAGE_TOO_LARGE
    return ErrorCode.GROUP_MAX_SIZE_REACHED if too_large else code
