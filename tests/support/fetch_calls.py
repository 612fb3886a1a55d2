"""Calls that show what fetch promises: topics of four partitions, and fetches that park."""

from __future__ import annotations

import time

from quafka_proto.schema.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)
from quafka_proto.schema.partitions import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
)
from quafka_proto.schema.produce import ProduceResponse
from quafka_proto.schema.topics import (
    CreatableTopic,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
)
from tests.support.kafka_calls import VERSION, produce_request
from tests.support.raw_client import RawClient

V = VERSION["fetch"]
PARTITIONS = 4
LONG = 20_000
"""Milliseconds that no test waits for."""


def create(client: RawClient, name: str) -> None:
    request = CreateTopicsRequest(
        topics=[CreatableTopic(name=name, num_partitions=PARTITIONS, replication_factor=1)],
        timeout_ms=5_000,
    )
    answer = client.call(request, CreateTopicsResponse, 5)
    assert answer.topics[0].error_code == 0


def delete(client: RawClient, name: str) -> None:
    request = DeleteTopicsRequest(topic_names=[name], timeout_ms=5_000)
    assert client.call(request, DeleteTopicsResponse, 5).responses[0].error_code == 0


def put(client: RawClient, topic: str, *records: bytes, partition: int = 0) -> int:
    request = produce_request(topic, *records, partition=partition)
    answer = client.call(request, ProduceResponse, VERSION["produce"])
    produced = answer.responses[0].partition_responses[0]
    assert produced.error_code == 0
    return produced.base_offset


def delete_records(client: RawClient, topic: str, offset: int) -> None:
    partition = DeleteRecordsPartition(partition_index=0, offset=offset)
    request = DeleteRecordsRequest(
        topics=[DeleteRecordsTopic(name=topic, partitions=[partition])], timeout_ms=5_000
    )
    answer = client.call(request, DeleteRecordsResponse, 2)
    assert answer.topics[0].partitions[0].error_code == 0


def part(index: int = 0, offset: int = 0, max_bytes: int = 1 << 20, **more: int) -> FetchPartition:
    return FetchPartition(
        partition=index,
        fetch_offset=offset,
        partition_max_bytes=max_bytes,
        current_leader_epoch=more.get("leader_epoch", -1),
        last_fetched_epoch=more.get("last_fetched_epoch", -1),
    )


def request_of(
    topic: str | bytes,
    *parts: FetchPartition,
    wait: int = 0,
    min_bytes: int = 1,
    max_bytes: int = 1 << 20,
    session: tuple[int, int] = (0, -1),
    isolation: int = 0,
) -> FetchRequest:
    """One topic, by name or by id."""
    wanted = FetchTopic(partitions=list(parts))
    if isinstance(topic, bytes):
        wanted.topic_id = topic
    else:
        wanted.topic = topic
    return FetchRequest(
        max_wait_ms=wait,
        min_bytes=min_bytes,
        max_bytes=max_bytes,
        session_id=session[0],
        session_epoch=session[1],
        isolation_level=isolation,
        topics=[wanted] if parts else [],
    )


def get(client: RawClient, request: FetchRequest, version: int = V) -> list[PartitionData]:
    answer = client.call(request, FetchResponse, version)
    assert answer.error_code == 0
    return [partition for topic in answer.responses for partition in topic.partitions]


def one(client: RawClient, topic: str, partition: FetchPartition, wait: int = 0) -> PartitionData:
    (data,) = get(client, request_of(topic, partition, wait=wait))
    return data


def woken(client: RawClient, version: int = V) -> list[PartitionData]:
    """What a parked fetch is answered with; it must not have waited for its deadline."""
    began = time.monotonic()
    _, answer = client.receive(FetchResponse, version)
    assert time.monotonic() - began < 5
    assert answer.error_code == 0
    return [partition for topic in answer.responses for partition in topic.partitions]


def park(client: RawClient, request: FetchRequest, version: int = V) -> None:
    client.send(request, version)
    time.sleep(0.2)
