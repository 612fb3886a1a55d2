"""Ops on the committed offsets of consumer groups: 0x14 to 0x16, and 0x1F."""

from __future__ import annotations

from quafka_mesh_ops.ops.base import AnyOp, Op, OpCode, WireStruct, wire_struct


@wire_struct
class CommitOffset(WireStruct):
    """The offset that a group commits in one partition.

    `elsewhere`: the topic is another broker's; its name and id are both set and correct.
    """

    topic: str
    partition: int
    offset: int
    leader_epoch: int = -1
    metadata: str = ""
    topic_id: bytes = b""
    elsewhere: bool = False


@wire_struct
class CommitOffsetsResp(WireStruct):
    """One error code per offset, in the order of the request. The offsets are durable.

    `commit_us`: see `ProduceOpsResp`.
    """

    partitions: list[int]
    commit_us: int = 0


@wire_struct
class CommitOffsets(Op[CommitOffsetsResp]):
    """Commit offsets, as a member or, with generation -1, from outside the group.

    `knows_member_epochs`: `generation` may be the epoch of a member of KIP-848.
    """

    code = OpCode.COMMIT_OFFSETS
    group: str
    generation: int
    member_id: str
    instance_id: str
    offsets: list[CommitOffset]
    knows_member_epochs: bool = False


@wire_struct
class CommittedQuestion(WireStruct):
    """Partitions of one topic, named by name or, if that is empty, by id.

    `elsewhere`: as in CommitOffset.
    """

    topic: str
    partitions: list[int]
    topic_id: bytes = b""
    elsewhere: bool = False


@wire_struct
class CommittedOffset(WireStruct):
    """The last committed offset; -1: none."""

    topic: str
    topic_id: bytes
    partition: int
    offset: int = -1
    leader_epoch: int = -1
    metadata: str = ""
    error_code: int = 0


@wire_struct
class CommittedOffsetsResp(WireStruct):
    """The offsets in the order of the request; sorted by topic if all were requested."""

    offsets: list[CommittedOffset]
    error_code: int = 0


@wire_struct
class CommittedOffsets(Op[CommittedOffsetsResp]):
    """Request a group's committed offsets. `topics` None: all topics.

    `member_id`, `member_epoch`: of the member that asks, which must be the present ones (KIP-848).
    `require_stable`: UNSTABLE_OFFSET_COMMIT for a partition with an offset in an open transaction.
    """

    code = OpCode.COMMITTED_OFFSETS
    reads = True
    group: str
    topics: list[CommittedQuestion] | None = None
    require_stable: bool = False
    member_id: str | None = None
    member_epoch: int = -1


@wire_struct
class DeleteOffsetsResp(WireStruct):
    """The group's error, and one error code per partition, in the order of the request."""

    error_code: int
    partitions: list[int]


@wire_struct
class DeleteOffsets(Op[DeleteOffsetsResp]):
    """Delete committed offsets of topics that no member subscribes to. Durable."""

    code = OpCode.DELETE_OFFSETS
    group: str
    topics: list[CommittedQuestion]


@wire_struct
class ForgetTopicResp(WireStruct):
    """The result."""

    error_code: int = 0


@wire_struct
class ForgetTopic(Op[ForgetTopicResp]):
    """Delete all groups' offsets in a topic of another broker, which was deleted. Durable."""

    code = OpCode.FORGET_TOPIC
    topic: str
    topic_id: bytes


ALL: tuple[type[AnyOp], ...] = (
    CommitOffsets,
    CommittedOffsets,
    DeleteOffsets,
    ForgetTopic,
)
