"""The state that each API declares to read and write, against the ops that its handler sends.

Every handler answers a request of its kind over a real broker's ops; each op is known to touch
some state. An API that touches more than it declares could be overtaken, or overtake.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from typing import Any, cast

from quafka_broker.ops.table import OPS
from quafka_broker.state import BrokerState
from quafka_gateway.api import APIS
from quafka_gateway.cluster.broker_link import BrokerLink
from quafka_gateway.config import EdgeSettings
from quafka_gateway.context import RequestContext, Services
from quafka_gateway.fetch.share_sessions import INITIAL
from quafka_gateway.handlers.order import Order, SeenState
from quafka_gateway.memory import RequestMemory, ResponseMemory
from quafka_gateway.security.directory import Directory
from quafka_gateway.security.session import ClientSession
from quafka_gateway.security.writer import SecurityWriter
from quafka_mesh_ops.client import MeshClient
from quafka_mesh_ops.ops import branches, previous
from quafka_mesh_ops.ops.base import AnyOp, OpCode
from quafka_mesh_ops.ops.consumer_groups import ConsumerHeartbeat
from quafka_mesh_ops.ops.table import OPS as OP_TYPES
from quafka_mesh_ops.ops.topics import DescribeTopics
from quafka_proto.config_kinds import ConfigOperation, ResourceType
from quafka_proto.message import Message
from quafka_proto.schema import (
    acls,
    api_versions,
    cluster,
    configs,
    consumer_groups,
    delegation_tokens,
    fetch,
    group_admin,
    groups,
    leader_epochs,
    list_offsets,
    log_dirs,
    metadata,
    offsets,
    partitions,
    produce,
    producer_id,
    quafka,
    quorum,
    quotas,
    replicas,
    sasl,
    scram,
    share_fetch,
    share_group_offsets,
    share_groups,
    topics,
    transaction_admin,
    transactions,
)
from quafka_telemetry.tracing import NO_SPAN, Tracer
from tests.support.tenants import LISTENER, only, tenant_over
from tests.unit.broker.memory_disk import MemoryDisk
from tests.unit.broker.tools import ORG, batch_of, context, running_state

RECORDS, TOPICS, CONFIGS = SeenState.RECORDS, SeenState.TOPICS, SeenState.CONFIGS
PRODUCERS, GROUPS, OFFSETS = SeenState.PRODUCERS, SeenState.GROUPS, SeenState.OFFSETS
TRANSACTIONS, SHARES = SeenState.TRANSACTIONS, SeenState.SHARES

EFFECTS = {
    OpCode.PRODUCE: Order(reads=TOPICS | CONFIGS, writes=RECORDS | PRODUCERS),
    OpCode.FETCH: Order(reads=RECORDS | TOPICS),
    OpCode.LIST_OFFSETS: Order(reads=RECORDS | TOPICS),
    OpCode.DELETE_TOPIC: Order(writes=TOPICS | CONFIGS | RECORDS | PRODUCERS | OFFSETS),
    OpCode.DESCRIBE_TOPICS: Order(reads=TOPICS),
    OpCode.CREATE_TOPIC: Order(writes=TOPICS | CONFIGS),
    OpCode.INIT_PRODUCER_ID: Order(writes=PRODUCERS),
    OpCode.DELETE_RECORDS: Order(reads=TOPICS, writes=RECORDS),
    OpCode.EPOCH_ENDS: Order(reads=RECORDS | TOPICS),
    OpCode.HOLD_LEASE: Order(),
    OpCode.JOIN_GROUP: Order(writes=GROUPS),
    OpCode.SYNC_GROUP: Order(writes=GROUPS),
    OpCode.HEARTBEAT: Order(writes=GROUPS),
    OpCode.LEAVE_GROUP: Order(writes=GROUPS),
    OpCode.COMMIT_OFFSETS: Order(reads=TOPICS, writes=OFFSETS | GROUPS),
    OpCode.COMMITTED_OFFSETS: Order(reads=OFFSETS | GROUPS | TOPICS),
    OpCode.DELETE_OFFSETS: Order(reads=GROUPS | TOPICS, writes=OFFSETS),
    OpCode.LIST_GROUPS: Order(reads=GROUPS | OFFSETS),
    OpCode.DESCRIBE_GROUPS: Order(reads=GROUPS),
    OpCode.CONSUMER_HEARTBEAT: Order(reads=TOPICS, writes=GROUPS),
    OpCode.DESCRIBE_CONSUMER_GROUPS: Order(reads=GROUPS | TOPICS),
    OpCode.SHARE_HEARTBEAT: Order(reads=TOPICS, writes=GROUPS),
    OpCode.DESCRIBE_SHARE_GROUPS: Order(reads=GROUPS | TOPICS),
    OpCode.CREATE_SHARE_GROUP: Order(writes=GROUPS),
    OpCode.SHARE_GROUP_TOPICS: Order(reads=SHARES),  # where the group begins
    OpCode.FORGET_SHARE_TOPICS: Order(writes=SHARES),
    OpCode.DELETE_GROUPS: Order(writes=GROUPS | OFFSETS),
    OpCode.PROBE: Order(),
    OpCode.OPEN_PLACES: Order(),
    OpCode.CREATE_PARTITIONS: Order(writes=TOPICS),
    OpCode.DESCRIBE_TOPIC_CONFIGS: Order(reads=CONFIGS | TOPICS),
    OpCode.ALTER_TOPIC_CONFIGS: Order(reads=TOPICS, writes=CONFIGS),
    OpCode.ALTER_BROKER_CONFIGS: Order(writes=CONFIGS),
    OpCode.DESCRIBE_BROKER: Order(reads=CONFIGS),
    OpCode.DESCRIBE_LOG_DIR: Order(reads=RECORDS | TOPICS),
    OpCode.DESCRIBE_PRODUCERS: Order(reads=PRODUCERS | TOPICS),
    OpCode.DESCRIBE_COMPACTION: Order(reads=RECORDS | CONFIGS | TOPICS),
    OpCode.FORGET_TOPIC: Order(writes=OFFSETS),
    OpCode.GROUP_LAG: Order(reads=GROUPS | OFFSETS | RECORDS | TOPICS),
    OpCode.LAG_OF_OFFSETS: Order(reads=RECORDS | TOPICS),
    OpCode.INIT_TRANSACTIONS: Order(writes=TRANSACTIONS | PRODUCERS | RECORDS),
    OpCode.ADD_PARTITIONS: Order(reads=TOPICS, writes=TRANSACTIONS),
    OpCode.ADD_OFFSETS: Order(writes=TRANSACTIONS),
    OpCode.COMMIT_TXN_OFFSETS: Order(reads=TOPICS | GROUPS, writes=TRANSACTIONS | OFFSETS),
    OpCode.END_TRANSACTION: Order(writes=TRANSACTIONS | OFFSETS | GROUPS | RECORDS | PRODUCERS),
    OpCode.WRITE_MARKERS: Order(reads=TOPICS, writes=TRANSACTIONS | RECORDS | PRODUCERS),
    OpCode.DESCRIBE_TRANSACTIONS: Order(reads=TRANSACTIONS),
    OpCode.LIST_TRANSACTIONS: Order(reads=TRANSACTIONS),
    OpCode.ACQUIRE_RECORDS: Order(reads=RECORDS | TOPICS, writes=SHARES),
    OpCode.ACKNOWLEDGE_RECORDS: Order(reads=TOPICS, writes=SHARES),
    OpCode.RELEASE_RECORDS: Order(reads=TOPICS, writes=SHARES),
    OpCode.DESCRIBE_SHARE_OFFSETS: Order(reads=SHARES | TOPICS | RECORDS),
    OpCode.ALTER_SHARE_OFFSETS: Order(reads=TOPICS, writes=SHARES),
    OpCode.DELETE_SHARE_OFFSETS: Order(reads=TOPICS, writes=SHARES),
    OpCode.DESCRIBE_GROUP_CONFIGS: Order(reads=CONFIGS),
    OpCode.LIST_GROUP_CONFIGS: Order(reads=CONFIGS),
    OpCode.ALTER_GROUP_CONFIGS: Order(writes=CONFIGS),
    OpCode.SHARE_GROUP_CONFIGS: Order(reads=CONFIGS),
    OpCode.ALTER_USERS: Order(writes=SeenState.USERS),
    OpCode.ALTER_ORG: Order(writes=SeenState.ORGS),
    OpCode.ALTER_QUOTAS: Order(writes=SeenState.QUOTAS),
}
"""The state that an op reads and writes, as far as clients can see."""

_NO_API = {code for code in OpCode if code >> 4 == 5} | {op.code for op in branches.ALL}
_NO_API |= {OpCode.WATCH_SECURITY, OpCode.CREATE_ACLS, OpCode.DELETE_ACLS}
_NO_API |= {op.code for op in previous.ALL}
"""The ops about snapshots, rules and news, those between brokers, and those of earlier gateways."""
_BY_THE_READER = {OpCode.HOLD_LEASE, OpCode.OPEN_PLACES}
"""Ops that the gateway sends for itself."""
_BETWEEN_SEVERAL_BROKERS = {OpCode.FORGET_TOPIC, OpCode.LAG_OF_OFFSETS}

TOPIC, _GROUP, _CONSUMER_GROUP, _SHARE_GROUP, _IDLE_SHARE_GROUP = "t", "g", "c", "s", "i"
_TOPIC_ID = bytes([1] * 16)
_ACKNOWLEDGED = [share_fetch.AcknowledgementBatch(0, 0, [1])]


def _offsets(part: Any) -> list[Any]:
    return [offsets.OffsetCommitRequestTopic(name=TOPIC, partitions=[part])]


def _reassigned() -> list[replicas.ReassignableTopic]:
    part = replicas.ReassignablePartition(partition_index=0, replicas=[0])
    return [replicas.ReassignableTopic(name=TOPIC, partitions=[part])]


SAMPLES: dict[int, tuple[Message, int]] = {
    0: (
        produce.ProduceRequest(
            acks=-1,
            timeout_ms=1_000,
            topic_data=[
                produce.TopicProduceData(
                    name=TOPIC,
                    partition_data=[produce.PartitionProduceData(index=0, records=batch_of(b"v"))],
                )
            ],
        ),
        9,
    ),
    1: (
        fetch.FetchRequest(
            max_bytes=1 << 20,
            topics=[
                fetch.FetchTopic(
                    topic=TOPIC,
                    partitions=[fetch.FetchPartition(partition=0, partition_max_bytes=1 << 20)],
                )
            ],
        ),
        12,
    ),
    2: (
        list_offsets.ListOffsetsRequest(
            topics=[
                list_offsets.ListOffsetsTopic(
                    name=TOPIC,
                    partitions=[list_offsets.ListOffsetsPartition(partition_index=0, timestamp=-1)],
                )
            ]
        ),
        7,
    ),
    3: (
        metadata.MetadataRequest(
            topics=[metadata.MetadataRequestTopic(name="made-by-metadata")],
            allow_auto_topic_creation=True,
        ),
        12,
    ),
    8: (
        offsets.OffsetCommitRequest(
            group_id=_GROUP,
            topics=_offsets(
                offsets.OffsetCommitRequestPartition(partition_index=0, committed_offset=1)
            ),
        ),
        8,
    ),
    9: (
        offsets.OffsetFetchRequest(
            groups=[offsets.OffsetFetchRequestGroup(group_id=_GROUP, topics=None)]
        ),
        8,
    ),
    10: (groups.FindCoordinatorRequest(coordinator_keys=[_GROUP]), 6),
    11: (
        groups.JoinGroupRequest(
            group_id="joined",
            session_timeout_ms=10_000,
            rebalance_timeout_ms=10_000,
            protocol_type="consumer",
            protocols=[groups.JoinGroupRequestProtocol(name="range", metadata=b"")],
        ),
        5,
    ),
    12: (groups.HeartbeatRequest(group_id=_GROUP, generation_id=1, member_id="m"), 4),
    13: (
        groups.LeaveGroupRequest(group_id=_GROUP, members=[groups.MemberIdentity(member_id="m")]),
        5,
    ),
    14: (groups.SyncGroupRequest(group_id=_GROUP, generation_id=1, member_id="m"), 4),
    15: (group_admin.DescribeGroupsRequest(groups=[_GROUP]), 5),
    16: (group_admin.ListGroupsRequest(), 4),
    17: (sasl.SaslHandshakeRequest(mechanism="PLAIN"), 1),
    18: (api_versions.ApiVersionsRequest(), 3),
    19: (
        topics.CreateTopicsRequest(
            topics=[topics.CreatableTopic(name="made", num_partitions=1, replication_factor=1)]
        ),
        7,
    ),
    20: (topics.DeleteTopicsRequest(topic_names=[TOPIC]), 5),
    21: (
        partitions.DeleteRecordsRequest(
            topics=[
                partitions.DeleteRecordsTopic(
                    name=TOPIC,
                    partitions=[partitions.DeleteRecordsPartition(partition_index=0, offset=0)],
                )
            ]
        ),
        2,
    ),
    22: (producer_id.InitProducerIdRequest(transactional_id=None), 4),
    23: (
        leader_epochs.OffsetForLeaderEpochRequest(
            topics=[
                leader_epochs.OffsetForLeaderTopic(
                    topic=TOPIC,
                    partitions=[
                        leader_epochs.OffsetForLeaderPartition(partition=0, leader_epoch=0)
                    ],
                )
            ]
        ),
        4,
    ),
    24: (
        transactions.AddPartitionsToTxnRequest(
            v3_and_below_transactional_id="x",
            v3_and_below_topics=[transactions.AddPartitionsToTxnTopic(name=TOPIC, partitions=[0])],
        ),
        3,
    ),
    25: (transactions.AddOffsetsToTxnRequest(transactional_id="x", group_id=_GROUP), 3),
    26: (transactions.EndTxnRequest(transactional_id="x"), 4),
    27: (
        transactions.WriteTxnMarkersRequest(
            markers=[
                transactions.WritableTxnMarker(
                    topics=[transactions.WritableTxnMarkerTopic(name=TOPIC, partition_indexes=[0])]
                )
            ]
        ),
        1,
    ),
    28: (
        transactions.TxnOffsetCommitRequest(
            transactional_id="x",
            group_id=_GROUP,
            topics=[
                transactions.TxnOffsetCommitRequestTopic(
                    name=TOPIC,
                    partitions=[
                        transactions.TxnOffsetCommitRequestPartition(
                            committed_offset=1, committed_metadata=None
                        )
                    ],
                )
            ],
        ),
        3,
    ),
    29: (acls.DescribeAclsRequest(), 3),
    30: (acls.CreateAclsRequest(creations=[acls.AclCreation()]), 3),
    31: (acls.DeleteAclsRequest(filters=[acls.DeleteAclsFilter()]), 3),
    32: (
        configs.DescribeConfigsRequest(
            resources=[
                configs.DescribeConfigsResource(
                    resource_type=kind, resource_name=name, configuration_keys=None
                )
                for kind, name in (
                    (ResourceType.TOPIC, TOPIC),
                    (ResourceType.BROKER, "0"),
                    (ResourceType.GROUP, _GROUP),
                )
            ]
        ),
        4,
    ),
    33: (
        configs.AlterConfigsRequest(
            resources=[
                configs.AlterConfigsResource(
                    resource_type=ResourceType.TOPIC,
                    resource_name=TOPIC,
                    configs=[configs.AlterableConfig(name="retention.ms", value="1000")],
                ),
                configs.AlterConfigsResource(
                    resource_type=ResourceType.BROKER,
                    resource_name="",
                    configs=[configs.AlterableConfig(name="log.retention.ms", value="1000")],
                ),
                configs.AlterConfigsResource(
                    resource_type=ResourceType.GROUP,
                    resource_name=_GROUP,
                    configs=[configs.AlterableConfig(name="share.delivery.count.limit", value="3")],
                ),
            ]
        ),
        2,
    ),
    34: (
        log_dirs.AlterReplicaLogDirsRequest(
            dirs=[
                log_dirs.AlterReplicaLogDir(
                    path="/elsewhere",
                    topics=[log_dirs.AlterReplicaLogDirTopic(name=TOPIC, partitions=[0])],
                )
            ]
        ),
        2,
    ),
    35: (log_dirs.DescribeLogDirsRequest(topics=None), 4),
    36: (sasl.SaslAuthenticateRequest(auth_bytes=b""), 2),
    37: (
        partitions.CreatePartitionsRequest(
            topics=[partitions.CreatePartitionsTopic(name=TOPIC, count=2, assignments=None)]
        ),
        3,
    ),
    38: (delegation_tokens.CreateDelegationTokenRequest(), 3),
    39: (delegation_tokens.RenewDelegationTokenRequest(), 2),
    40: (delegation_tokens.ExpireDelegationTokenRequest(), 2),
    41: (delegation_tokens.DescribeDelegationTokenRequest(), 3),
    42: (group_admin.DeleteGroupsRequest(groups_names=[_GROUP]), 2),
    43: (
        replicas.ElectLeadersRequest(
            topic_partitions=[replicas.TopicPartitions(topic=TOPIC, partitions=[0])]
        ),
        2,
    ),
    44: (
        configs.IncrementalAlterConfigsRequest(
            resources=[
                configs.IncrementalAlterConfigsResource(
                    resource_type=ResourceType.TOPIC,
                    resource_name=TOPIC,
                    configs=[
                        configs.IncrementalAlterableConfig(
                            name="retention.ms",
                            config_operation=ConfigOperation.SET,
                            value="1000",
                        )
                    ],
                ),
                configs.IncrementalAlterConfigsResource(
                    resource_type=ResourceType.BROKER,
                    resource_name="0",
                    configs=[
                        configs.IncrementalAlterableConfig(
                            name="log.retention.ms",
                            config_operation=ConfigOperation.SET,
                            value="1000",
                        )
                    ],
                ),
            ]
        ),
        1,
    ),
    45: (replicas.AlterPartitionReassignmentsRequest(topics=_reassigned()), 0),
    46: (replicas.ListPartitionReassignmentsRequest(topics=None), 0),
    47: (
        offsets.OffsetDeleteRequest(
            group_id=_GROUP,
            topics=[
                offsets.OffsetDeleteRequestTopic(
                    name=TOPIC,
                    partitions=[offsets.OffsetDeleteRequestPartition(partition_index=0)],
                )
            ],
        ),
        0,
    ),
    48: (quotas.DescribeClientQuotasRequest(), 1),
    49: (
        quotas.AlterClientQuotasRequest(
            entries=[
                quotas.AlterClientQuotasEntryData(
                    entity=[quotas.EntityData(entity_type="user", entity_name="alice")],
                    ops=[quotas.OpData(key="producer_byte_rate", value=1.0)],
                )
            ]
        ),
        1,
    ),
    50: (scram.DescribeUserScramCredentialsRequest(users=None), 0),
    51: (
        scram.AlterUserScramCredentialsRequest(
            upsertions=[
                scram.ScramCredentialUpsertion(
                    name="alice",
                    mechanism=1,
                    iterations=4_096,
                    salt=b"salt",
                    salted_password=bytes(32),
                )
            ]
        ),
        0,
    ),
    55: (
        quorum.DescribeQuorumRequest(
            topics=[
                quorum.TopicData(
                    topic_name="__cluster_metadata",
                    partitions=[quorum.QuorumPartitionData(partition_index=0)],
                )
            ]
        ),
        2,
    ),
    57: (cluster.UpdateFeaturesRequest(), 2),
    60: (cluster.DescribeClusterRequest(), 1),
    61: (
        transaction_admin.DescribeProducersRequest(
            topics=[transaction_admin.ProducersTopicRequest(name=TOPIC, partition_indexes=[0])]
        ),
        0,
    ),
    64: (cluster.UnregisterBrokerRequest(broker_id=1), 0),
    65: (transaction_admin.DescribeTransactionsRequest(transactional_ids=["x"]), 0),
    66: (transaction_admin.ListTransactionsRequest(), 1),
    68: (
        consumer_groups.ConsumerGroupHeartbeatRequest(
            group_id=_GROUP, member_id="m", subscribed_topic_names=[TOPIC]
        ),
        1,
    ),
    69: (consumer_groups.ConsumerGroupDescribeRequest(group_ids=[_CONSUMER_GROUP]), 1),
    74: (configs.ListConfigResourcesRequest(), 1),
    75: (
        partitions.DescribeTopicPartitionsRequest(
            topics=[partitions.TopicRequest(name=TOPIC)], response_partition_limit=10
        ),
        0,
    ),
    76: (
        share_groups.ShareGroupHeartbeatRequest(
            group_id=_SHARE_GROUP, member_id="m", subscribed_topic_names=[TOPIC]
        ),
        1,
    ),
    77: (share_groups.ShareGroupDescribeRequest(group_ids=[_SHARE_GROUP]), 1),
    90: (
        share_group_offsets.DescribeShareGroupOffsetsRequest(
            groups=[
                share_group_offsets.DescribeShareGroupOffsetsRequestGroup(
                    group_id=_SHARE_GROUP,
                    topics=[
                        share_group_offsets.DescribeShareGroupOffsetsRequestTopic(
                            topic_name=TOPIC, partitions=[0]
                        )
                    ],
                )
            ]
        ),
        1,
    ),
    91: (
        share_group_offsets.AlterShareGroupOffsetsRequest(
            group_id=_IDLE_SHARE_GROUP,
            topics=[
                share_group_offsets.AlterShareGroupOffsetsRequestTopic(
                    topic_name=TOPIC,
                    partitions=[share_group_offsets.AlterShareGroupOffsetsRequestPartition()],
                )
            ],
        ),
        0,
    ),
    92: (
        share_group_offsets.DeleteShareGroupOffsetsRequest(
            group_id=_IDLE_SHARE_GROUP,
            topics=[share_group_offsets.DeleteShareGroupOffsetsRequestTopic(topic_name=TOPIC)],
        ),
        0,
    ),
    78: (
        share_fetch.ShareFetchRequest(
            group_id=_GROUP,
            member_id="m",
            max_bytes=1 << 20,
            max_records=1,
            topics=[share_fetch.ShareFetchTopic(_TOPIC_ID, [share_fetch.ShareFetchPartition(0)])],
        ),
        2,
    ),
    79: (
        share_fetch.ShareAcknowledgeRequest(
            group_id=_GROUP,
            member_id="m",
            share_session_epoch=-1,
            topics=[
                share_fetch.AcknowledgeTopic(
                    _TOPIC_ID, [share_fetch.AcknowledgePartition(0, _ACKNOWLEDGED)]
                )
            ],
        ),
        2,
    ),
    20550: (quafka.DescribeGroupLagRequest(groups=[_GROUP]), 0),
    20551: (quafka.DescribeGatewayRequest(), 0),
    20552: (quafka.DescribeCompactionRequest(topic=TOPIC), 0),
    20553: (quafka.DescribeOrgsRequest(orgs=None), 0),
    20554: (quafka.AlterOrgRequest(org="acme", create=True), 0),
}
"""For each API a request, with its version, that makes the handler send all its ops."""

OTHER_SAMPLES: dict[int, tuple[Message, int]] = {
    22: (producer_id.InitProducerIdRequest(transactional_id="x"), 4),
    78: (
        share_fetch.ShareFetchRequest(
            group_id=_GROUP,
            member_id="m",
            share_session_epoch=-1,
            topics=[
                share_fetch.ShareFetchTopic(
                    _TOPIC_ID, [share_fetch.ShareFetchPartition(0, _ACKNOWLEDGED)]
                )
            ],
        ),
        1,
    ),
}
"""Requests to the same APIs that make their handlers send other ops."""


class DirectClient:
    """A mesh client whose ops go straight to a broker's handlers, and are recorded."""

    connected = True
    seconds_disconnected = 0.0

    def __init__(self, state: BrokerState) -> None:
        self._state = state
        self.called: list[AnyOp] = []

    async def call(self, op: AnyOp, **_: Any) -> object:
        if op.code not in _BY_THE_READER:
            self.called.append(op)
        return await OPS[op.code](self._state, context(), op)

    def counters(self) -> Any:
        raise NotImplementedError


