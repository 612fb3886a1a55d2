"""Ops on share groups and their members (KIP-932): 0x8C to 0x8E.

They go to the broker that coordinates the group. Answers to heartbeats and descriptions are those
of consumer groups: an answer with `asks` has changed nothing, and the gateway sends the heartbeat
again with the topics.
"""

from __future__ import annotations

from quafka_mesh_ops.ops.base import AnyOp, Op, OpCode, WireStruct, wire_struct
from quafka_mesh_ops.ops.consumer_groups import (
    ConsumerHeartbeatResp,
    DescribeConsumerGroupsResp,
    KnownTopic,
)


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
class DescribeShareGroups(Op[DescribeConsumerGroupsResp]):
    """Describe share groups by name."""

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
    """Create a share group without members, durably, unless it exists; safe to retry."""

    code = OpCode.CREATE_SHARE_GROUP
    group: str


ALL: tuple[type[AnyOp], ...] = (ShareHeartbeat, DescribeShareGroups, CreateShareGroup)
