"""kafka-python and aiokafka, with their own defaults."""

from __future__ import annotations

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka import TopicPartition as AioTopicPartition
from kafka import KafkaConsumer, KafkaProducer, TopicPartition

from tests.support.cluster import Cluster

COUNT = 500
CODECS = [None, "gzip", "snappy", "lz4", "zstd"]


@pytest.mark.parametrize("codec", CODECS)
def test_kafka_python_round_trip(shared_cluster: Cluster, codec: str | None) -> None:
    topic = f"kafka-python-{codec}"
    producer = KafkaProducer(
        bootstrap_servers=shared_cluster.bootstrap, compression_type=codec, linger_ms=5
    )
    futures = [
        producer.send(
            topic,
            b"value-%d" % i,
            b"key-%d" % i,
            headers=[("n", b"%d" % i)],
            timestamp_ms=1_000 + i,
        )
        for i in range(COUNT)
    ]
    producer.flush(30)
    assert [future.get(10).offset for future in futures] == list(range(COUNT))
    producer.close()

    consumer = KafkaConsumer(bootstrap_servers=shared_cluster.bootstrap, consumer_timeout_ms=10_000)
    partition = TopicPartition(topic, 0)
    consumer.assign([partition])
    consumer.seek_to_beginning(partition)
    assert consumer.end_offsets([partition]) == {partition: COUNT}
    seen = [next(consumer) for _ in range(COUNT)]
    consumer.close()
    assert [(r.offset, r.timestamp, r.key, r.value, list(r.headers)) for r in seen] == [
        (i, 1_000 + i, b"key-%d" % i, b"value-%d" % i, [("n", b"%d" % i)]) for i in range(COUNT)
    ]


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("idempotent", [False, True])
async def test_aiokafka_round_trip(
    shared_cluster: Cluster, codec: str | None, idempotent: bool
) -> None:
    topic = f"aiokafka-{codec}-{idempotent}"
    producer = AIOKafkaProducer(
        bootstrap_servers=shared_cluster.bootstrap,
        compression_type=codec,
        enable_idempotence=idempotent,
    )
    await producer.start()
    try:
        for i in range(COUNT):
            await producer.send(topic, b"value-%d" % i, b"key-%d" % i, timestamp_ms=1_000 + i)
        await producer.flush()
    finally:
        await producer.stop()

    consumer = AIOKafkaConsumer(bootstrap_servers=shared_cluster.bootstrap)
    await consumer.start()
    try:
        partition = AioTopicPartition(topic, 0)
        consumer.assign([partition])
        await consumer.seek_to_beginning(partition)
        seen = [await consumer.getone() for _ in range(COUNT)]
    finally:
        await consumer.stop()
    assert [(r.offset, r.timestamp, r.key, r.value) for r in seen] == [
        (i, 1_000 + i, b"key-%d" % i, b"value-%d" % i) for i in range(COUNT)
    ]