class _NotWaitedFor(Directory):
    """A copy that is not kept."""

    async def includes(self, incarnation: bytes, version: int, seconds: float) -> bool:
        return True


@asynccontextmanager
async def served() -> AsyncGenerator[tuple[DirectClient, RequestContext]]:
    async with running_state(MemoryDisk()) as state:
        topic, _ = await state.topics.create(ORG, TOPIC, 1)
        await state.topics.put_back(replace(topic, uuid=_TOPIC_ID))
        joins = ConsumerHeartbeat(
            _CONSUMER_GROUP, "m", 0, rebalance_timeout_ms=1_000, topics=[TOPIC], owned=[],
            is_whole=True,
        )  # fmt: skip
        assert not (await state.groups.consumer.heartbeat(ORG, joins)).error_code
        for name, epochs in ((_SHARE_GROUP, [0]), (_IDLE_SHARE_GROUP, [0, -1])):
            for epoch in epochs:
                shares = ConsumerHeartbeat(name, "m", epoch, topics=[TOPIC], is_whole=True)
                assert not (await state.groups.share.heartbeat(ORG, shares)).error_code
        client = DirectClient(state)
        link = BrokerLink(cast(MeshClient, client), ORG)
        responses = ResponseMemory(1 << 20)
        tenant = tenant_over(link, responses, ORG, cache_bytes=1 << 20)
        tenant.share_sessions.begin((_GROUP, "m"), INITIAL, 0, fetches=True)
        services = Services(
            APIS,
            only(tenant),
            (LISTENER,),
            Tracer(),
            1 << 20,
            RequestMemory(1 << 20),
            responses,
            EdgeSettings(),
            security_writer=SecurityWriter(_NotWaitedFor(), lambda broker, org: link),
        )
        try:
            yield (
                client,
                RequestContext(
                    services, ClientSession(tenant), 0, "test", 0, NO_SPAN, "/127.0.0.1"
                ),
            )
        finally:
            client.called = []
            await tenant.close()


