"""The APIs of clusters' administrators in every version that is advertised, over the wire."""

from __future__ import annotations

import shutil

import pytest

from quafka_proto.errors import ErrorCode
from quafka_proto.record_codec import Record, build_batch
from quafka_proto.schema.acls import (
    AclCreation,
    CreateAclsRequest,
    CreateAclsResponse,
    DeleteAclsFilter,
    DeleteAclsRequest,
    DeleteAclsResponse,
    DescribeAclsRequest,
    DescribeAclsResponse,
)
from quafka_proto.schema.cluster import DescribeClusterRequest, DescribeClusterResponse
from quafka_proto.schema.log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopic,
    DescribableLogDirTopic,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
)
from quafka_proto.schema.metadata import (
    AUTHORIZED_OPERATIONS_UNKNOWN,
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
)
from quafka_proto.schema.partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    TopicRequest,
)
from quafka_proto.schema.quorum import (
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    QuorumPartitionData,
    TopicData,
)
from quafka_proto.schema.quotas import DescribeClientQuotasRequest, DescribeClientQuotasResponse
from quafka_proto.schema.replicas import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ElectLeadersRequest,
    ElectLeadersResponse,
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignableTopic,
    TopicPartitions,
)
from quafka_proto.schema.sasl import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)
from quafka_proto.schema.scram import (
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    UserName,
)
from quafka_proto.schema.transaction_admin import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    ListTransactionsRequest,
    ListTransactionsResponse,
)
from quafka_proto.schema.transaction_admin import ProducersTopicRequest as ProducersTopic
from tests.support.cluster import Cluster
from tests.support.kafka_calls import create_topic, metadata, produce, produce_batch
from tests.support.raw_client import RawClient

E = ErrorCode
TOPIC_OPERATIONS = 0b1101_1111_1000
CLUSTER_OPERATIONS = 0b1_1111_1010_0000
NOT_ASKED = AUTHORIZED_OPERATIONS_UNKNOWN


# --- the cluster and its topics -------------------------------------------------------------


@pytest.mark.parametrize("version", range(3))
def test_describe_cluster(client: RawClient, shared_cluster: Cluster, version: int) -> None:
    cluster = metadata(client, "any").cluster_id
    request = DescribeClusterRequest(include_cluster_authorized_operations=True)
    answer = client.call(request, DescribeClusterResponse, version)
    assert (answer.error_code, answer.cluster_id, answer.controller_id) == (0, cluster, 0)
    (broker,) = answer.brokers
    assert (broker.broker_id, f"{broker.host}:{broker.port}") == (0, shared_cluster.bootstrap)
    assert answer.cluster_authorized_operations == CLUSTER_OPERATIONS
    plain = client.call(DescribeClusterRequest(), DescribeClusterResponse, version)
    assert plain.cluster_authorized_operations == NOT_ASKED
    if version >= 1:
        for endpoint, code in ((2, E.MISMATCHED_ENDPOINT_TYPE), (3, E.UNSUPPORTED_ENDPOINT_TYPE)):
            wrong = DescribeClusterRequest(endpoint_type=endpoint)
            refused = client.call(wrong, DescribeClusterResponse, version)
            assert (refused.error_code, refused.brokers) == (code, [])


@pytest.mark.parametrize("version", range(8, 14))
def test_operations_in_metadata(client: RawClient, version: int) -> None:
    create_topic(client, f"operations-{version}")
    for asked in (False, True):
        request = MetadataRequest(
            topics=[MetadataRequestTopic(name=f"operations-{version}")],
            include_topic_authorized_operations=asked,
        )
        if version <= 10:
            request.include_cluster_authorized_operations = asked
        answer = client.call(request, MetadataResponse, version)
        topic = TOPIC_OPERATIONS if asked else NOT_ASKED
        assert answer.topics[0].topic_authorized_operations == topic
        if version <= 10:
            cluster = CLUSTER_OPERATIONS if asked else NOT_ASKED
            assert answer.cluster_authorized_operations == cluster


def describe(
    client: RawClient, names: list[str], limit: int = 2_000, cursor: tuple[str, int] | None = None
) -> DescribeTopicPartitionsResponse:
    request = DescribeTopicPartitionsRequest(
        topics=[TopicRequest(name=name) for name in names], response_partition_limit=limit
    )
    if cursor is not None:
        request.cursor = Cursor(topic_name=cursor[0], partition_index=cursor[1])
    return client.call(request, DescribeTopicPartitionsResponse, 0)


