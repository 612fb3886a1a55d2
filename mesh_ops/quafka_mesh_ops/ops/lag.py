"""Ops on the lag of consumer groups, 0x1A and 0x1B."""

from __future__ import annotations

from quafka_mesh_ops.ops.base import AnyOp, Op, OpCode, WireStruct, wire_struct


@wire_struct
class PartitionLag(WireStruct):
    """The lag of a group in one partition. -1: unknown.

    Attributes:
        records: the number of records from the committed offset, or the log start if that is
            higher, to the high watermark.
        behind_ms: the age of the first of these records.
        catch_up_ms: the time until the lag is 0, at the present pace.
        member_id: the member that reads the partition; empty: none.
        committed_at_ms: the time of the commit.
        topic_id: the id of the topic of the commit, if the topic is another broker's.
    """

    topic: str
    partition: int
    log_start: int
    high_watermark: int
    committed: int = -1
    records: int = -1
    behind_ms: int = -1
    catch_up_ms: int = -1
    member_id: str = ""
    committed_at_ms: int = -1
    topic_id: bytes = b""


@wire_struct
class LaggingMember(WireStruct):
    """A member of a group. The instance id is empty for a dynamic member."""

    member_id: str
    instance_id: str
    client_id: str
    client_host: str


@wire_struct
class LagOfGroup(WireStruct):
    """A group, or the error. Partitions are ordered by topic and number."""

    group: str
    error_code: int = 0
    state: str = ""
    protocol_type: str = ""
    protocol: str = ""
    members: list[LaggingMember] | None = None
    partitions: list[PartitionLag] | None = None


@wire_struct
class GroupLagResp(WireStruct):
    """One answer per group, in the order of the request, and the broker's wall clock."""

    now_ms: int
    groups: list[LagOfGroup]


@wire_struct
class GroupLag(Op[GroupLagResp]):
    """Request the lag of groups.

    `elsewhere`: include partitions of other brokers' topics, whose log figures are unknown.
    """

    code = OpCode.GROUP_LAG
    reads = True
    groups: list[str]
    elsewhere: bool = False


@wire_struct
class LagOfOffsetsResp(WireStruct):
    """The lags in the order of the request; the log figures of a missing partition are unknown."""

    partitions: list[PartitionLag]


@wire_struct
class LagOfOffsets(Op[LagOfOffsetsResp]):
    """Request the lag of offsets of a group that another broker coordinates."""

    code = OpCode.LAG_OF_OFFSETS
    reads = True
    group: str
    partitions: list[PartitionLag]


ALL: tuple[type[AnyOp], ...] = (GroupLag, LagOfOffsets)
