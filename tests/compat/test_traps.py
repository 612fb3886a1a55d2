"""The traps that real clients set, one test for each.

On the wire where the API is served today; where it is not yet, on the codec: the schema can say
what the client needs, and the bytes are those.
"""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import TypeVar

import pytest

from quafka_proto.codec import decode, encode
from quafka_proto.errors import ErrorCode
from quafka_proto.headers import decode_request_header, encode_request
from quafka_proto.message import Message
from quafka_proto.record_codec import Record, build_batch
from quafka_proto.records import rebase
from quafka_proto.schema.api_versions import ApiVersionsRequest, ApiVersionsResponse
from quafka_proto.schema.cluster import DescribeClusterResponse
from quafka_proto.schema.configs import (
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)
from quafka_proto.schema.fetch import FetchableTopicResponse, FetchResponse
from quafka_proto.schema.group_admin import DescribeGroupsRequest, DescribeGroupsResponse
from quafka_proto.schema.offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
)
from quafka_proto.schema.partitions import (
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
)
from quafka_proto.schema.produce import ProduceResponse
from quafka_proto.schema.topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from tests.support.cluster import Cluster
from tests.support.kafka_calls import (
    VERSION,
    fetch,
    fetch_request,
    metadata,
    produce,
    produce_batch,
    produce_request,
    values,
)
from tests.support.raw_client import RawClient

M = TypeVar("M", bound=Message)
NOT_REQUESTED = -2_147_483_648
TOPIC_CONFIG, DEFAULT_CONFIG = 1, 5


@pytest.fixture
def topic(request: pytest.FixtureRequest, client: RawClient) -> str:
    """A topic of this test's own."""
    name = re.sub(r"\W", "-", request.node.name)
    assert metadata(client, name).topics[0].error_code == 0
    return name


def test_trap_01_no_tagged_fields_in_api_versions_3(client: RawClient) -> None:
    client.send(ApiVersionsRequest(), 3)
    frame = client.receive_frame()
    answer = decode(ApiVersionsResponse, 3, frame, 4)
    size = 4 + 2 + 1 + len(answer.api_keys) * (3 * 2 + 1) + 4 + 1
    assert len(answer.api_keys) < 127  # their number takes one byte
    assert (len(frame), frame[-1]) == (size, 0)


def test_features_are_in_api_versions_4(client: RawClient) -> None:
    answer = client.call(ApiVersionsRequest(), ApiVersionsResponse, 4)
    levels = {"group.version": 1, "share.version": 1, "transaction.version": 2}
    supported, finalized = answer.supported_features, answer.finalized_features
    assert {each.name: each.max_version for each in supported} == levels
    assert {each.name: each.max_version_level for each in finalized} == levels
    assert answer.finalized_features_epoch == 0  # clients ignore features of epoch -1


def test_trap_01_kcat_before_librdkafka_2_1(shared_cluster: Cluster, kcat: str) -> None:
    listing = subprocess.run(
        [kcat, "-L", "-b", shared_cluster.bootstrap], check=True, timeout=30, capture_output=True
    )
    assert shared_cluster.bootstrap.encode() in listing.stdout


@pytest.mark.parametrize("version", [5, 99, 32_767, -1])
def test_trap_02_unknown_api_versions_version_gets_error_35_in_a_v0_body(
    client: RawClient, version: int
) -> None:
    body = b"\x00\x12" + version.to_bytes(2, "big", signed=True) + b"\x00\x00\x00\x07\xff\xff\x00"
    client.socket.sendall(len(body).to_bytes(4, "big") + body)
    correlation_id, answer = client.receive(ApiVersionsResponse, 0)
    assert correlation_id == 7
    assert answer.error_code == ErrorCode.UNSUPPORTED_VERSION
    assert [(key.min_version, key.max_version) for key in answer.api_keys if key.api_key == 18] == [
        (0, 4)
    ]


@pytest.mark.parametrize("version", range(5))
def test_trap_03_produce_is_advertised_from_0(client: RawClient, version: int) -> None:
    answer = client.call(ApiVersionsRequest(), ApiVersionsResponse, version)
    offered = {key.api_key: (key.min_version, key.max_version) for key in answer.api_keys}
    assert offered[0] == (0, 13)  # KAFKA-18659


@pytest.mark.long
def test_trap_04_topics_have_stable_ids(cluster: Cluster) -> None:
    with RawClient(cluster.address) as client:
        topic_id = metadata(client, "t").topics[0].topic_id
        assert any(topic_id)
        request = produce_request("", b"a")
        request.topic_data[0].topic_id = topic_id
        produced = client.call(request, ProduceResponse, 13).responses[0]
        assert (produced.topic_id, produced.partition_responses[0].error_code) == (topic_id, 0)
    cluster.restart()
    with RawClient(cluster.address) as client:
        for version in range(10, 14):
            assert metadata(client, "t", version).topics[0].topic_id == topic_id
        for version in range(13, 19):
            found = fetch_by_id(client, topic_id, version)
            assert (found.topic_id, values(found.partitions[0])) == (topic_id, [b"a"])


