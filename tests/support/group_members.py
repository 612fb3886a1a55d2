"""Members of consumer groups by confluent-kafka, and topics for them."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from types import MappingProxyType

from confluent_kafka import Consumer, Producer

from tests.support.cluster import Cluster
from tests.support.kafka_calls import create_topic
from tests.support.raw_client import RawClient

PARTITIONS = 4
GROUPS = (
    "--group-initial-rebalance-delay-ms", "0", "--group-min-session-timeout-ms", "1000",
)  # fmt: skip
"""What a broker is told, so that tests need not wait."""
SECONDS = 20.0


def fill(cluster: Cluster, topic: str, count: int = 40) -> list[bytes]:
    """A topic with records spread over its partitions; their values."""
    with RawClient(cluster.address) as client:
        create_topic(client, topic, PARTITIONS)
    return produce(cluster, topic, range(count))


def produce(
    cluster: Cluster, topic: str, numbers: range, partitions: int = PARTITIONS
) -> list[bytes]:
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "linger.ms": 0})
    for number in numbers:
        producer.produce(topic, b"%d" % number, partition=number % partitions)
    assert producer.flush(SECONDS) == 0
    return [b"%d" % number for number in numbers]


def member(
    cluster: Cluster,
    group: str,
    topic: str,
    settings: Mapping[str, object] = MappingProxyType({}),
    on_revoke: Callable[[int], None] = lambda _: None,
) -> Consumer:
    """A subscribed consumer; `on_revoke` is told how many partitions are taken from it."""
    consumer = Consumer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "session.timeout.ms": 2_000,
            "heartbeat.interval.ms": 200,
            "partition.assignment.strategy": "range",
            **settings,
        }
    )
    consumer.subscribe([topic], on_revoke=lambda _, places: on_revoke(len(places)))
    return consumer


def poll(consumer: Consumer, seconds: float = 0.1) -> list[bytes]:
    found = consumer.consume(1_000, timeout=seconds)
    for message in found:
        assert message.error() is None, message.error()
    return [message.value() or b"" for message in found]


def until(condition: Callable[[], object], *consumers: Consumer) -> list[bytes]:
    """Poll the consumers until it holds; what they read meanwhile."""
    give_up = time.monotonic() + SECONDS
    found: list[bytes] = []
    while not condition():
        assert time.monotonic() < give_up
        for consumer in consumers:
            found += poll(consumer)
    return found


def read(consumer: Consumer, count: int) -> list[bytes]:
    found: list[bytes] = []
    give_up = time.monotonic() + SECONDS
    while len(found) < count:
        assert time.monotonic() < give_up, found
        found += poll(consumer)
    return found


def owned(consumer: Consumer) -> set[int]:
    return {place.partition for place in consumer.assignment()}
