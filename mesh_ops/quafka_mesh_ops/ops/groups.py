"""Ops on consumer groups: one for each of Kafka's group APIs, 0x10 to 0x13 and 0x17 to 0x19.

Members and their metadata are as in Kafka's classic group protocol: opaque here. An instance id
is empty if a member is not static (KIP-345).
"""

from __future__ import annotations

from quafka_mesh_ops.ops.base import AnyOp, Op, OpCode, OpKind, WireStruct, wire_struct
from quafka_proto.schema.group_admin import ListedGroup
from quafka_proto.schema.groups import JoinGroupRequestProtocol, SyncGroupRequestAssignment

# --- members ----------------------------------------------------------------------------------


@wire_struct
class JoinedMember(WireStruct):
    """A member, as the answer to the group's leader lists it."""

    member_id: str
    instance_id: str
    metadata: bytes


@wire_struct
class JoinGroupResp(WireStruct):
    """Sent when the group's new generation begins. `members`: for the leader only.

    `parked_us`: time that the op waited for the generation.
    """

    carries_records = True
    error_code: int = 0
    member_id: str = ""
    generation: int = -1
    protocol_type: str | None = None
    protocol: str | None = None
    leader: str = ""
    skip_assignment: bool = False
    members: list[JoinedMember] | None = None
    parked_us: int = 0


@wire_struct
class JoinGroup(Op[JoinGroupResp]):
    """Join a group, or rejoin it for its next generation. Parked until that begins.

    `require_member_id`: a new member gets its id and must join again with it (KIP-394).
    `knows_skip_assignment`: the client understands that field of the answer (KIP-814).
    """

    code = OpCode.JOIN_GROUP
    carries_records = True
    group: str
    member_id: str
    instance_id: str
    protocol_type: str
    protocols: list[JoinGroupRequestProtocol]
    session_timeout_ms: int
    rebalance_timeout_ms: int
    client_id: str = ""
    client_host: str = ""
    require_member_id: bool = False
    knows_skip_assignment: bool = False

    @property
    def kind(self) -> OpKind:
        """See Op."""
        return OpKind.GROUP_WAITS


@wire_struct
class SyncGroupResp(WireStruct):
    """Sent when the leader's assignments are durable. `parked_us`: time that the op waited."""

    carries_records = True
    error_code: int = 0
    assignment: bytes = b""
    protocol_type: str | None = None
    protocol: str | None = None
    parked_us: int = 0


@wire_struct
class SyncGroup(Op[SyncGroupResp]):
    """Request the member's assignment; the leader sends all of them. Parked until it has."""

    code = OpCode.SYNC_GROUP
    carries_records = True
    group: str
    generation: int
    member_id: str
    instance_id: str
    assignments: list[SyncGroupRequestAssignment]
    protocol_type: str | None = None
    protocol: str | None = None

    @property
    def kind(self) -> OpKind:
        """See Op. The leader's assignments pass: the other members wait for them."""
        return OpKind.SMALL_OPS if self.assignments else OpKind.GROUP_WAITS


@wire_struct
class JoinedHeartbeat(WireStruct):
    """One more member of a heartbeat."""

    group: str
    generation: int
    member_id: str
    instance_id: str = ""


@wire_struct
class HeartbeatResp(WireStruct):
    """The state of the membership: unknown, rebalancing (the member must rejoin), or fine.

    `others`: those of the other members; None in the answers of older brokers.
    """

    error_code: int = 0
    others: list[int] | None = None


@wire_struct
class Heartbeat(Op[HeartbeatResp]):
    """Report that a member is alive. `others`: members of any groups that are alive, too."""

    code = OpCode.HEARTBEAT
    group: str
    generation: int
    member_id: str
    instance_id: str = ""
    others: list[JoinedHeartbeat] | None = None


@wire_struct
class Leaver(WireStruct):
    """A member that leaves, named by member id or by instance id alone."""

    member_id: str
    instance_id: str = ""


@wire_struct
class LeaveGroupResp(WireStruct):
    """One error code per leaver, in the order of the request."""

    error_code: int
    leavers: list[int]


@wire_struct
class LeaveGroup(Op[LeaveGroupResp]):
    """Remove members, at their own or an administrator's request."""

    code = OpCode.LEAVE_GROUP
    group: str
    leavers: list[Leaver]


# --- administration ---------------------------------------------------------------------------


@wire_struct
class ListGroupsResp(WireStruct):
    """The org's groups, by name."""

    groups: list[ListedGroup]


@wire_struct
class ListGroups(Op[ListGroupsResp]):
    """List the groups in any of these states and of these kinds; an empty list matches all."""

    code = OpCode.LIST_GROUPS
    reads = True
    states: list[str]
    kinds: list[str]


@wire_struct
class DescribedMember(WireStruct):
    """A member. `metadata`: for the group's protocol."""

    member_id: str
    instance_id: str
    client_id: str
    client_host: str
    metadata: bytes
    assignment: bytes


@wire_struct
class GroupDescription(WireStruct):
    """A group, or the error. `protocol_type`: of a group that is not classic, its kind."""

    group: str
    error_code: int = 0
    state: str = ""
    protocol_type: str = ""
    protocol: str = ""
    members: list[DescribedMember] | None = None


@wire_struct
class DescribeGroupsResp(WireStruct):
    """One answer per group, in the order of the request."""

    groups: list[GroupDescription]


@wire_struct
class DescribeGroups(Op[DescribeGroupsResp]):
    """Describe groups by name."""

    code = OpCode.DESCRIBE_GROUPS
    reads = True
    groups: list[str]


@wire_struct
class DeleteGroupsResp(WireStruct):
    """One error code per group, in the order of the request."""

    groups: list[int]


@wire_struct
class DeleteGroups(Op[DeleteGroupsResp]):
    """Delete groups without members, and their offsets. Durable once it is answered."""

    code = OpCode.DELETE_GROUPS
    groups: list[str]


ALL: tuple[type[AnyOp], ...] = (
    JoinGroup,
    SyncGroup,
    Heartbeat,
    LeaveGroup,
    ListGroups,
    DescribeGroups,
    DeleteGroups,
)
