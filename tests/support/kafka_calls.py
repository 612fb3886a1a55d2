"""Single Kafka calls over a RawClient, with the arguments that tests vary."""

from __future__ import annotations

from quafka_proto.record_codec import Record, build_batch, iter_records
from quafka_proto.schema import share_fetch
from quafka_proto.schema.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)
from quafka_proto.schema.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
)
from quafka_proto.schema.offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from quafka_proto.schema.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from quafka_proto.schema.topics import (
    CreatableTopic,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from tests.support.raw_client import RawClient

VERSION = {"produce": 9, "fetch": 12, "metadata": 12, "list_offsets": 7}


def metadata(client: RawClient, topic: str, version: int = 12) -> MetadataResponse:
    request = MetadataRequest(
        topics=[MetadataRequestTopic(name=topic)], allow_auto_topic_creation=True
    )
    return client.call(request, MetadataResponse, version)


def create_topic(client: RawClient, topic: str, partitions: int = 1) -> None:
    wanted = CreatableTopic(name=topic, num_partitions=partitions, replication_factor=1)
    request = CreateTopicsRequest(topics=[wanted], timeout_ms=10_000)
    response = client.call(request, CreateTopicsResponse, 5)
    assert response.topics[0].error_code == 0


def produce_request(topic: str, *values: bytes, partition: int = 0) -> ProduceRequest:
    batch = build_batch([Record(i, 1_000 + i, None, value, []) for i, value in enumerate(values)])
    data = PartitionProduceData(index=partition, records=batch)
    return ProduceRequest(
        acks=-1,
        timeout_ms=5_000,
        topic_data=[TopicProduceData(name=topic, partition_data=[data])],
    )


def produce_batch(client: RawClient, topic: str, batch: bytes | bytearray) -> int:
    """Produce one batch as it is; returns its base offset."""
    request = produce_request(topic, b"")
    request.topic_data[0].partition_data[0].records = batch
    response = client.call(request, ProduceResponse, VERSION["produce"])
    partition = response.responses[0].partition_responses[0]
    assert partition.error_code == 0
    return partition.base_offset


def produce(client: RawClient, topic: str, *values: bytes) -> int:
    request = produce_request(topic, *values)
    response = client.call(request, ProduceResponse, VERSION["produce"])
    partition = response.responses[0].partition_responses[0]
    assert partition.error_code == 0
    return partition.base_offset


def fetch_request(
    topic: str, offset: int, *, max_wait_ms: int = 0, min_bytes: int = 1, **limits: int
) -> FetchRequest:
    partition = FetchPartition(
        partition=0,
        fetch_offset=offset,
        partition_max_bytes=limits.get("partition_max_bytes", 1 << 20),
        current_leader_epoch=limits.get("leader_epoch", -1),
    )
    return FetchRequest(
        max_wait_ms=max_wait_ms,
        min_bytes=min_bytes,
        max_bytes=limits.get("max_bytes", 1 << 20),
        session_id=limits.get("session_id", 0),
        session_epoch=limits.get("session_epoch", -1),
        topics=[FetchTopic(topic=topic, partitions=[partition])],
    )


def fetch(client: RawClient, topic: str, offset: int, **options: int) -> PartitionData:
    request = fetch_request(topic, offset, **options)
    response = client.call(request, FetchResponse, VERSION["fetch"])
    assert response.error_code == 0
    return response.responses[0].partitions[0]


def values(data: PartitionData | share_fetch.ShareFetchPartitionData) -> list[bytes]:
    """The record values in a fetch answer."""
    found: list[bytes] = []
    assert not isinstance(data.records, list)  # decoded records are one buffer
    rest = memoryview(data.records or b"")
    while rest:
        size = 12 + int.from_bytes(rest[8:12], "big")
        found += [record.value or b"" for record in iter_records(rest[:size])]
        rest = rest[size:]
    return found


def commit(client: RawClient, group: str, topic: str, offset: int, partition: int = 0) -> None:
    """Commit an offset as nobody's member."""
    part = OffsetCommitRequestPartition(partition_index=partition, committed_offset=offset)
    request = OffsetCommitRequest(
        group_id=group, topics=[OffsetCommitRequestTopic(name=topic, partitions=[part])]
    )
    answer = client.call(request, OffsetCommitResponse, 8)
    assert answer.topics[0].partitions[0].error_code == 0
