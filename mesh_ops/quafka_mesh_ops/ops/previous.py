"""Ops of the previous version's gateways, which a broker serves until its next version.

Brokers are upgraded first. No program sends these ops. An op whose payload changes gets another op
code, and what it was stays here for one version.
"""

from __future__ import annotations

from quafka_mesh_ops.ops.base import AnyOp, Op, OpCode, WireStruct, wire_struct


@wire_struct
class PreviousPartitions(WireStruct):
    """Partitions of one topic, by the topic's id and name."""

    topic: str
    topic_id: bytes
    partitions: list[int]


@wire_struct
class PreviousMember(WireStruct):
    """A member. `is_classic`: it uses the classic protocol within the group."""

    member_id: str
    instance_id: str
    rack_id: str
    member_epoch: int
    client_id: str
    client_host: str
    topics: list[str]
    pattern: str
    assignment: list[PreviousPartitions]
    target: list[PreviousPartitions]
    is_classic: bool = False


@wire_struct
class PreviousDescription(WireStruct):
    """A group, or the error."""

    group: str
    error_code: int = 0
    error: str = ""
    state: str = ""
    epoch: int = 0
    assignment_epoch: int = 0
    assignor: str = ""
    members: list[PreviousMember] | None = None


@wire_struct
class PreviousDescriptions(WireStruct):
    """One answer per group, in the order of the request."""

    groups: list[PreviousDescription]


@wire_struct
class PreviousDescribeConsumerGroups(Op[PreviousDescriptions]):
    """DescribeConsumerGroups, before its answer was Kafka's."""

    code = OpCode.PREVIOUS_DESCRIBE_CONSUMER_GROUPS
    reads = True
    groups: list[str]


@wire_struct
class PreviousDescribeShareGroups(Op[PreviousDescriptions]):
    """DescribeShareGroups, before its answer was Kafka's."""

    code = OpCode.PREVIOUS_DESCRIBE_SHARE_GROUPS
    reads = True
    groups: list[str]


ALL: tuple[type[AnyOp], ...] = (PreviousDescribeConsumerGroups, PreviousDescribeShareGroups)