async def _ops_of(key: int) -> list[AnyOp]:
    """Return the ops that the API's handler sends."""
    samples = [SAMPLES[key], *([OTHER_SAMPLES[key]] if key in OTHER_SAMPLES else [])]
    return [op for request, version in samples for op in await _ops_of_one(key, request, version)]


async def _ops_of_one(key: int, request: Message, version: int) -> list[AnyOp]:
    async with served() as (client, about):
        handling = asyncio.ensure_future(APIS[key].handle(request, replace(about, version=version)))
        with suppress(TimeoutError, NotImplementedError):
            # A JoinGroup is parked until its group is complete; its op is sent before.
            async with asyncio.timeout(0.1 if APIS[key].long_poll else 10.0):
                await handling
        return client.called


def _effects(op: AnyOp) -> Order:
    effects = EFFECTS[op.code]
    if isinstance(op, DescribeTopics) and op.auto_create:
        return Order(writes=SeenState.TOPICS)
    return effects


async def test_handlers_touch_no_more_than_their_apis_declare() -> None:
    reached = set(_BY_THE_READER)
    for key, api in APIS.items():
        declared = api.order
        for op in await _ops_of(key):
            reached.add(op.code)
            effects = _effects(op)
            undeclared = effects.writes & ~declared.writes
            undeclared |= effects.reads & ~(declared.reads | declared.writes)
            assert not undeclared, (api.name, op)
    assert set(OPS) - reached == _NO_API | _BETWEEN_SEVERAL_BROKERS


def test_ops_that_only_read_write_nothing() -> None:
    assert set(EFFECTS) == set(OPS) - _NO_API
    for kind in _every_op():
        if kind.reads and kind is not DescribeTopics:
            assert not EFFECTS[kind.code].writes, kind


def _every_op() -> list[type[AnyOp]]:
    return [kind for kind in OP_TYPES.values() if kind.code in EFFECTS]
