"""The one table of Kafka APIs: dispatch, the ApiVersions answer and the version check at once.

An API that is not in the table does not exist; one that is in it cannot be advertised wrongly.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from quafka_gateway.context import RequestContext
from quafka_gateway.handlers import (
    api_versions,
    create_topics,
    delete_groups,
    delete_records,
    delete_topics,
    describe_group_lag,
    describe_groups,
    fetch,
    find_coordinator,
    heartbeat,
    init_producer_id,
    join_group,
    leave_group,
    list_groups,
    list_offsets,
    metadata,
    offset_commit,
    offset_delete,
    offset_fetch,
    offset_for_leader_epoch,
    produce,
    sync_group,
)
from quafka_proto.message import Message
from quafka_proto.schema.api_versions import ApiVersionsRequest
from quafka_proto.schema.fetch import FetchRequest
from quafka_proto.schema.group_admin import (
    DeleteGroupsRequest,
    DescribeGroupsRequest,
    ListGroupsRequest,
)
from quafka_proto.schema.groups import (
    FindCoordinatorRequest,
    HeartbeatRequest,
    JoinGroupRequest,
    LeaveGroupRequest,
    SyncGroupRequest,
)
from quafka_proto.schema.leader_epochs import OffsetForLeaderEpochRequest
from quafka_proto.schema.list_offsets import ListOffsetsRequest
from quafka_proto.schema.metadata import MetadataRequest
from quafka_proto.schema.offsets import (
    OffsetCommitRequest,
    OffsetDeleteRequest,
    OffsetFetchRequest,
)
from quafka_proto.schema.partitions import DeleteRecordsRequest
from quafka_proto.schema.produce import ProduceRequest
from quafka_proto.schema.producer_id import InitProducerIdRequest
from quafka_proto.schema.quafka import DescribeGroupLagRequest
from quafka_proto.schema.topics import CreateTopicsRequest, DeleteTopicsRequest

Handler = Callable[[Any, RequestContext], Awaitable[Message | None]]


@dataclass(frozen=True, slots=True)
class Api:
    """One Kafka API as this gateway serves it.

    Attributes:
        name: Kafka's name for it.
        request: the request's schema.
        handler: gives the response message, or None where the protocol has none (acks=0).
        min_version: lowest version accepted and advertised.
        max_version: highest.
        long_poll: may wait for data, or for others, and its reply may be large. Started only
            once every earlier request of the connection is answered and the client reads;
            dropped when the client goes.
        ours: none of Kafka's; only our own tools are told of it.
    """

    name: str
    request: type[Message]
    handler: Handler
    min_version: int
    max_version: int
    long_poll: bool = False
    ours: bool = False


APIS: dict[int, Api] = {
    0: Api("Produce", ProduceRequest, produce.handle, 0, 13),
    1: Api("Fetch", FetchRequest, fetch.handle, 0, 18, long_poll=True),
    2: Api("ListOffsets", ListOffsetsRequest, list_offsets.handle, 0, 11),
    3: Api("Metadata", MetadataRequest, metadata.handle, 0, 13),
    8: Api("OffsetCommit", OffsetCommitRequest, offset_commit.handle, 0, 10),
    9: Api("OffsetFetch", OffsetFetchRequest, offset_fetch.handle, 0, 10),
    10: Api("FindCoordinator", FindCoordinatorRequest, find_coordinator.handle, 0, 6),
    11: Api("JoinGroup", JoinGroupRequest, join_group.handle, 0, 9, long_poll=True),
    12: Api("Heartbeat", HeartbeatRequest, heartbeat.handle, 0, 4),
    13: Api("LeaveGroup", LeaveGroupRequest, leave_group.handle, 0, 5),
    14: Api("SyncGroup", SyncGroupRequest, sync_group.handle, 0, 5, long_poll=True),
    15: Api("DescribeGroups", DescribeGroupsRequest, describe_groups.handle, 0, 6),
    16: Api("ListGroups", ListGroupsRequest, list_groups.handle, 0, 5),
    18: Api("ApiVersions", ApiVersionsRequest, api_versions.handle, 0, 4),
    19: Api("CreateTopics", CreateTopicsRequest, create_topics.handle, 0, 7),
    20: Api("DeleteTopics", DeleteTopicsRequest, delete_topics.handle, 0, 6),
    21: Api("DeleteRecords", DeleteRecordsRequest, delete_records.handle, 0, 2),
    22: Api("InitProducerId", InitProducerIdRequest, init_producer_id.handle, 0, 5),
    23: Api(
        "OffsetForLeaderEpoch", OffsetForLeaderEpochRequest, offset_for_leader_epoch.handle, 0, 4
    ),
    42: Api("DeleteGroups", DeleteGroupsRequest, delete_groups.handle, 0, 2),
    47: Api("OffsetDelete", OffsetDeleteRequest, offset_delete.handle, 0, 0),
    20550: Api(
        "DescribeGroupLag", DescribeGroupLagRequest, describe_group_lag.handle, 0, 0, ours=True
    ),
}
