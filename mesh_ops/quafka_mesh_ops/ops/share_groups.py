"""Ops on the members of share groups (KIP-932): 0x8C and 0x8D.

They go to the broker that coordinates the group, and their answers are those of consumer groups: an
answer with `asks` has changed nothing, and the gateway sends the heartbeat again with the topics.
"""

from __future__ import annotations

from quafka_mesh_ops.ops.base import AnyOp, Op, OpCode, wire_struct
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


ALL: tuple[type[AnyOp], ...] = (ShareHeartbeat, DescribeShareGroups)
