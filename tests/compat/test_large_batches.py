"""Batches larger than all that the consumer's limits allow: each is returned nevertheless."""

from __future__ import annotations

import random
import time

import pytest
from kafka import KafkaProducer

from tests.support.cluster import Cluster
from tests.support.consumers import CONSUMERS, FETCH_BYTES, Arrived
from tests.support.kafka_calls import metadata
from tests.support.raw_client import RawClient

COUNT = 40
SECONDS = 60.0


@pytest.mark.parametrize("codec", [None, "gzip"])
@pytest.mark.parametrize("name", CONSUMERS)
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
