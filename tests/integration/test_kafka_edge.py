"""What the gateway answers on the wire, byte by byte where no real client would go."""

from __future__ import annotations

import threading
import time

import pytest

from quafka_proto.compression import Codec
from quafka_proto.errors import ErrorCode
from quafka_proto.record_codec import Record, build_batch
from quafka_proto.schema.api_versions import ApiVersionsRequest, ApiVersionsResponse
from quafka_proto.schema.fetch import (
    FetchResponse,
    FetchTopic,
)
from quafka_proto.schema.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from quafka_proto.schema.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
)
from quafka_proto.schema.produce import (
    PartitionProduceData,
    ProduceResponse,
    TopicProduceData,
)
from tests.support.cluster import Cluster
from tests.support.kafka_calls import (
    VERSION,
    fetch,
    fetch_request,
    metadata,
    produce,
    produce_request,
    values,
)
from tests.support.raw_client import RawClient


@pytest.fixture
def topic(request: pytest.FixtureRequest, shared_cluster: Cluster) -> str:
    """A topic of this test's own."""
    name: str = request.node.name.replace("[", "-").replace("]", "")
    with RawClient(shared_cluster.address) as client:
        assert metadata(client, name).topics[0].error_code == 0
    return name


@pytest.mark.parametrize("version", range(14))
def test_metadata_names_this_gateway_as_the_only_broker(
    shared_cluster: Cluster, client: RawClient, topic: str, version: int
) -> None:
    answer = metadata(client, topic, version)
    assert [(b.node_id, b.host, b.port) for b in answer.brokers] == [(0, *shared_cluster.address)]
    described = answer.topics[0]
    assert (described.error_code, described.name) == (0, topic)
    leaders = [(p.partition_index, p.leader_id) for p in described.partitions]
    assert leaders == [(0, 0)]
    assert any(described.topic_id) == (version >= 10)


