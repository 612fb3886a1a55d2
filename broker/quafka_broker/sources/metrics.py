"""Metrics of external sources: Redis servers, and Kafka's log folders."""

from __future__ import annotations

from collections.abc import Iterator
from operator import attrgetter
from typing import TYPE_CHECKING

from quafka_broker.sources.redis.streams import RedisStreams
from quafka_telemetry.metrics import Family, FamilyKind, gauge

if TYPE_CHECKING:
    from quafka_broker.sources.kafka.source import KafkaSource


def source_families(redis: RedisStreams, kafka: KafkaSource | None) -> Iterator[Family]:
    """The families of the sources in use."""
    yield from _redis(redis)
    if kafka is not None:
        yield from _kafka(kafka)


def _redis(redis: RedisStreams) -> Iterator[Family]:
    """Redis servers of topics; the broker's settings bound their number."""
    servers = [((str(org), each.name), each) for org, each in redis.servers]
    if not servers:
        return
    yield Family(
        "quafka_redis_up", FamilyKind.GAUGE, "Whether a Redis server of topics is connected",
        [(labels, int(each.is_up)) for labels, each in servers], ("org", "server"),
    )  # fmt: skip
    for name, words, value in (
        ("reads", "Reads of Redis streams", attrgetter("reads")),
        ("entries_read", "Entries read from Redis streams", attrgetter("entries_read")),
        ("bytes_read", "Bytes of record batches from Redis streams", attrgetter("bytes_read")),
        ("batches_added", "Batches added to Redis streams", attrgetter("appends")),
        ("failures", "Commands and connections to Redis that failed", attrgetter("failures")),
    ):
        yield Family(
            f"quafka_redis_{name}", FamilyKind.COUNTER, words,
            [(labels, value(each.figures)) for labels, each in servers], ("org", "server"),
        )  # fmt: skip


def _kafka(kafka: KafkaSource) -> Iterator[Family]:
    found = kafka.figures()
    yield gauge("quafka_kafka_topics", "Topics of Kafka's log folders", found.topics)
    yield gauge("quafka_kafka_partitions", "Partitions of Kafka's log folders in use", found.open)
    yield gauge(
        "quafka_kafka_unreadable_partitions",
        "Partitions of Kafka's log folders in use that cannot be read", found.unreadable,
    )  # fmt: skip
