"""Share groups (KIP-932): ShareGroupHeartbeat (key 76), ShareGroupDescribe (77).

Version 0, an early access of Kafka 4.0 that no release serves by default, has no schema.
"""

from __future__ import annotations

from quafka_proto.message import (
    Request,
    Response,
    Struct,
    array,
    boolean,
    int16,
    int32,
    string,
    struct,
)
from quafka_proto.schema.consumer_groups import (
    ConsumerGroupDescribeAssignment,
    ConsumerGroupTopicPartitions,
)
from quafka_proto.schema.metadata import AUTHORIZED_OPERATIONS_UNKNOWN


class ShareGroupHeartbeatRequest(Request, key=76, versions="1", flexible="0+"):
    group_id: str = string()
    member_id: str = string()
    member_epoch: int = int32()
    rack_id: str | None = string(default=None, nullable="0+")
    subscribed_topic_names: list[str] | None = array(string(), default=None, nullable="0+")


class ShareGroupAssignment(Struct):
    topic_partitions: list[ConsumerGroupTopicPartitions] = array(ConsumerGroupTopicPartitions)


class ShareGroupHeartbeatResponse(Response, key=76, versions="1", flexible="0+"):
    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(default=None, nullable="0+")
    member_id: str | None = string(default=None, nullable="0+")
    member_epoch: int = int32()
    heartbeat_interval_ms: int = int32()
    assignment: ShareGroupAssignment | None = struct(
        ShareGroupAssignment, default=None, nullable="0+"
    )


class ShareGroupDescribeRequest(Request, key=77, versions="1", flexible="0+"):
    group_ids: list[str] = array(string())
    include_authorized_operations: bool = boolean()


class ShareGroupDescribeMember(Struct):
    member_id: str = string()
    rack_id: str | None = string(default=None, nullable="0+")
    member_epoch: int = int32()
    client_id: str = string()
    client_host: str = string()
    subscribed_topic_names: list[str] = array(string())
    assignment: ConsumerGroupDescribeAssignment = struct(ConsumerGroupDescribeAssignment)


class DescribedShareGroup(Struct):
    error_code: int = int16()
    error_message: str | None = string(default=None, nullable="0+")
    group_id: str = string()
    group_state: str = string()
    group_epoch: int = int32()
    assignment_epoch: int = int32()
    assignor_name: str = string()
    members: list[ShareGroupDescribeMember] = array(ShareGroupDescribeMember)
    authorized_operations: int = int32(default=AUTHORIZED_OPERATIONS_UNKNOWN)


class ShareGroupDescribeResponse(Response, key=77, versions="1", flexible="0+"):
    throttle_time_ms: int = int32()
    groups: list[DescribedShareGroup] = array(DescribedShareGroup)
