"""Streams groups (KIP-1071): StreamsGroupHeartbeat (key 88), StreamsGroupDescribe (89).

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
    int64,
    string,
    struct,
    uint16,
)
from quafka_proto.schema.metadata import AUTHORIZED_OPERATIONS_UNKNOWN


class KeyValue(Struct):
    key: str = string()
    value: str = string()


class TopicInfo(Struct):
    name: str = string()
    partitions: int = int32()
    replication_factor: int = int16()
    topic_configs: list[KeyValue] = array(KeyValue)


class CopartitionGroup(Struct):
    source_topics: list[int] = array(int16())
    source_topic_regex: list[int] = array(int16())
    repartition_source_topics: list[int] = array(int16())


class Subtopology(Struct):
    subtopology_id: str = string()
    source_topics: list[str] = array(string())
    source_topic_regex: list[str] = array(string())
    state_changelog_topics: list[TopicInfo] = array(TopicInfo)
    repartition_sink_topics: list[str] = array(string())
    repartition_source_topics: list[TopicInfo] = array(TopicInfo)
    copartition_groups: list[CopartitionGroup] = array(CopartitionGroup)


class Topology(Struct):
    epoch: int = int32()
    subtopologies: list[Subtopology] = array(Subtopology)


class TaskIds(Struct):
    subtopology_id: str = string()
    partitions: list[int] = array(int32())


class StreamsEndpoint(Struct):
    host: str = string()
    port: int = uint16()


class TaskOffset(Struct):
    subtopology_id: str = string()
    partition: int = int32()
    offset: int = int64()


class StreamsGroupHeartbeatRequest(Request, key=88, versions="0", flexible="0+"):
    group_id: str = string()
    member_id: str = string()
    member_epoch: int = int32()
    endpoint_information_epoch: int = int32()
    instance_id: str | None = string(default=None, nullable="0+")
    rack_id: str | None = string(default=None, nullable="0+")
    rebalance_timeout_ms: int = int32(default=-1)
    topology: Topology | None = struct(Topology, default=None, nullable="0+")
    active_tasks: list[TaskIds] | None = array(TaskIds, default=None, nullable="0+")
    standby_tasks: list[TaskIds] | None = array(TaskIds, default=None, nullable="0+")
    warmup_tasks: list[TaskIds] | None = array(TaskIds, default=None, nullable="0+")
    process_id: str | None = string(default=None, nullable="0+")
    user_endpoint: StreamsEndpoint | None = struct(StreamsEndpoint, default=None, nullable="0+")
    client_tags: list[KeyValue] | None = array(KeyValue, default=None, nullable="0+")
    task_offsets: list[TaskOffset] | None = array(TaskOffset, default=None, nullable="0+")
    task_end_offsets: list[TaskOffset] | None = array(TaskOffset, default=None, nullable="0+")
    shutdown_application: bool = boolean()


class Status(Struct):
    status_code: int = int8()
    status_detail: str = string()


class TopicPartition(Struct):
    topic: str = string()
    partitions: list[int] = array(int32())


class EndpointToPartitions(Struct):
    user_endpoint: StreamsEndpoint = struct(StreamsEndpoint)
    active_partitions: list[TopicPartition] = array(TopicPartition)
    standby_partitions: list[TopicPartition] = array(TopicPartition)


class StreamsGroupHeartbeatResponse(Response, key=88, versions="0", flexible="0+"):
    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(default=None, nullable="0+")
    member_id: str = string()
    member_epoch: int = int32()
    heartbeat_interval_ms: int = int32()
    acceptable_recovery_lag: int = int32()
    task_offset_interval_ms: int = int32()
    status: list[Status] | None = array(Status, nullable="0+")
    active_tasks: list[TaskIds] | None = array(TaskIds, default=None, nullable="0+")
    standby_tasks: list[TaskIds] | None = array(TaskIds, default=None, nullable="0+")
    warmup_tasks: list[TaskIds] | None = array(TaskIds, default=None, nullable="0+")
    endpoint_information_epoch: int = int32()
    partitions_by_user_endpoint: list[EndpointToPartitions] | None = array(
        EndpointToPartitions, default=None, nullable="0+"
    )


class StreamsGroupDescribeRequest(Request, key=89, versions="0", flexible="0+"):
    group_ids: list[str] = array(string())
    include_authorized_operations: bool = boolean()


class StreamsGroupDescribeSubtopology(Struct):
    subtopology_id: str = string()
    source_topics: list[str] = array(string())
    repartition_sink_topics: list[str] = array(string())
    state_changelog_topics: list[TopicInfo] = array(TopicInfo)
    repartition_source_topics: list[TopicInfo] = array(TopicInfo)


class StreamsGroupDescribeTopology(Struct):
    epoch: int = int32()
    subtopologies: list[StreamsGroupDescribeSubtopology] | None = array(
        StreamsGroupDescribeSubtopology, default=None, nullable="0+"
    )


class StreamsGroupAssignment(Struct):
    active_tasks: list[TaskIds] = array(TaskIds)
    standby_tasks: list[TaskIds] = array(TaskIds)
    warmup_tasks: list[TaskIds] = array(TaskIds)


class StreamsGroupDescribeMember(Struct):
    member_id: str = string()
    member_epoch: int = int32()
    instance_id: str | None = string(default=None, nullable="0+")
    rack_id: str | None = string(default=None, nullable="0+")
    client_id: str = string()
    client_host: str = string()
    topology_epoch: int = int32()
    process_id: str = string()
    user_endpoint: StreamsEndpoint | None = struct(StreamsEndpoint, default=None, nullable="0+")
    client_tags: list[KeyValue] = array(KeyValue)
    task_offsets: list[TaskOffset] = array(TaskOffset)
    task_end_offsets: list[TaskOffset] = array(TaskOffset)
    assignment: StreamsGroupAssignment = struct(StreamsGroupAssignment)
    target_assignment: StreamsGroupAssignment = struct(StreamsGroupAssignment)
    is_classic: bool = boolean()


class DescribedStreamsGroup(Struct):
    error_code: int = int16()
    error_message: str | None = string(default=None, nullable="0+")
    group_id: str = string()
    group_state: str = string()
    group_epoch: int = int32()
    assignment_epoch: int = int32()
    topology: StreamsGroupDescribeTopology | None = struct(
        StreamsGroupDescribeTopology, default=None, nullable="0+"
    )
    members: list[StreamsGroupDescribeMember] = array(StreamsGroupDescribeMember)
    authorized_operations: int = int32(default=AUTHORIZED_OPERATIONS_UNKNOWN)


class StreamsGroupDescribeResponse(Response, key=89, versions="0", flexible="0+"):
    throttle_time_ms: int = int32()
    groups: list[DescribedStreamsGroup] = array(DescribedStreamsGroup)