def parts(answer: DescribeTopicPartitionsResponse) -> list[tuple[str, list[int]]]:
    return [(t.name or "", [p.partition_index for p in t.partitions]) for t in answer.topics]


def cursor_of(answer: DescribeTopicPartitionsResponse) -> tuple[str, int] | None:
    cursor = answer.next_cursor
    return None if cursor is None else (cursor.topic_name, cursor.partition_index)


def test_describe_topic_partitions_page_by_page(client: RawClient) -> None:
    counts = {"pages-a": 3, "pages-b": 1, "pages-c": 2}
    for name, count in counts.items():
        create_topic(client, name, count)
    names = [*reversed(counts), "pages-a", "pages-none"]
    whole = describe(client, names)
    every = [*((name, list(range(count))) for name, count in counts.items()), ("pages-none", [])]
    assert (parts(whole), cursor_of(whole)) == (every, None)
    assert [t.error_code for t in whole.topics] == [0, 0, 0, E.UNKNOWN_TOPIC_OR_PARTITION]
    topic = whole.topics[0]
    assert topic.topic_id == metadata(client, "pages-a").topics[0].topic_id
    assert topic.topic_authorized_operations == TOPIC_OPERATIONS
    assert (topic.partitions[0].leader_id, topic.partitions[0].isr_nodes) == (0, [0])
    assert topic.partitions[0].eligible_leader_replicas == []

    for limit in (-1, 1, 2, 3, 4, 5, 6):
        seen: dict[str, list[int]] = {}
        cursor = None
        for _ in range(10):
            page = describe(client, names, limit, cursor)
            assert sum(len(indexes) for _, indexes in parts(page)) <= max(1, limit)
            for name, indexes in parts(page):
                seen.setdefault(name, []).extend(indexes)
            cursor = cursor_of(page)
            if cursor is None:
                break
        assert [*seen.items()] == every

    everything = parts(describe(client, [], cursor=("pages-b", 0)))
    assert everything[:2] == every[1:3]


@pytest.mark.parametrize(("name", "partition"), [("pages-elsewhere", 0), ("page", -1)])
def test_a_cursor_that_cannot_be(client: RawClient, name: str, partition: int) -> None:
    create_topic(client, f"page{partition}")
    answer = describe(client, [f"page{partition}", "page"], cursor=(name, partition))
    assert {t.error_code for t in answer.topics} == {E.INVALID_REQUEST}
    assert answer.next_cursor is None


# --- the log's folder -----------------------------------------------------------------------


@pytest.mark.parametrize("version", range(6))
def test_describe_log_dirs(client: RawClient, shared_cluster: Cluster, version: int) -> None:
    name = f"dirs-{version}"
    create_topic(client, name, 2)

    def describe(*wanted: tuple[str, list[int]]) -> DescribeLogDirsResult:
        topics = [DescribableLogDirTopic(topic=t, partitions=p) for t, p in wanted] or None
        request = DescribeLogDirsRequest(topics=topics)
        answer = client.call(request, DescribeLogDirsResponse, version)
        assert answer.error_code == 0
        (result,) = answer.results
        assert (result.error_code, result.log_dir) == (0, str(shared_cluster.data / "wal"))
        return result

    def sizes(result: DescribeLogDirsResult) -> dict[tuple[str, int], int]:
        return {
            (topic.name, partition.partition_index): partition.partition_size
            for topic in result.topics
            for partition in topic.partitions
        }

    assert sizes(describe((name, [0, 1, 2]), ("none", [0]))) == {(name, 0): 0, (name, 1): 0}
    batch = build_batch([Record(0, 1_000, None, b"x" * 500, [])])
    produce_batch(client, name, batch)
    every = describe()
    assert sizes(every)[name, 0] == len(batch)
    assert sizes(describe((name, [0]))) == {(name, 0): len(batch)}
    if version >= 4:
        assert every.total_bytes == shutil.disk_usage(shared_cluster.data).total
        assert 0 < every.usable_bytes < every.total_bytes


