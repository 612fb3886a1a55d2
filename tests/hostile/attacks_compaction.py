"""Topics that make compaction dear."""

from __future__ import annotations

import time

from quafka_proto.compression import Codec
from quafka_proto.record_codec import Record, build_batch
from quafka_proto.schema.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from quafka_proto.schema.quafka import DescribeCompactionRequest, DescribeCompactionResponse
from quafka_proto.schema.topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from tests.hostile.arena import Arena
from tests.hostile.attacks_records import send
from tests.hostile.catalogue import attack
from tests.support.compacted import CONFIGS
from tests.support.raw_client import RawClient

_SECONDS = 120.0
_EAGER = (
    "--log-cleaner-backoff-ms", "500",
    "--log-cleaner-max-wait-ms", "1000", "--wal-segment-bytes", "4194304",
)  # fmt: skip


def _create(client: RawClient, *names: str) -> None:
    configs = [CreatableTopicConfig(name=name, value=value) for name, value in CONFIGS.items()]
    topics = [
        CreatableTopic(name=name, num_partitions=1, replication_factor=1, configs=configs)
        for name in names
    ]
    request = CreateTopicsRequest(topics=topics, timeout_ms=30_000)
    for answer in client.call(request, CreateTopicsResponse, 5).topics:
        assert answer.error_code == 0, answer


def _wait_compacted(client: RawClient, topic: str) -> None:
    """Wait until a pass has covered the topic."""
    deadline = time.monotonic() + _SECONDS
    while True:
        request = DescribeCompactionRequest(topic=topic)
        (found,) = client.call(request, DescribeCompactionResponse, 0).partitions
        if found.last_ms >= 0 and not found.due:
            return
        assert time.monotonic() < deadline, f"{topic} is not compacted: {found}"
        time.sleep(0.1)


def _send_to_all(client: RawClient, topics: list[str], batch: bytearray) -> None:
    part = PartitionProduceData(index=0, records=bytes(batch))
    data = [TopicProduceData(name=name, partition_data=[part]) for name in topics]
    request = ProduceRequest(acks=-1, timeout_ms=30_000, topic_data=data)
    answer = client.call(request, ProduceResponse, 9)
    assert not any(each.partition_responses[0].error_code for each in answer.responses)


@attack("a compacted topic has a million different keys", broker=_EAGER)
def many_keys(arena: Arena) -> None:
    """They are all read, hashed and kept."""
    topic, each = arena.name(), 20_000
    with arena.connect() as client:
        _create(client, topic)
        for first in range(0, 1_000_000, each):
            records = [Record(0, 1_000, b"%d" % key, b"", []) for key in range(first, first + each)]
            assert send(client, topic, build_batch(records)) == 0
        _wait_compacted(client, topic)


@attack(
    "batches of a compacted topic decompress to 60 MB each",
    growth_mib=160, broker=_EAGER, why="a pass holds two such batches for a moment",
)  # fmt: skip
def bombs(arena: Arena) -> None:
    """Each is a valid record, which a later one of the same key supersedes."""
    topic = arena.name()
    bomb = build_batch([Record(0, 1_000, b"key", bytes(60_000_000), [])], codec=Codec.ZSTD)
    with arena.connect() as client:
        _create(client, topic)
        for _ in range(5):
            assert send(client, topic, bomb) == 0
        _wait_compacted(client, topic)


@attack("two thousand compacted topics get a few records each, again and again",
        broker=_EAGER)  # fmt: skip
def many_topics(arena: Arena) -> None:
    """Each is due at once, and each of its segments has records of all the others."""
    names = [arena.name() for _ in range(2_000)]
    batch = build_batch([Record(0, 1_000, b"key", bytes(100), [])] * 3)
    with arena.connect() as client:
        for at in range(0, len(names), 500):
            _create(client, *names[at : at + 500])
        for _ in range(3):
            for at in range(0, len(names), 100):
                _send_to_all(client, names[at : at + 100], batch)
        for name in names[::100]:
            _wait_compacted(client, name)
