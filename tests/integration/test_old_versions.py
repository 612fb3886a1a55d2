"""Versions of clients before 0.11, which Kafka itself dropped in 4.0."""

from __future__ import annotations

import pytest

from quafka_proto.errors import ErrorCode
from quafka_proto.schema.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from quafka_proto.schema.topics import (
    CreatableTopic,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
)
from tests.support.kafka_calls import metadata, produce
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