def test_trap_04_an_unknown_id_gets_error_100_and_is_echoed(client: RawClient) -> None:
    unknown = b"\x01" * 16
    for version in range(13, 19):
        found = fetch_by_id(client, unknown, version)
        assert found.topic_id == unknown
        assert found.partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_ID
    request = produce_request("", b"a")
    request.topic_data[0].topic_id = unknown
    produced = client.call(request, ProduceResponse, 13).responses[0]
    assert produced.topic_id == unknown
    assert produced.partition_responses[0].error_code == ErrorCode.UNKNOWN_TOPIC_ID


def fetch_by_id(client: RawClient, topic_id: bytes, version: int) -> FetchableTopicResponse:
    request = fetch_request("", 0)
    request.topics[0].topic_id = topic_id
    return client.call(request, FetchResponse, version).responses[0]


@pytest.mark.parametrize("version", [5, 6, 7])
def test_trap_05_create_topics_has_no_null_configs(client: RawClient, version: int) -> None:
    good, bad = CreatableTopic(name=f"trap-5-{version}"), CreatableTopic(name="not/a/name")
    for wanted in (good, bad):
        wanted.num_partitions = wanted.replication_factor = -1
    request = CreateTopicsRequest(topics=[good, bad], timeout_ms=10_000)
    answer = client.call(request, CreateTopicsResponse, version)
    assert [topic.error_code == 0 for topic in answer.topics] == [True, False]
    assert all(topic.configs is not None for topic in answer.topics)


def test_trap_05_eligible_leader_replicas_can_be_empty_and_not_null() -> None:
    partition = DescribeTopicPartitionsResponsePartition(
        eligible_leader_replicas=[], last_known_elr=[]
    )
    topic = DescribeTopicPartitionsResponseTopic(name="t", partitions=[partition])
    again = over_the_wire(DescribeTopicPartitionsResponse(topics=[topic]), 0)
    assert again.topics[0].partitions[0].eligible_leader_replicas == []


def committed(
    client: RawClient, topic: str, group: str, version: int
) -> OffsetFetchResponsePartition | OffsetFetchResponsePartitions:
    """What OffsetFetch says of a topic's first partition."""
    request = OffsetFetchRequest(
        group_id=group, topics=[OffsetFetchRequestTopic(name=topic, partition_indexes=[0])]
    )
    if version >= 8:
        topic_id = metadata(client, topic).topics[0].topic_id
        asked = OffsetFetchRequestTopics(name=topic, topic_id=topic_id, partition_indexes=[0])
        request.groups = [OffsetFetchRequestGroup(group_id=group, topics=[asked])]
    answer = client.call(request, OffsetFetchResponse, version)
    if version < 8:
        assert answer.error_code == 0
        return answer.topics[0].partitions[0]
    assert answer.groups[0].error_code == 0
    return answer.groups[0].topics[0].partitions[0]


@pytest.mark.parametrize("version", range(11))
def test_trap_06_offset_fetch_says_minus_1_without_an_error(
    client: RawClient, topic: str, version: int
) -> None:
    found = committed(client, topic, "nobody", version)
    assert (found.committed_offset, found.metadata, found.error_code) == (-1, "", 0)
    assert found.committed_leader_epoch == -1


def test_trap_07_client_id_is_never_a_compact_string() -> None:
    frame = b"".join(encode_request(5, "me", ApiVersionsRequest(), 3))[4:]
    assert frame[:13] == b"\x00\x12\x00\x03\x00\x00\x00\x05\x00\x02me\x00"
    header, at = decode_request_header(frame)
    assert (header.client_id, at) == ("me", 13)


def test_trap_08_acks_0_gets_no_response(client: RawClient, topic: str) -> None:
    request = produce_request(topic, b"quiet")
    request.acks = 0
    client.send(request, VERSION["produce"])
    data = fetch(client, topic, 0, max_wait_ms=5_000)  # the next answer on this connection
    assert values(data) == [b"quiet"]


@pytest.mark.parametrize("version", range(8, 14))
def test_trap_09_authorized_operations_not_requested(
    client: RawClient, topic: str, version: int
) -> None:
    answer = metadata(client, topic, version)
    assert answer.topics[0].topic_authorized_operations == NOT_REQUESTED
    assert answer.cluster_authorized_operations == NOT_REQUESTED


