"""Idempotent clients that have been silent for longer than the broker remembers them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator

import pytest
from aiokafka import AIOKafkaProducer
from confluent_kafka import Producer
from kafka import KafkaProducer
from kafka.errors import UnknownProducerIdError

from tests.support.cluster import Cluster
from tests.support.confluent import consume

pytestmark = pytest.mark.long

SILENCE = 0.6
COUNT = 4


@pytest.fixture(scope="module")
def forgetful(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A broker that forgets producers after 0.2 s."""
    args = ("--producer-id-expiration-ms", "200", "--log-retention-check-interval-ms", "100")
    with Cluster(tmp_path_factory.mktemp("cluster"), broker_args=args) as running:
        yield running


def stored(cluster: Cluster, topic: str) -> list[bytes | None]:
    return [message.value() for message in consume(cluster.bootstrap, topic, COUNT)]


def expected() -> list[bytes]:
    return [b"%d" % n for n in range(COUNT)]


def test_confluent_kafka(forgetful: Cluster) -> None:
    producer = Producer({"bootstrap.servers": forgetful.bootstrap, "enable.idempotence": True})
    for value in expected():
        producer.produce("confluent", value)
        assert producer.flush(30) == 0
        time.sleep(SILENCE)
    assert stored(forgetful, "confluent") == expected()


def test_kafka_python(forgetful: Cluster) -> None:
    producer = KafkaProducer(bootstrap_servers=forgetful.bootstrap, enable_idempotence=True)
    for offset, value in enumerate(expected()):
        assert producer.send("python", value).get(30).offset == offset
        time.sleep(SILENCE)
    producer.close()
    assert stored(forgetful, "python") == expected()


async def test_aiokafka(forgetful: Cluster) -> None:
    producer = AIOKafkaProducer(bootstrap_servers=forgetful.bootstrap, enable_idempotence=True)
    await producer.start()
    try:
        for offset, value in enumerate(expected()):
            sent = await producer.send_and_wait("aiokafka", value)
            assert sent.offset == offset
            await asyncio.sleep(SILENCE)
    finally:
        await producer.stop()
    assert await asyncio.to_thread(stored, forgetful, "aiokafka") == expected()


# --- evicted --------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def crowded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A broker that remembers one producer: each that writes evicts the other."""
    args = ("--max-producers-per-org", "1")
    with Cluster(tmp_path_factory.mktemp("cluster"), broker_args=args) as running:
        yield running


def test_confluent_kafka_goes_on_after_an_eviction(crowded: Cluster) -> None:
    config = {"bootstrap.servers": crowded.bootstrap, "enable.idempotence": True}
    producers = [Producer(config), Producer(config)]
    for number, value in enumerate(expected()):
        producers[number % 2].produce("confluent", value)
        assert producers[number % 2].flush(30) == 0
    assert stored(crowded, "confluent") == expected()


def test_kafka_python_reports_an_eviction_and_goes_on(crowded: Cluster) -> None:
    """It begins no new epoch for the batch in hand: whoever sent it is told, and nothing stored."""
    producers = [
        KafkaProducer(bootstrap_servers=crowded.bootstrap, enable_idempotence=True)
        for _ in range(2)
    ]
    try:
        for number, value in enumerate(expected()):
            producer = producers[number % 2]
            try:
                offset = producer.send("python", value).get(30).offset
            except UnknownProducerIdError:
                offset = producer.send("python", value).get(30).offset
            assert offset == number
    finally:
        for producer in producers:
            producer.close()
    assert stored(crowded, "python") == expected()
