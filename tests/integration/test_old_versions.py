"""Versions of clients before 0.11, which Kafka itself dropped in 4.0."""

from __future__ import annotations

import time

import pytest

from quafka_proto.compression import Codec
from quafka_proto.errors import ErrorCode
from quafka_proto.message_sets import encode_message, iter_messages
from quafka_proto.record_codec import Record, build_batch, iter_records
from quafka_proto.records import split_batches
from quafka_proto.schema.fetch import FetchResponse, PartitionData
from quafka_proto.schema.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from quafka_proto.schema.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
)
from quafka_proto.schema.topics import (
    CreatableTopic,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
)
from tests.support.kafka_calls import (
    fetch,
    fetch_request,
    metadata,
    produce,
    produce_batch,
    produce_request,
    values,
)
from tests.support.raw_client import RawClient


@pytest.mark.parametrize(
    ("timestamp", "most", "offsets"),
    [
        (-1, 1, [3]),
        (-1, 9, [3, 0]),
        (-2, 9, [0]),
        (1_001, 1, [1]),
        (1_001, 2, [1, 0]),
        (9_999, 1, [3]),
        (-1, 0, []),
    ],
)
def test_list_offsets_0_answers_with_a_list(
    client: RawClient, topic: str, timestamp: int, most: int, offsets: list[int]
) -> None:
    produce(client, topic, b"a", b"b", b"c")
    found = list_offsets_0(client, topic, timestamp, most)
    assert (found.error_code, found.old_style_offsets) == (0, offsets)


def test_list_offsets_0_refuses_later_names_and_unknown_topics(
    client: RawClient, topic: str
) -> None:
    assert list_offsets_0(client, topic, -3, 1).error_code == ErrorCode.UNSUPPORTED_VERSION
    unknown = list_offsets_0(client, "no-such", -1, 1)
    assert unknown.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert unknown.old_style_offsets == []


def list_offsets_0(
    client: RawClient, topic: str, timestamp: int, most: int
) -> ListOffsetsPartitionResponse:
    partition = ListOffsetsPartition(partition_index=0, timestamp=timestamp, max_num_offsets=most)
    request = ListOffsetsRequest(topics=[ListOffsetsTopic(name=topic, partitions=[partition])])
    return client.call(request, ListOffsetsResponse, 0).topics[0].partitions[0]


@pytest.mark.parametrize("version", [0, 1])
def test_topics_are_created_and_deleted(client: RawClient, version: int) -> None:
    name = f"old-{version}"
    wanted = CreatableTopic(name=name, num_partitions=2, replication_factor=1)
    request = CreateTopicsRequest(topics=[wanted], timeout_ms=10_000)
    created = client.call(request, CreateTopicsResponse, version).topics[0]
    assert (created.name, created.error_code) == (name, 0)
    again = client.call(request, CreateTopicsResponse, version).topics[0]
    assert again.error_code == ErrorCode.TOPIC_ALREADY_EXISTS
    assert len(metadata(client, name, version).topics[0].partitions) == 2
    deletion = DeleteTopicsRequest(topic_names=[name], timeout_ms=10_000)
    deleted = client.call(deletion, DeleteTopicsResponse, version).responses[0]
    assert (deleted.name, deleted.error_code) == (name, 0)


# --- message sets ---------------------------------------------------------------------------


@pytest.mark.parametrize("version", [0, 1, 2])
def test_message_sets_are_stored_as_batches(client: RawClient, topic: str, version: int) -> None:
    magic = 1 if version == 2 else 0
    records = [Record(9, 1_000 + i, b"k", b"%d" % i, []) for i in range(3)]
    answer = produce_set(client, topic, version, *(encode_message(r, magic) for r in records))
    assert (answer.error_code, answer.base_offset) == (0, 0)
    (batch,) = batches(fetch(client, topic, 0))
    times = [1_000, 1_001, 1_002] if magic else [-1] * 3
    assert list(iter_records(batch)) == [
        Record(i, at, b"k", b"%d" % i, []) for i, at in enumerate(times)
    ]