@pytest.mark.parametrize("version", range(3))
def test_alter_replica_log_dirs(client: RawClient, shared_cluster: Cluster, version: int) -> None:
    name = f"folders-{version}"
    create_topic(client, name)

    def move(path: str, *partitions: int) -> list[int]:
        topic = AlterReplicaLogDirTopic(name=name, partitions=[*partitions])
        request = AlterReplicaLogDirsRequest(dirs=[AlterReplicaLogDir(path=path, topics=[topic])])
        answer = client.call(request, AlterReplicaLogDirsResponse, version)
        return [part.error_code for part in answer.results[0].partitions]

    assert move("/elsewhere", 0, 1) == [E.LOG_DIR_NOT_FOUND, E.UNKNOWN_TOPIC_OR_PARTITION]
    assert move(str(shared_cluster.data / "wal"), 0) == [0]


# --- replicas -------------------------------------------------------------------------------


@pytest.mark.parametrize("version", range(3))
def test_elect_leaders(client: RawClient, version: int) -> None:
    name = f"elect-{version}"
    create_topic(client, name)
    request = ElectLeadersRequest(topic_partitions=[TopicPartitions(topic=name, partitions=[0, 1])])
    answer = client.call(request, ElectLeadersResponse, version)
    (result,) = answer.replica_election_results
    codes = [part.error_code for part in result.partition_result]
    assert codes == [E.ELECTION_NOT_NEEDED, E.UNKNOWN_TOPIC_OR_PARTITION]
    everything = ElectLeadersRequest(topic_partitions=None)
    answer = client.call(everything, ElectLeadersResponse, version)
    assert answer.replica_election_results == []
    if version >= 1:
        request.election_type = 1
        answer = client.call(request, ElectLeadersResponse, version)
        assert answer.replica_election_results == [result]
        request.election_type = 2
        answer = client.call(request, ElectLeadersResponse, version)
        assert answer.error_code == E.INVALID_REQUEST


@pytest.mark.parametrize("version", range(2))
def test_reassignments(client: RawClient, version: int) -> None:
    name = f"move-{version}"
    create_topic(client, name, 4)
    wanted: list[list[int] | None] = [[0], None, [1], [], [0]]
    request = AlterPartitionReassignmentsRequest(
        topics=[
            ReassignableTopic(
                name=name,
                partitions=[
                    ReassignablePartition(partition_index=n, replicas=replicas)
                    for n, replicas in enumerate(wanted)
                ],
            )
        ]
    )
    answer = client.call(request, AlterPartitionReassignmentsResponse, version)
    assert [part.error_code for part in answer.responses[0].partitions] == [
        0, E.NO_REASSIGNMENT_IN_PROGRESS, E.INVALID_REPLICA_ASSIGNMENT,
        E.INVALID_REPLICA_ASSIGNMENT, E.UNKNOWN_TOPIC_OR_PARTITION,
    ]  # fmt: skip
    ongoing = client.call(
        ListPartitionReassignmentsRequest(), ListPartitionReassignmentsResponse, 0
    )
    assert (ongoing.error_code, ongoing.topics) == (0, [])


@pytest.mark.parametrize("version", range(3))
def test_describe_quorum(client: RawClient, shared_cluster: Cluster, version: int) -> None:
    topics = [
        TopicData(topic_name=name, partitions=[QuorumPartitionData(partition_index=0)])
        for name in ("__cluster_metadata", "another")
    ]
    answer = client.call(DescribeQuorumRequest(topics=topics), DescribeQuorumResponse, version)
    metadata_log, other = (topic.partitions[0] for topic in answer.topics)
    assert (answer.error_code, metadata_log.error_code, metadata_log.leader_id) == (0, 0, 0)
    assert [voter.replica_id for voter in metadata_log.current_voters] == [0]
    assert metadata_log.high_watermark == metadata_log.current_voters[0].log_end_offset > 0
    assert other.error_code == E.UNKNOWN_TOPIC_OR_PARTITION
    if version >= 2:
        (listener,) = answer.nodes[0].listeners
        assert f"{listener.host}:{listener.port}" == shared_cluster.bootstrap


# --- producers, and what is not here --------------------------------------------------------


