"""Batches larger than all that the consumer's limits allow: each is returned nevertheless."""

from __future__ import annotations

import random
import time

import confluent_kafka
import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from kafka import KafkaProducer

from tests.support.cluster import Cluster
from tests.support.consumers import CONSUMER_NAMES, CONSUMERS, FETCH_BYTES, Arrived, Confluent
from tests.support.kafka_calls import metadata
from tests.support.raw_client import RawClient

pytestmark = pytest.mark.long

COUNT = 40
HUGE = 100_000_000
SECONDS = 60.0


@pytest.mark.parametrize("codec", [None, "gzip"])
@pytest.mark.parametrize("name", CONSUMER_NAMES)
def test_a_batch_larger_than_max_bytes(
    shared_cluster: Cluster, name: str, codec: str | None
) -> None:
    topic = f"large-{name}-{codec}"
    chance = random.Random(0)
    records = [chance.randbytes(FETCH_BYTES // 4).hex().encode() for _ in range(COUNT)]
    with RawClient(shared_cluster.address) as client:
        metadata(client, topic)
    producer = KafkaProducer(
        bootstrap_servers=shared_cluster.bootstrap, compression_type=codec, linger_ms=200
    )
    sent = [producer.send(topic, value, partition=0) for value in records]
    producer.flush(30)
    assert [future.get(10).offset for future in sent] == list(range(COUNT))
    producer.close()

    consumer = CONSUMERS[name](shared_cluster.bootstrap, topic)
    arrived: Arrived = []
    try:
        consumer.assign([0])
        give_up = time.monotonic() + SECONDS
        while len(arrived) < COUNT and time.monotonic() < give_up:
            arrived += consumer.poll()
    finally:
        consumer.close()
    assert arrived == [(0, offset, value) for offset, value in enumerate(records)]


def test_messages_of_100_megabytes_where_the_topic_allows_them(shared_cluster: Cluster) -> None:
    admin = AdminClient({"bootstrap.servers": shared_cluster.bootstrap})
    limit = HUGE + 1_000
    new = NewTopic("huge", 1, 1, config={"max.message.bytes": str(limit)})
    admin.create_topics([new])["huge"].result(10)
    producer = confluent_kafka.Producer(
        {
            "bootstrap.servers": shared_cluster.bootstrap,
            "message.max.bytes": limit,
            "enable.idempotence": True,  # or a retry on a busy machine may change the order
        }
    )
    sent = [random.Random(n).randbytes(1_000) * (HUGE // 1_000) for n in range(2)]
    delivered: list[tuple[int | None, object]] = []
    for value in sent:
        producer.produce(
            "huge",
            value,
            partition=0,
            on_delivery=lambda error, message: delivered.append((message.offset(), error)),
        )
    assert producer.flush(SECONDS) == 0
    assert delivered == [(0, None), (1, None)]

    settings: dict[str, str | int] = {
        "auto.offset.reset": "none",
        "max.partition.fetch.bytes": 1 << 20,
        "fetch.max.bytes": limit,
        "receive.message.max.bytes": limit + 1_000,
    }
    consumer = Confluent(shared_cluster.bootstrap, "huge", settings)
    arrived: Arrived = []
    try:
        consumer.assign([0])
        give_up = time.monotonic() + SECONDS
        while len(arrived) < len(sent) and time.monotonic() < give_up:
            arrived += consumer.poll()
    finally:
        consumer.close()
    assert [offset for _, offset, _ in arrived] == [0, 1]
    assert [value for _, _, value in arrived] == sent
