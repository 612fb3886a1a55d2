"""Ops of the consumer group protocol (KIP-848): 0x78 and 0x145.

The broker that coordinates a group knows its own topics only, and no ACLs. So it asks: an answer
with `asks` or `asks_pattern` has changed nothing, and the gateway sends the heartbeat again with
what it knows of those topics.
"""

from __future__ import annotations

from quafka_mesh_ops.ops.base import AnyOp, Op, OpCode, WireStruct, wire_struct
from quafka_proto.schema.consumer_groups import (
    ConsumerGroupDescribeResponse,
    ConsumerGroupTopicPartitions,
)


@wire_struct
class KnownTopic(WireStruct):
    """A topic of another broker, as the gateway sees it now. No partitions: there is no topic.

    A topic whose broker is unavailable is unknown, and is left out.
    """

    topic: str
    topic_id: bytes = b""
    partitions: int = 0


@wire_struct
class ConsumerHeartbeatResp(WireStruct):
    """The member's new epoch and, if it changed, its assignment. All of it is durable.

    Attributes:
        error: says more about the error code; for the client.
        asks: topics that the gateway must look up; then nothing has been done.
        asks_pattern: the same, for the topics that the member's pattern matches.
    """

    error_code: int = 0
    error: str = ""
    member_id: str = ""
    member_epoch: int = 0
    heartbeat_interval_ms: int = 0
    assignment: list[ConsumerGroupTopicPartitions] | None = None
    asks: list[str] | None = None
    asks_pattern: str = ""


@wire_struct
class ConsumerHeartbeat(Op[ConsumerHeartbeatResp]):
    """Join a group (epoch 0), stay in it, or leave it (-1; -2: a static member that will return).

    None: unchanged since the last heartbeat.

    Attributes:
        owned: the partitions that the member has now.
        is_whole: the cluster has no topics but the coordinator's: it need not ask for others.
        known: topics that the coordinator has asked for.
        matched: the topics that the pattern matches, and that the client may describe.
    """

    code = OpCode.CONSUMER_HEARTBEAT
    group: str
    member_id: str
    member_epoch: int
    instance_id: str | None = None
    rack_id: str | None = None
    rebalance_timeout_ms: int = -1
    topics: list[str] | None = None
    pattern: str | None = None
    assignor: str | None = None
    owned: list[ConsumerGroupTopicPartitions] | None = None
    client_id: str = ""
    client_host: str = ""
    is_whole: bool = False
    known: list[KnownTopic] | None = None
    matched: list[str] | None = None


@wire_struct
class DescribeConsumerGroups(Op[ConsumerGroupDescribeResponse]):
    """Describe groups of the consumer group protocol by name. One answer per group, in order."""

    code = OpCode.DESCRIBE_CONSUMER_GROUPS
    reads = True
    groups: list[str]


ALL: tuple[type[AnyOp], ...] = (ConsumerHeartbeat, DescribeConsumerGroups)
