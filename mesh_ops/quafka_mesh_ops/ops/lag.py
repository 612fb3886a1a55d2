"""The ops about how far behind consumer groups are, 0x1A and 0x1B: from what is known now."""

from __future__ import annotations

from dataclasses import dataclass

from quafka_mesh_ops.ops.base import AnyOp, Op, OpCode, WireStruct


@dataclass(frozen=True, slots=True)
class PartitionLag(WireStruct):
    """How far behind a group is in one partition. -1 stands for what is not known.

    Attributes:
        records: from the committed offset, or the log start above it, to the high watermark.
        behind_ms: the age of the first of them.
        catch_up_ms: until there are none, at the present pace.
        member_id: who reads the partition; empty: nobody.
        committed_at_ms: when.
        topic_id: which topic that was committed in, if it is another broker's.
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


@dataclass(frozen=True, slots=True)
class LaggingMember(WireStruct):
    """A member of a group. The instance id is empty where it is not static."""

    member_id: str
    instance_id: str
    client_id: str
    client_host: str


@dataclass(frozen=True, slots=True)
class LagOfGroup(WireStruct):
    """A group, or why nothing is said of it. Partitions are in order of topic and number."""

    group: str
    error_code: int = 0
    state: str = ""
    protocol_type: str = ""
    protocol: str = ""
    members: list[LaggingMember] | None = None
    partitions: list[PartitionLag] | None = None


@dataclass(frozen=True, slots=True)
class GroupLagResp(WireStruct):
    """One for each group asked for, in that order, and the broker's wall clock."""

    now_ms: int
    groups: list[LagOfGroup]


@dataclass(frozen=True, slots=True)
class GroupLag(Op[GroupLagResp]):
    """Ask how far behind groups are.

    `elsewhere`: name partitions of other brokers' topics, too; their log is not known.
    """

    code = OpCode.GROUP_LAG
    reads = True
    groups: list[str]
    elsewhere: bool = False


@dataclass(frozen=True, slots=True)
class LagOfOffsetsResp(WireStruct):
    """In the order of the request; the log of a partition that there is not is not known."""

    partitions: list[PartitionLag]


@dataclass(frozen=True, slots=True)
class LagOfOffsets(Op[LagOfOffsetsResp]):
    """How far behind these offsets are, of a group that another broker coordinates."""

    code = OpCode.LAG_OF_OFFSETS
    reads = True
    group: str
    partitions: list[PartitionLag]


ALL: tuple[type[AnyOp], ...] = (GroupLag, LagOfOffsets)