def test_describe_producers(client: RawClient) -> None:
    create_topic(client, "producers")
    produce(client, "producers", b"of nobody")
    for sequence in (0, 2):
        records = [Record(n, 5_000 + n, None, b"x", []) for n in range(2)]
        batch = build_batch(records, producer_id=7, producer_epoch=1, base_sequence=sequence)
        produce_batch(client, "producers", batch)
    request = DescribeProducersRequest(
        topics=[ProducersTopic(name="producers", partition_indexes=[0, 1])]
    )
    answer = client.call(request, DescribeProducersResponse, 0)
    found, missing = answer.topics[0].partitions
    (one,) = found.active_producers
    assert (one.producer_id, one.producer_epoch, one.last_sequence) == (7, 1, 3)
    assert (one.last_timestamp, one.current_txn_start_offset) == (5_001, -1)
    assert missing.error_code == E.UNKNOWN_TOPIC_OR_PARTITION


@pytest.mark.parametrize("version", range(4))
def test_there_are_no_acls(client: RawClient, version: int) -> None:
    any_ = 1
    ask = DescribeAclsRequest(
        resource_type_filter=any_, resource_name_filter=None, principal_filter=None,
        host_filter=None, operation=any_, permission_type=any_,
    )  # fmt: skip
    described = client.call(ask, DescribeAclsResponse, version)
    assert (described.error_code, described.resources) == (E.SECURITY_DISABLED, [])
    acl = AclCreation(
        resource_type=2, resource_name="t", principal="User:a", host="*", operation=2,
        permission_type=3,
    )  # fmt: skip
    made = client.call(CreateAclsRequest(creations=[acl, acl]), CreateAclsResponse, version)
    assert [each.error_code for each in made.results] == [E.SECURITY_DISABLED] * 2
    filter_ = DeleteAclsFilter(
        resource_type_filter=any_, resource_name_filter=None, principal_filter=None,
        host_filter=None, operation=any_, permission_type=any_,
    )  # fmt: skip
    gone = client.call(DeleteAclsRequest(filters=[filter_]), DeleteAclsResponse, version)
    assert [each.error_code for each in gone.filter_results] == [E.SECURITY_DISABLED]


@pytest.mark.parametrize("version", range(3))
def test_nobody_logs_in(client: RawClient, version: int) -> None:
    """A client that has credentials is told that they are not asked for."""
    hello = SaslHandshakeRequest(mechanism="PLAIN")
    shaken = client.call(hello, SaslHandshakeResponse, min(version, 1))
    assert (shaken.error_code, shaken.mechanisms) == (E.ILLEGAL_SASL_STATE, [])
    secret = SaslAuthenticateRequest(auth_bytes=b"\0ann\0secret")
    known = client.call(secret, SaslAuthenticateResponse, version)
    assert known.error_code == E.ILLEGAL_SASL_STATE
    assert "does not use SASL" in (known.error_message or "")


@pytest.mark.parametrize("version", range(3))
def test_unknown_transactions(client: RawClient, version: int) -> None:
    request = ListTransactionsRequest(state_filters=["Ongoing", "Odd"])
    listed = client.call(request, ListTransactionsResponse, version)
    assert (listed.error_code, listed.transaction_states) == (0, [])
    assert listed.unknown_state_filters == ["Odd"]
    one = DescribeTransactionsRequest(transactional_ids=["t"])
    (described,) = client.call(one, DescribeTransactionsResponse, 0).transaction_states
    code = E.TRANSACTIONAL_ID_NOT_FOUND
    assert (described.error_code, described.transactional_id) == (code, "t")


@pytest.mark.parametrize("version", range(2))
def test_there_are_no_quotas_and_no_users(client: RawClient, version: int) -> None:
    quotas = client.call(DescribeClientQuotasRequest(), DescribeClientQuotasResponse, version)
    assert (quotas.error_code, quotas.entries) == (0, [])
    everybody = DescribeUserScramCredentialsRequest(users=None)
    users = client.call(everybody, DescribeUserScramCredentialsResponse, 0)
    assert (users.error_code, users.results) == (0, [])
    ann = DescribeUserScramCredentialsRequest(users=[UserName(name="ann")])
    (missing,) = client.call(ann, DescribeUserScramCredentialsResponse, 0).results
    assert (missing.user, missing.error_code) == ("ann", E.RESOURCE_NOT_FOUND)