def test_metadata_creates_only_where_asked(client: RawClient) -> None:
    request = MetadataRequest(
        topics=[MetadataRequestTopic(name="never-made")], allow_auto_topic_creation=False
    )
    answer = client.call(request, MetadataResponse, 12)
    assert answer.topics[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_produced_records_come_back_from_any_offset_of_their_batch(
    client: RawClient, topic: str
) -> None:
    assert produce(client, topic, b"a", b"b", b"c") == 0
    assert produce(client, topic, b"d") == 3
    for offset in range(3):
        assert values(fetch(client, topic, offset)) == [b"a", b"b", b"c", b"d"]
    data = fetch(client, topic, 3)
    assert values(data) == [b"d"]
    assert (data.high_watermark, data.last_stable_offset, data.log_start_offset) == (4, 4, 0)


@pytest.mark.long
def test_fetch_at_the_end_waits_and_returns_empty(client: RawClient, topic: str) -> None:
    produce(client, topic, b"a")
    began = time.monotonic()
    data = fetch(client, topic, 1, max_wait_ms=300)
    assert 0.25 < time.monotonic() - began < 10
    assert (data.error_code, values(data)) == (0, [])


@pytest.mark.long
def test_append_wakes_a_parked_fetch(
    shared_cluster: Cluster, client: RawClient, topic: str
) -> None:
    client.send(fetch_request(topic, 0, max_wait_ms=20_000), VERSION["fetch"])
    time.sleep(0.2)
    with RawClient(shared_cluster.address) as producer:
        began = time.monotonic()
        produce(producer, topic, b"wake")
    _, answer = client.receive(FetchResponse, VERSION["fetch"])
    assert time.monotonic() - began < 15
    assert values(answer.responses[0].partitions[0]) == [b"wake"]


def test_min_bytes_keeps_a_fetch_parked(
    shared_cluster: Cluster, client: RawClient, topic: str
) -> None:
    produce(client, topic, b"small")
    request = fetch_request(topic, 0, max_wait_ms=20_000, min_bytes=2_000)
    client.send(request, VERSION["fetch"])
    client.socket.settimeout(0.5)
    with pytest.raises(TimeoutError):
        client.socket.recv(1)
    client.socket.settimeout(10)
    with RawClient(shared_cluster.address) as producer:
        produce(producer, topic, b"x" * 3_000)
    _, answer = client.receive(FetchResponse, VERSION["fetch"])
    assert len(values(answer.responses[0].partitions[0])) == 2


def test_one_batch_is_returned_however_large(client: RawClient, topic: str) -> None:
    big = b"x" * 50_000
    produce(client, topic, big)
    produce(client, topic, b"next")
    assert values(fetch(client, topic, 0, max_bytes=10, partition_max_bytes=10)) == [big]


def test_offset_out_of_range_carries_the_watermarks(client: RawClient, topic: str) -> None:
    produce(client, topic, b"a", b"b")
    for offset in (-1, 3):
        data = fetch(client, topic, offset, max_wait_ms=5_000)
        assert data.error_code == ErrorCode.OFFSET_OUT_OF_RANGE
        assert (data.log_start_offset, data.high_watermark) == (0, 2)


def test_one_bad_partition_does_not_spoil_the_others(client: RawClient, topic: str) -> None:
    produce(client, topic, b"good")
    request = fetch_request(topic, 0, max_wait_ms=5_000)
    request.topics.append(
        FetchTopic(topic="no-such", partitions=list(request.topics[0].partitions))
    )
    answer = client.call(request, FetchResponse, VERSION["fetch"])
    good, bad = (t.partitions[0] for t in answer.responses)
    assert values(good) == [b"good"]
    assert bad.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@pytest.mark.parametrize(
    ("timestamp", "since", "offset"),
    [(-1, 1, 2), (-2, 1, 0), (-3, 7, 1), (-4, 8, 0), (-5, 9, -1), (-6, 11, -1), (1_001, 1, 1)],
)
def test_list_offsets_by_version(
    client: RawClient, topic: str, timestamp: int, since: int, offset: int
) -> None:
    produce(client, topic, b"a", b"b")
    for version in range(1, 12):
        partition = ListOffsetsPartition(partition_index=0, timestamp=timestamp)
        request = ListOffsetsRequest(topics=[ListOffsetsTopic(name=topic, partitions=[partition])])
        answer = client.call(request, ListOffsetsResponse, version)
        found = answer.topics[0].partitions[0]
        expected = (0, offset) if version >= since else (ErrorCode.UNSUPPORTED_VERSION, -1)
        assert (found.error_code, found.offset) == expected


def test_corrupt_batch_is_refused_and_its_neighbour_stored(client: RawClient, topic: str) -> None:
    request = produce_request(topic, b"a")
    corrupt = bytearray(request.topic_data[0].partition_data[0].records or b"")
    corrupt[-1] ^= 1
    request.topic_data.append(
        TopicProduceData(
            name="no-such", partition_data=[PartitionProduceData(index=0, records=corrupt)]
        )
    )
    metadata(client, f"{topic}-beside")  # creates it
    bad = PartitionProduceData(index=0, records=corrupt)
    request.topic_data.append(TopicProduceData(name=f"{topic}-beside", partition_data=[bad]))
    answer = client.call(request, ProduceResponse, VERSION["produce"])
    codes = [t.partition_responses[0].error_code for t in answer.responses]
    assert codes == [0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.CORRUPT_MESSAGE]
    assert values(fetch(client, topic, 0)) == [b"a"]


@pytest.mark.parametrize("version", [3, 7, 8, 12])
def test_a_partition_has_one_batch(client: RawClient, topic: str, version: int) -> None:
    request = produce_request(topic, b"a")
    partition = request.topic_data[0].partition_data[0]
    whole = bytes(partition.records or b"")
    partition.records = whole * 2
    (refused,) = client.call(request, ProduceResponse, version).responses[0].partition_responses
    assert refused.error_code == ErrorCode.INVALID_RECORD
    if version >= 8:
        assert refused.error_message == "a produce has one record batch for each partition"
    partition.records = whole
    request.topic_data *= 2
    answers = client.call(request, ProduceResponse, version).responses
    codes = {answer.partition_responses[0].error_code for answer in answers}
    assert codes == {ErrorCode.INVALID_REQUEST}
    assert values(fetch(client, topic, 0)) == []


@pytest.mark.parametrize("version", [3, 6, 7])
def test_zstd_needs_version_7(client: RawClient, topic: str, version: int) -> None:
    request = produce_request(topic, b"a")
    batch = build_batch([Record(0, 1_000, None, b"zstd", [])], codec=Codec.ZSTD)
    request.topic_data[0].partition_data[0].records = batch
    (answer,) = client.call(request, ProduceResponse, version).responses[0].partition_responses
    expected = 0 if version >= 7 else ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    assert answer.error_code == expected


def test_pipelined_requests_are_answered_in_order(client: RawClient, topic: str) -> None:
    sent: list[int] = []
    for i in range(40):
        sent.append(client.send(produce_request(topic, b"%d" % i), VERSION["produce"]))
        sent.append(client.send(ApiVersionsRequest(), 0))
    answered: list[int] = []
    offsets: list[int] = []
    for _ in range(40):
        correlation_id, produced = client.receive(ProduceResponse, VERSION["produce"])
        offsets.append(produced.responses[0].partition_responses[0].base_offset)
        answered.append(correlation_id)
        answered.append(client.receive(ApiVersionsResponse, 0)[0])
    assert answered == sent
    assert offsets == list(range(40))
    assert values(fetch(client, topic, 0)) == [b"%d" % i for i in range(40)]


def test_acks_0_is_stored_though_the_client_is_gone(
    shared_cluster: Cluster, client: RawClient, topic: str
) -> None:
    request = produce_request(topic, b"parting words")
    request.acks = 0
    with RawClient(shared_cluster.address) as hasty:
        hasty.send(request, VERSION["produce"])
    assert values(fetch(client, topic, 0, max_wait_ms=5_000)) == [b"parting words"]


def test_many_clients_at_once(shared_cluster: Cluster, topic: str) -> None:
    def work() -> None:
        with RawClient(shared_cluster.address) as mine:
            for i in range(20):
                produce(mine, topic, b"%d" % i)

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    with RawClient(shared_cluster.address) as reader:
        data = fetch(reader, topic, 0)
    assert data.high_watermark == 160
    assert len(values(data)) == 160
