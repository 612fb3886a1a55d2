"""The one table of Kafka APIs: dispatch, the ApiVersions answer, the version check and the order.

An API that is not in the table does not exist; one that is in it cannot be advertised wrongly.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from quafka_gateway.context import RequestContext
from quafka_gateway.handlers import (
    absent,
    alter_configs,
    alter_replica_log_dirs,
    api_versions,
    create_partitions,
    create_topics,
    delete_groups,
    delete_records,
    delete_topics,
    describe_cluster,
    describe_configs,
    describe_gateway,
    describe_group_lag,
    describe_groups,
    describe_log_dirs,
    describe_producers,
    describe_quorum,
    describe_topic_partitions,
    fetch,
    find_coordinator,
    heartbeat,
    incremental_alter_configs,
    init_producer_id,
    join_group,
    leave_group,
    list_config_resources,
    list_groups,
    list_offsets,
    metadata,
    offset_commit,
    offset_delete,
    offset_fetch,
    offset_for_leader_epoch,
    produce,
    replicas,
    sync_group,
)
from quafka_gateway.handlers.order import Order, State
from quafka_gateway.responses.encoded_response import EncodedResponse
from quafka_gateway.responses.response_length import names_few
from quafka_proto.message import Message
from quafka_proto.schema.acls import CreateAclsRequest, DeleteAclsRequest, DescribeAclsRequest
from quafka_proto.schema.api_versions import ApiVersionsRequest
from quafka_proto.schema.cluster import DescribeClusterRequest, UpdateFeaturesRequest
from quafka_proto.schema.configs import (
    AlterConfigsRequest,
    DescribeConfigsRequest,
    IncrementalAlterConfigsRequest,
    ListConfigResourcesRequest,
)
from quafka_proto.schema.consumer_groups import ConsumerGroupHeartbeatRequest
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
from quafka_proto.schema.log_dirs import AlterReplicaLogDirsRequest, DescribeLogDirsRequest
from quafka_proto.schema.metadata import MetadataRequest
from quafka_proto.schema.offsets import (
    OffsetCommitRequest,
    OffsetDeleteRequest,
    OffsetFetchRequest,
)
from quafka_proto.schema.partitions import (
    CreatePartitionsRequest,
    DeleteRecordsRequest,
    DescribeTopicPartitionsRequest,
)
from quafka_proto.schema.produce import ProduceRequest
from quafka_proto.schema.producer_id import InitProducerIdRequest
from quafka_proto.schema.quafka import DescribeGatewayRequest, DescribeGroupLagRequest
from quafka_proto.schema.quorum import DescribeQuorumRequest
from quafka_proto.schema.quotas import DescribeClientQuotasRequest
from quafka_proto.schema.replicas import (
    AlterPartitionReassignmentsRequest,
    ElectLeadersRequest,
    ListPartitionReassignmentsRequest,
)
from quafka_proto.schema.sasl import SaslAuthenticateRequest, SaslHandshakeRequest
from quafka_proto.schema.scram import DescribeUserScramCredentialsRequest
from quafka_proto.schema.topics import CreateTopicsRequest, DeleteTopicsRequest
from quafka_proto.schema.transaction_admin import (
    DescribeProducersRequest,
    DescribeTransactionsRequest,
    ListTransactionsRequest,
)

Handler = Callable[[Any, RequestContext], Awaitable[Message | EncodedResponse | None]]


@dataclass(frozen=True, slots=True)
class Api:
    """One Kafka API as this gateway serves it.

    Attributes:
        name: Kafka's name for it.
        request: the request's schema.
        handler: gives the response message, or None where the protocol has none (acks=0).
        min_version: lowest version accepted and advertised.
        max_version: highest.
        order: the state that it reads and writes, which decides what it waits for on its
            connection. It has no default: a new API has to declare it.
        describes_many: its answer may be of thousands of things. Such an answer is encoded in
            slices; one of a connection is made at a time, few of all connections, and none for a
            client that goes.
        few_are_short: it is not where the request names a few things.
        ours: none of Kafka's; only our own tools are told of it.
    """

    name: str
    request: type[Message]
    handler: Handler
    min_version: int
    max_version: int
    order: Order
    describes_many: bool = False
    few_are_short: bool = False
    ours: bool = False

    def may_be_long(self, request: Message) -> bool:
        """Whether this request's answer may be."""
        return self.describes_many and not (self.few_are_short and names_few(request))

    @property
    def long_poll(self) -> bool:
        """Whether it may wait for data or for other clients, and its reply may be large.

        A long poll begins once every earlier request of the connection is answered and the
        client reads. It is dropped when the client goes.
        """
        return self.order.long_poll


