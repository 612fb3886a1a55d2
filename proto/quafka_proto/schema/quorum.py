"""The controllers' quorum: DescribeQuorum (key 55)."""

from __future__ import annotations

from quafka_proto.message import (
    Request,
    Response,
    Struct,
    array,
    int16,
    int32,
    int64,
    string,
    uint16,
    uuid,
)


class QuorumPartitionData(Struct):
    partition_index: int = int32()


class TopicData(Struct):
    topic_name: str = string()
    partitions: list[QuorumPartitionData] = array(QuorumPartitionData)


class DescribeQuorumRequest(Request, key=55, versions="0-2", flexible="0+"):
    topics: list[TopicData] = array(TopicData)


class QuorumReplicaState(Struct):
    replica_id: int = int32()
    replica_directory_id: bytes = uuid("2+")
    log_end_offset: int = int64()
    last_fetch_timestamp: int = int64("1+", default=-1)
    last_caught_up_timestamp: int = int64("1+", default=-1)


class DescribeQuorumPartitionData(Struct):
    partition_index: int = int32()
    error_code: int = int16()
    error_message: str | None = string("2+", default=None, nullable="0+")
    leader_id: int = int32()
    leader_epoch: int = int32()
    high_watermark: int = int64()
    current_voters: list[QuorumReplicaState] = array(QuorumReplicaState)
    observers: list[QuorumReplicaState] = array(QuorumReplicaState)


class DescribeQuorumTopicData(Struct):
    topic_name: str = string()
    partitions: list[DescribeQuorumPartitionData] = array(DescribeQuorumPartitionData)


class QuorumListener(Struct):
    name: str = string()
    host: str = string()
    port: int = uint16()


class QuorumNode(Struct):
    node_id: int = int32()
    listeners: list[QuorumListener] = array(QuorumListener)


class DescribeQuorumResponse(Response, key=55, versions="0-2", flexible="0+"):
    error_code: int = int16()
    error_message: str | None = string("2+", default=None, nullable="0+")
    topics: list[DescribeQuorumTopicData] = array(DescribeQuorumTopicData)
    nodes: list[QuorumNode] = array(QuorumNode, "2+")
