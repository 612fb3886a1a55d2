"""Which record a time leads to, as four clients ask for it."""

from __future__ import annotations

import subprocess

import pytest
from aiokafka import AIOKafkaConsumer
from aiokafka import TopicPartition as AioTopicPartition
from confluent_kafka import Consumer
from confluent_kafka import TopicPartition as ConfluentTopicPartition
from kafka import KafkaConsumer, TopicPartition

from quafka_proto.record_codec import Record, build_batch
from tests.support.cluster import Cluster
from tests.support.kafka_calls import metadata, produce_batch
from tests.support.raw_client import RawClient

pytestmark = pytest.mark.long

TOPIC = "by-time"
BATCHES = [[1_000, 1_010, 1_020], [5_000, 1_030], [1_040, 1_050], [6_000]]
EXPECTED = {0: 0, 1_005: 1, 1_020: 2, 1_021: 3, 5_000: 3, 5_001: 7, 6_001: None}
"""Also over timestamps out of order: 1,030 comes behind 5,000."""


@pytest.fixture(scope="module")
def bootstrap(shared_cluster: Cluster) -> str:
    with RawClient(shared_cluster.address) as client:
        metadata(client, TOPIC)
        for batch in BATCHES:
            records = [Record(0, at, None, b"%d" % at, []) for at in batch]
            produce_batch(client, TOPIC, build_batch(records))
    return shared_cluster.bootstrap


def test_kcat(kcat: str, bootstrap: str) -> None:
    for at, offset in EXPECTED.items():
        if offset is None:
            continue  # kcat takes it for the end, and waits
        command = [kcat, "-C", "-b", bootstrap, "-t", TOPIC, "-o", f"s@{at}", "-c", "1", "-f", "%o"]
        found = subprocess.run(command, check=True, capture_output=True, timeout=30)
        assert int(found.stdout) == offset


def test_confluent_kafka(bootstrap: str) -> None:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "not-used"})
    for at, offset in EXPECTED.items():
        (found,) = consumer.offsets_for_times([ConfluentTopicPartition(TOPIC, 0, at)], 30)
        assert found.error is None
        assert found.offset == (-1 if offset is None else offset)
    consumer.close()


def test_kafka_python(bootstrap: str) -> None:
    consumer = KafkaConsumer(bootstrap_servers=bootstrap)
    partition = TopicPartition(TOPIC, 0)
    stamps = [at for batch in BATCHES for at in batch]
    for at, offset in EXPECTED.items():
        found = consumer.offsets_for_times({partition: at})[partition]
        if offset is None:
            assert found is None
        else:
            assert (found.offset, found.timestamp) == (offset, stamps[offset])
    consumer.close()


async def test_aiokafka(bootstrap: str) -> None:
    consumer = AIOKafkaConsumer(bootstrap_servers=bootstrap)
    await consumer.start()
    try:
        partition = AioTopicPartition(TOPIC, 0)
        for at, offset in EXPECTED.items():
            found = (await consumer.offsets_for_times({partition: at}))[partition]
            assert (None if found is None else found.offset) == offset
    finally:
        await consumer.stop()