def test_a_bad_message_set_does_not_spoil_the_others(client: RawClient, topic: str) -> None:
    good = encode_message(Record(0, 1, None, b"good", []), 1)
    request = produce_request(topic, b"")
    kept, refused = request.topic_data[0].partition_data[0], PartitionProduceData(index=1)
    kept.records, refused.records = good, good[:-1] + b"x"
    request.topic_data[0].partition_data = [refused, kept]
    answers = client.call(request, ProduceResponse, 2).responses[0].partition_responses
    codes = [(answer.index, answer.error_code) for answer in answers]
    assert codes == [(1, ErrorCode.CORRUPT_MESSAGE), (0, 0)]


@pytest.mark.parametrize("version", [0, 1, 2])
def test_batches_in_an_old_produce_are_refused(client: RawClient, topic: str, version: int) -> None:
    batch = build_batch([Record(0, 1, None, b"new", [])])
    answer = produce_set(client, topic, version, batch)
    assert answer.error_code == ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT


def test_old_produces_of_a_connection_keep_their_order(client: RawClient, topic: str) -> None:
    for i in range(60):
        messages = [encode_message(Record(0, 1, None, b"%d" % i, []), 1)] * (1 + i % 3)
        client.send(set_request(topic, *messages), 2)
    offsets: list[int] = []
    for _ in range(60):
        _, answer = client.receive(ProduceResponse, 2)
        offsets.append(answer.responses[0].partition_responses[0].base_offset)
    assert offsets == sorted(offsets)
    expected = [b"%d" % i for i in range(60) for _ in range(1 + i % 3)]
    assert values(fetch(client, topic, 0)) == expected


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4])
@pytest.mark.parametrize("version", range(4))
def test_old_fetches_get_message_sets(
    client: RawClient, topic: str, version: int, codec: Codec
) -> None:
    stored = [
        Record(0, 5_000 + i, b"k%d" % i, None if i == 3 else b"v", [("h", b"")]) for i in range(6)
    ]
    produce_batch(client, topic, build_batch(stored[:4], codec=codec))
    produce_batch(client, topic, build_batch(stored[4:], codec=codec))
    data = fetch_set(client, topic, 2, version)
    assert (data.error_code, data.high_watermark) == (0, 6)
    assert list(iter_messages(bytes_of(data))) == [
        Record(i, record.timestamp if version >= 2 else -1, record.key, record.value, [])
        for i, record in enumerate(stored)
        if i >= 2
    ]


@pytest.mark.parametrize("version", range(4))
def test_an_old_fetch_is_given_no_zstd(client: RawClient, topic: str, version: int) -> None:
    produce_batch(client, topic, build_batch([Record(0, 1, None, b"v", [])], codec=Codec.ZSTD))
    data = fetch_set(client, topic, 0, version)
    assert data.error_code == ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    assert bytes_of(data) == b""


def test_an_old_fetch_has_its_limits(client: RawClient, topic: str) -> None:
    values = [bytes(100_000)] * 5
    produce_batch(
        client, topic, build_batch([Record(0, 1, None, v, []) for v in values], codec=Codec.GZIP)
    )
    assert len(list(iter_messages(bytes_of(fetch_set(client, topic, 0, 2, 250_000))))) == 2
    assert len(list(iter_messages(bytes_of(fetch_set(client, topic, 4, 2, 10))))) == 1


def test_an_old_fetch_at_the_end_waits(client: RawClient, topic: str) -> None:
    began = time.monotonic()
    data = fetch_set(client, topic, 0, 0, max_wait_ms=300)
    assert time.monotonic() - began > 0.25
    assert (data.error_code, bytes_of(data)) == (0, b"")


def set_request(topic: str, *messages: bytes | bytearray) -> ProduceRequest:
    request = produce_request(topic, b"")
    request.topic_data[0].partition_data[0].records = b"".join(messages)
    return request


def produce_set(
    client: RawClient, topic: str, version: int, *messages: bytes | bytearray
) -> PartitionProduceResponse:
    answer = client.call(set_request(topic, *messages), ProduceResponse, version)
    return answer.responses[0].partition_responses[0]


def fetch_set(
    client: RawClient, topic: str, offset: int, version: int, limit: int = 1 << 20, **options: int
) -> PartitionData:
    request = fetch_request(topic, offset, partition_max_bytes=limit, **options)
    return client.call(request, FetchResponse, version).responses[0].partitions[0]


def bytes_of(data: PartitionData) -> bytes:
    assert not isinstance(data.records, list)
    return bytes(data.records or b"")


def batches(data: PartitionData) -> list[memoryview]:
    return [batch for _, batch in split_batches(bytes_of(data))]