def test_trap_09_of_groups_and_clusters(client: RawClient) -> None:
    groups = client.call(DescribeGroupsRequest(groups=["nobody"]), DescribeGroupsResponse, 5)
    assert groups.groups[0].authorized_operations == NOT_REQUESTED
    cluster = over_the_wire(DescribeClusterResponse(), 2)
    assert cluster.cluster_authorized_operations == NOT_REQUESTED


def test_trap_10_magic_is_checked_for_each_batch(client: RawClient, topic: str) -> None:
    good, old = (build_batch([Record(0, 1, None, b"v", [])]) for _ in range(2))
    old[16] = 1
    for records in (old, good + old, good + good):
        request = produce_request(topic, b"")
        request.topic_data[0].partition_data[0].records = records
        answer = client.call(request, ProduceResponse, VERSION["produce"])
        code = answer.responses[0].partition_responses[0].error_code
        assert code == ErrorCode.INVALID_RECORD, "one batch of format 2, as in Kafka"
    assert fetch(client, topic, 0).high_watermark == 0


def test_trap_10_base_offset_and_leader_epoch_lie_outside_the_crc(
    client: RawClient, topic: str
) -> None:
    batch = build_batch([Record(0, 1, None, b"v", [])])
    rebase(batch, 0, 5)
    assert produce_batch(client, topic, batch) == 0
    assert produce_batch(client, topic, batch) == 1
    assert values(fetch(client, topic, 0)) == [b"v", b"v"]
    rebase(batch, 77, 5)
    request = produce_request(topic, b"")
    request.topic_data[0].partition_data[0].records = batch
    answer = client.call(request, ProduceResponse, VERSION["produce"])
    code = answer.responses[0].partition_responses[0].error_code
    assert code == ErrorCode.INVALID_RECORD, "a client's batch begins at offset 0 (UnifiedLog)"


@pytest.mark.parametrize("version", range(2, 11))
def test_trap_11_commit_metadata_comes_back(client: RawClient, topic: str, version: int) -> None:
    text = "métadonnées " * 250
    topic_id = metadata(client, topic).topics[0].topic_id
    part = OffsetCommitRequestPartition(committed_offset=5, committed_metadata=text)
    of = OffsetCommitRequestTopic(name=topic, topic_id=topic_id, partitions=[part])
    request = OffsetCommitRequest(group_id=topic, topics=[of])
    answer = client.call(request, OffsetCommitResponse, version)
    assert answer.topics[0].partitions[0].error_code == 0
    found = committed(client, topic, topic, version)
    assert (found.committed_offset, found.metadata) == (5, text)


def test_trap_11_config_entries_have_sources(client: RawClient) -> None:
    config = CreatableTopicConfig(name="retention.ms", value="86400000")
    wanted = CreatableTopic(
        name="trap-11", num_partitions=1, replication_factor=1, configs=[config]
    )
    request = CreateTopicsRequest(topics=[wanted], timeout_ms=10_000)
    configs = client.call(request, CreateTopicsResponse, 7).topics[0].configs
    found = {each.name: (each.value, each.config_source) for each in configs or []}
    assert found["retention.ms"] == ("86400000", TOPIC_CONFIG)
    assert found["cleanup.policy"] == ("delete", DEFAULT_CONFIG)


@pytest.mark.parametrize("version", range(1, 5))
def test_trap_11_described_configs_have_sources(version: int) -> None:
    synonym = DescribeConfigsSynonym(name="retention.ms", value="1", source=TOPIC_CONFIG)
    entry = DescribeConfigsResourceResult(
        name="retention.ms", value="1", config_source=TOPIC_CONFIG, synonyms=[synonym]
    )
    result = DescribeConfigsResult(resource_type=2, resource_name="t", configs=[entry])
    again = over_the_wire(DescribeConfigsResponse(results=[result]), version)
    found = again.results[0].configs[0]
    assert (found.config_source, found.synonyms[0].source) == (TOPIC_CONFIG, TOPIC_CONFIG)


@pytest.mark.long
def test_trap_11_auto_created_topics_have_the_configured_partitions(tmp_path: Path) -> None:
    running = Cluster(tmp_path, broker_args=("--num-partitions", "4"))
    with running as cluster, RawClient(cluster.address) as client:
        assert len(metadata(client, "made-by-asking").topics[0].partitions) == 4


def test_trap_12_fetch_v12_is_served(client: RawClient, topic: str) -> None:
    """librdkafka 2.6.0 sends it whatever is advertised (librdkafka#4870)."""
    produce(client, topic, b"v")
    answer = client.call(fetch_request(topic, 0), FetchResponse, 12)
    assert values(answer.responses[0].partitions[0]) == [b"v"]


def over_the_wire(message: M, version: int) -> M:
    """Encoded and decoded again."""
    return decode(type(message), version, b"".join(encode(message, version)))
