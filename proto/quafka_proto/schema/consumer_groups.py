"""The consumer group protocol of KIP-848: ConsumerGroupHeartbeat (key 68),
ConsumerGroupDescribe (69).

In a heartbeat, null means that a value has not changed since the last one.
"""

from __future__ import annotations

from quafka_proto.message import (
    Request,
    Response,
    Struct,
    array,
    boolean,
    int8,
    int16,
    int32,
    string,
    struct,
    uuid,
)
from quafka_proto.schema.metadata import AUTHORIZED_OPERATIONS_UNKNOWN

CLASSIC_MEMBER, CONSUMER_MEMBER = 0, 1
"""Values of member_type."""


class ConsumerGroupTopicPartitions(Struct):
    topic_id: bytes = uuid()
    partitions: list[int] = array(int32())


class ConsumerGroupHeartbeatRequest(Request, key=68, versions="0-1", flexible="0+"):
    group_id: str = string()
    member_id: str = string()
    member_epoch: int = int32()
    instance_id: str | None = string(default=None, nullable="0+")
    rack_id: str | None = string(default=None, nullable="0+")
    rebalance_timeout_ms: int = int32(default=-1)
    subscribed_topic_names: list[str] | None = array(string(), default=None, nullable="0+")
    subscribed_topic_regex: str | None = string("1+", default=None, nullable="0+")
    server_assignor: str | None = string(default=None, nullable="0+")
    topic_partitions: list[ConsumerGroupTopicPartitions] | None = array(
        ConsumerGroupTopicPartitions, default=None, nullable="0+"
    )


class ConsumerGroupAssignment(Struct):
    topic_partitions: list[ConsumerGroupTopicPartitions] = array(ConsumerGroupTopicPartitions)


class ConsumerGroupHeartbeatResponse(Response, key=68, versions="0-1", flexible="0+"):
    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(default=None, nullable="0+")
    member_id: str | None = string(default=None, nullable="0+")
    member_epoch: int = int32()
    heartbeat_interval_ms: int = int32()
    assignment: ConsumerGroupAssignment | None = struct(
        ConsumerGroupAssignment, default=None, nullable="0+"
    )


class ConsumerGroupDescribeRequest(Request, key=69, versions="0-1", flexible="0+"):
    group_ids: list[str] = array(string())
    include_authorized_operations: bool = boolean()


class ConsumerGroupDescribeTopicPartitions(Struct):
    topic_id: bytes = uuid()
    topic_name: str = string()
    partitions: list[int] = array(int32())


class ConsumerGroupDescribeAssignment(Struct):
    topic_partitions: list[ConsumerGroupDescribeTopicPartitions] = array(
        ConsumerGroupDescribeTopicPartitions
    )


class ConsumerGroupDescribeMember(Struct):
    member_id: str = string()
    instance_id: str | None = string(default=None, nullable="0+")
    rack_id: str | None = string(default=None, nullable="0+")
    member_epoch: int = int32()
    client_id: str = string()
    client_host: str = string()
    subscribed_topic_names: list[str] = array(string())
    subscribed_topic_regex: str | None = string(default=None, nullable="0+")
    assignment: ConsumerGroupDescribeAssignment = struct(ConsumerGroupDescribeAssignment)
    target_assignment: ConsumerGroupDescribeAssignment = struct(ConsumerGroupDescribeAssignment)
    member_type: int = int8("1+", default=-1)


class DescribedConsumerGroup(Struct):
    error_code: int = int16()
    error_message: str | None = string(default=None, nullable="0+")
    group_id: str = string()
    group_state: str = string()
    group_epoch: int = int32()
    assignment_epoch: int = int32()
    assignor_name: str = string()
    members: list[ConsumerGroupDescribeMember] = array(ConsumerGroupDescribeMember)
    authorized_operations: int = int32(default=AUTHORIZED_OPERATIONS_UNKNOWN)


class ConsumerGroupDescribeResponse(Response, key=69, versions="0-1", flexible="0+"):
    throttle_time_ms: int = int32()
    groups: list[DescribedConsumerGroup] = array(DescribedConsumerGroup)
