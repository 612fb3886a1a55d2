"""Ops that look up offsets in the log: by time, and by leader epoch."""

from __future__ import annotations

from quafka_mesh_ops.ops.base import AnyOp, Op, OpCode, WireStruct, wire_struct

# --- ListOffsets 0x04 -------------------------------------------------------------------------


@wire_struct
class ListOffsetsOp(WireStruct):
    """The lookup of one partition: timestamp -2 earliest, -1 latest, or a time."""

    topic: str
    partition: int
    timestamp: int
    current_leader_epoch: int = -1


@wire_struct
class ListOffsetsOpResp(WireStruct):
    """The found offset; -1 if none matches."""

    offset: int
    error_code: int = 0
    timestamp: int = -1
    leader_epoch: int = -1


@wire_struct
class ListOffsetsOpsResp(WireStruct):
    """One answer per ListOffsetsOp, in the order of the request."""

    partitions: list[ListOffsetsOpResp]


@wire_struct
class ListOffsetsOps(Op[ListOffsetsOpsResp]):
    """One Kafka ListOffsets request."""

    code = OpCode.LIST_OFFSETS
    reads = True
    partitions: list[ListOffsetsOp]
    isolation_level: int = 0


# --- OffsetForLeaderEpoch 0x20 ----------------------------------------------------------------


@wire_struct
class EpochEndResp(WireStruct):
    """The offset after the last record of a leader epoch; -1 and -1 if unknown."""

    leader_epoch: int
    end_offset: int


@wire_struct
class EpochEndOp(WireStruct):
    """The lookup of the end of `leader_epoch`. `current_leader_epoch`: as in FetchOp."""

    topic: str
    partition: int
    leader_epoch: int
    current_leader_epoch: int = -1


@wire_struct
class EpochEndOpResp(WireStruct):
    """The greatest epoch at or below the requested one, and its end; -1 and -1: unknown."""

    end: EpochEndResp
    error_code: int = 0


@wire_struct
class EpochEndOpsResp(WireStruct):
    """One answer per EpochEndOp, in the order of the request."""

    partitions: list[EpochEndOpResp]


@wire_struct
class EpochEndOps(Op[EpochEndOpsResp]):
    """One Kafka OffsetForLeaderEpoch request."""

    code = OpCode.EPOCH_ENDS
    reads = True
    partitions: list[EpochEndOp]


ALL: tuple[type[AnyOp], ...] = (
    ListOffsetsOps,
    EpochEndOps,
)
