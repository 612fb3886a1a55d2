"""Ops on share groups, their topics and their members (KIP-932): 0x86, 0x87, 0x8C, 0x8E, 0x14D.

They go to the broker that coordinates the group. Answers to heartbeats and descriptions are those
of consumer groups: an answer with `asks` has changed nothing, and the gateway sends the heartbeat
again with the topics.
"""

from __future__ import annotations

from quafka_mesh_ops.ops.base import AnyOp, Op, OpCode, WireStruct, wire_struct
from quafka_mesh_ops.ops.consumer_groups import (
    ConsumerHeartbeatResp,
    KnownTopic,
)
from quafka_proto.schema.consumer_groups import ConsumerGroupDescribeResponse


@wire_struct
class ShareHeartbeat(Op[ConsumerHeartbeatResp]):
    """Join a share group (epoch 0), stay in it, or leave it (-1); see `ConsumerHeartbeat`.

    None: unchanged since the last heartbeat.
    """

    code = OpCode.SHARE_HEARTBEAT
    group: str
    member_id: str
    member_epoch: int
    rack_id: str | None = None
    topics: list[str] | None = None
    client_id: str = ""
    client_host: str = ""
    is_whole: bool = False
    known: list[KnownTopic] | None = None


@wire_struct
class DescribeShareGroups(Op[ConsumerGroupDescribeResponse]):
    """Describe share groups by name: as consumer groups, which have more fields."""

    code = OpCode.DESCRIBE_SHARE_GROUPS
    reads = True
    groups: list[str]


@wire_struct
class CreateShareGroupResp(WireStruct):
    """Whether there is a share group of that name without members; else the error."""

    error_code: int
    error: str = ""


@wire_struct
class CreateShareGroup(Op[CreateShareGroupResp]):
    """Create a share group without members, durably, unless it exists; safe to retry.

    `topics`: those whose offsets are set; the group learns them.
    """

    code = OpCode.CREATE_SHARE_GROUP
    group: str
    topics: list[KnownTopic] | None = None


@wire_struct
class ShareGroupTopicsResp(WireStruct):
    """The number of partitions that each topic had when the group learnt it; -1: unknown."""

    first_partitions: list[int]


@wire_struct
class ShareGroupTopics(Op[ShareGroupTopicsResp]):
    """Which partitions of topics are new to a share group: it reads them from their start."""

    code = OpCode.SHARE_GROUP_TOPICS
    reads = True
    group: str
    topic_ids: list[bytes]


@wire_struct
class ForgetShareTopicsResp(WireStruct):
    """The outcome. Without an error it is durable."""

    error_code: int = 0


@wire_struct
class ForgetShareTopics(Op[ForgetShareTopicsResp]):
    """Make a share group without members forget topics; safe to retry."""

    code = OpCode.FORGET_SHARE_TOPICS
    group: str
    topic_ids: list[bytes]


ALL: tuple[type[AnyOp], ...] = (
    ShareHeartbeat, DescribeShareGroups, CreateShareGroup, ShareGroupTopics, ForgetShareTopics,
)  # fmt: skip