RECORDS, TOPICS, CONFIGS = State.RECORDS, State.TOPICS, State.CONFIGS
PRODUCERS, TRANSACTIONS = State.PRODUCERS, State.TRANSACTIONS
GROUPS, OFFSETS, FETCH_SESSIONS = State.GROUPS, State.OFFSETS, State.FETCH_SESSIONS
REPLICAS, ACLS, QUOTAS, USERS, ALL = (
    State.REPLICAS,
    State.ACLS,
    State.QUOTAS,
    State.USERS,
    State.ALL,
)

APIS: dict[int, Api] = {
    0: Api(
        "Produce",
        ProduceRequest,
        produce.handle,
        0,
        13,
        Order(reads=TOPICS | CONFIGS, writes=RECORDS | PRODUCERS, in_lane=True),
    ),
    1: Api(
        "Fetch",
        FetchRequest,
        fetch.handle,
        0,
        18,
        Order(reads=RECORDS | TOPICS, writes=FETCH_SESSIONS, long_poll=True),
    ),
    2: Api(
        "ListOffsets",
        ListOffsetsRequest,
        list_offsets.handle,
        0,
        11,
        Order(reads=RECORDS | TOPICS),
        describes_many=True,
        few_are_short=True,
    ),
    3: Api(
        "Metadata",
        MetadataRequest,
        metadata.handle,
        0,
        13,
        Order(writes=TOPICS),
        describes_many=True,
        few_are_short=True,
    ),
    8: Api(
        "OffsetCommit",
        OffsetCommitRequest,
        offset_commit.handle,
        0,
        10,
        Order(reads=TOPICS, writes=OFFSETS | GROUPS),
    ),
    9: Api(
        "OffsetFetch",
        OffsetFetchRequest,
        offset_fetch.handle,
        0,
        10,
        Order(reads=OFFSETS | GROUPS | TOPICS),
        describes_many=True,
        few_are_short=True,
    ),
    10: Api("FindCoordinator", FindCoordinatorRequest, find_coordinator.handle, 0, 6, Order()),
    11: Api(
        "JoinGroup", JoinGroupRequest, join_group.handle, 0, 9, Order(writes=GROUPS, long_poll=True)
    ),
    12: Api("Heartbeat", HeartbeatRequest, heartbeat.handle, 0, 4, Order(writes=GROUPS)),
    13: Api("LeaveGroup", LeaveGroupRequest, leave_group.handle, 0, 5, Order(writes=GROUPS)),
    14: Api(
        "SyncGroup", SyncGroupRequest, sync_group.handle, 0, 5, Order(writes=GROUPS, long_poll=True)
    ),
    15: Api(
        "DescribeGroups",
        DescribeGroupsRequest,
        describe_groups.handle,
        0,
        6,
        Order(reads=GROUPS),
        describes_many=True,
    ),
    16: Api(
        "ListGroups",
        ListGroupsRequest,
        list_groups.handle,
        0,
        5,
        Order(reads=GROUPS | OFFSETS),
        describes_many=True,
    ),
    17: Api("SaslHandshake", SaslHandshakeRequest, absent.sasl_handshake, 0, 1, Order(writes=ALL)),
    18: Api("ApiVersions", ApiVersionsRequest, api_versions.handle, 0, 4, Order()),
    19: Api(
        "CreateTopics",
        CreateTopicsRequest,
        create_topics.handle,
        0,
        7,
        Order(writes=TOPICS | CONFIGS),
    ),
    20: Api(
        "DeleteTopics",
        DeleteTopicsRequest,
        delete_topics.handle,
        0,
        6,
        Order(writes=TOPICS | CONFIGS | RECORDS | PRODUCERS | OFFSETS),
    ),
    21: Api(
        "DeleteRecords",
        DeleteRecordsRequest,
        delete_records.handle,
        0,
        2,
        Order(reads=TOPICS, writes=RECORDS),
    ),
    22: Api(
        "InitProducerId",
        InitProducerIdRequest,
        init_producer_id.handle,
        0,
        5,
        Order(writes=PRODUCERS | TRANSACTIONS),
    ),
    23: Api(
        "OffsetForLeaderEpoch",
        OffsetForLeaderEpochRequest,
        offset_for_leader_epoch.handle,
        0,
        4,
        Order(reads=RECORDS | TOPICS),
    ),
    29: Api("DescribeAcls", DescribeAclsRequest, absent.describe_acls, 0, 3, Order(reads=ACLS)),
    30: Api("CreateAcls", CreateAclsRequest, absent.create_acls, 0, 3, Order(writes=ACLS)),
    31: Api("DeleteAcls", DeleteAclsRequest, absent.delete_acls, 0, 3, Order(writes=ACLS)),
    32: Api(
        "DescribeConfigs",
        DescribeConfigsRequest,
        describe_configs.handle,
        0,
        4,
        Order(reads=CONFIGS | TOPICS),
        describes_many=True,
        few_are_short=True,
    ),
    33: Api(
        "AlterConfigs",
        AlterConfigsRequest,
        alter_configs.handle,
        0,
        2,
        Order(reads=TOPICS, writes=CONFIGS),
    ),
    34: Api(
        "AlterReplicaLogDirs",
        AlterReplicaLogDirsRequest,
        alter_replica_log_dirs.handle,
        0,
        2,
        Order(reads=TOPICS | RECORDS, writes=REPLICAS),
    ),
    35: Api(
        "DescribeLogDirs",
        DescribeLogDirsRequest,
        describe_log_dirs.handle,
        0,
        5,
        Order(reads=RECORDS | TOPICS | REPLICAS),
        describes_many=True,
        few_are_short=True,
    ),
    36: Api(
        "SaslAuthenticate",
        SaslAuthenticateRequest,
        absent.sasl_authenticate,
        0,
        2,
        Order(writes=ALL),
    ),
    37: Api(
        "CreatePartitions",
        CreatePartitionsRequest,
        create_partitions.handle,
        0,
        3,
        Order(writes=TOPICS),
    ),
    42: Api(
        "DeleteGroups",
        DeleteGroupsRequest,
        delete_groups.handle,
        0,
        2,
        Order(writes=GROUPS | OFFSETS),
    ),
    43: Api(
        "ElectLeaders",
        ElectLeadersRequest,
        replicas.elect_leaders,
        0,
        2,
        Order(reads=TOPICS, writes=REPLICAS),
    ),
    44: Api(
        "IncrementalAlterConfigs",
        IncrementalAlterConfigsRequest,
        incremental_alter_configs.handle,
        0,
        1,
        Order(reads=TOPICS, writes=CONFIGS),
    ),
    45: Api(
        "AlterPartitionReassignments",
        AlterPartitionReassignmentsRequest,
        replicas.alter_reassignments,
        0,
        1,
        Order(reads=TOPICS, writes=REPLICAS),
    ),
    46: Api(
        "ListPartitionReassignments",
        ListPartitionReassignmentsRequest,
        replicas.list_reassignments,
        0,
        0,
        Order(reads=TOPICS | REPLICAS),
    ),
    47: Api(
        "OffsetDelete",
        OffsetDeleteRequest,
        offset_delete.handle,
        0,
        0,
        Order(reads=TOPICS | GROUPS, writes=OFFSETS),
    ),
    48: Api(
        "DescribeClientQuotas",
        DescribeClientQuotasRequest,
        absent.describe_client_quotas,
        0,
        1,
        Order(reads=QUOTAS),
    ),
    50: Api(
        "DescribeUserScramCredentials",
        DescribeUserScramCredentialsRequest,
        absent.describe_scram_credentials,
        0,
        0,
        Order(reads=USERS),
    ),
    55: Api(
        "DescribeQuorum",
        DescribeQuorumRequest,
        describe_quorum.handle,
        0,
        2,
        Order(reads=TOPICS | CONFIGS),
    ),
    57: Api(
        "UpdateFeatures", UpdateFeaturesRequest, absent.update_features, 0, 2, Order(writes=ALL)
    ),
    60: Api(
        "DescribeCluster",
        DescribeClusterRequest,
        describe_cluster.handle,
        0,
        2,
        Order(reads=TOPICS),
    ),
    61: Api(
        "DescribeProducers",
        DescribeProducersRequest,
        describe_producers.handle,
        0,
        0,
        Order(reads=PRODUCERS | RECORDS | TOPICS),
        describes_many=True,
    ),
    65: Api(
        "DescribeTransactions",
        DescribeTransactionsRequest,
        absent.describe_transactions,
        0,
        0,
        Order(reads=TRANSACTIONS),
    ),
    66: Api(
        "ListTransactions",
        ListTransactionsRequest,
        absent.list_transactions,
        0,
        2,
        Order(reads=TRANSACTIONS),
    ),
    68: Api(
        "ConsumerGroupHeartbeat",
        ConsumerGroupHeartbeatRequest,
        absent.consumer_group_heartbeat,
        0,
        1,
        Order(),
    ),
    74: Api(
        "ListConfigResources",
        ListConfigResourcesRequest,
        list_config_resources.handle,
        0,
        1,
        Order(reads=TOPICS | CONFIGS | GROUPS),
    ),
    75: Api(
        "DescribeTopicPartitions",
        DescribeTopicPartitionsRequest,
        describe_topic_partitions.handle,
        0,
        0,
        Order(reads=TOPICS),
        describes_many=True,
        few_are_short=True,
    ),
    20550: Api(
        "DescribeGroupLag",
        DescribeGroupLagRequest,
        describe_group_lag.handle,
        0,
        0,
        Order(reads=GROUPS | OFFSETS | RECORDS | TOPICS),
        describes_many=True,
        ours=True,
    ),
    20551: Api(
        "DescribeGateway",
        DescribeGatewayRequest,
        describe_gateway.handle,
        0,
        1,
        Order(reads=ALL),
        ours=True,
    ),
}
