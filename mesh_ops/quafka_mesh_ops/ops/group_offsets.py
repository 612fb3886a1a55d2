"""Ops on the committed offsets of consumer groups: 0x14 to 0x16, and 0x1F."""

from __future__ import annotations

from dataclasses import dataclass

from quafka_mesh_ops.ops.base import AnyOp, Op, OpCode, WireStruct


@dataclass(frozen=True, slots=True)
class CommitOffset(WireStruct):
    """The offset that a group has come to in one partition.

    `elsewhere`: the topic is another broker's. Name and id are both there, and are right.
    """

    topic: str
    partition: int
    offset: int
    leader_epoch: int = -1
    metadata: str = ""
    topic_id: bytes = b""
    elsewhere: bool = False


@dataclass(frozen=True, slots=True)
class CommitOffsetsResp(WireStruct):
    """One error code per offset, in the order of the request. Durable when it is answered."""

    partitions: list[int]


@dataclass(frozen=True, slots=True)
class CommitOffsets(Op[CommitOffsetsResp]):
    """Commit offsets, as a member or, with generation -1, from outside of the group."""

    code = OpCode.COMMIT_OFFSETS
    group: str
    generation: int
    member_id: str
    instance_id: str
    offsets: list[CommitOffset]


@dataclass(frozen=True, slots=True)
class CommittedQuestion(WireStruct):
    """Partitions of one topic, by name or, where that is empty, by id.

    `elsewhere`: the topic is another broker's. Name and id are both there, and are right.
    """

    topic: str
    partitions: list[int]
    topic_id: bytes = b""
    elsewhere: bool = False


@dataclass(frozen=True, slots=True)
class CommittedOffset(WireStruct):
    """What was committed last; offset -1: nothing."""

    topic: str
    topic_id: bytes
    partition: int
    offset: int = -1
    leader_epoch: int = -1
    metadata: str = ""
    error_code: int = 0


@dataclass(frozen=True, slots=True)
class CommittedOffsetsResp(WireStruct):
    """In the order of the request; all there are, by topic, where all were asked for."""

    offsets: list[CommittedOffset]
    error_code: int = 0


@dataclass(frozen=True, slots=True)
class CommittedOffsets(Op[CommittedOffsetsResp]):
    """Ask for a group's committed offsets. `topics` None: all."""

    code = OpCode.COMMITTED_OFFSETS
    reads = True
    group: str
    topics: list[CommittedQuestion] | None = None


@dataclass(frozen=True, slots=True)
class DeleteOffsetsResp(WireStruct):
    """The group's error, and one error code per partition, in the order of the request."""

    error_code: int
    partitions: list[int]


@dataclass(frozen=True, slots=True)
class DeleteOffsets(Op[DeleteOffsetsResp]):
    """Delete committed offsets of topics that no member is subscribed to. Durable."""

    code = OpCode.DELETE_OFFSETS
    group: str
    topics: list[CommittedQuestion]


@dataclass(frozen=True, slots=True)
class ForgetTopicResp(WireStruct):
    """Whether it is done."""

    error_code: int = 0


@dataclass(frozen=True, slots=True)
class ForgetTopic(Op[ForgetTopicResp]):
    """A topic of another broker was deleted: all groups' offsets in it are to go. Durable."""

    code = OpCode.FORGET_TOPIC
    topic: str
    topic_id: bytes


ALL: tuple[type[AnyOp], ...] = (
    CommitOffsets,
    CommittedOffsets,
    DeleteOffsets,
    ForgetTopic,
)
