"""Reading a topic with confluent-kafka, without a consumer group."""

from __future__ import annotations

from collections.abc import Iterator

from confluent_kafka import Consumer, Message, TopicPartition

LASTING = {"metadata.recovery.strategy": "none"}
"""For transactional producers: librdkafka 2.16 forgets its brokers when it can reach none of them,
and then waits for ever for the coordinator that it has forgotten (with Apache Kafka, too)."""


def consume(bootstrap: str, topic: str, count: int, start: int = 0) -> Iterator[Message]:
    """The `count` records of partition 0 from offset `start` on; fails on any error or silence."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "not-used",
            "enable.auto.commit": False,
            "auto.offset.reset": "error",
        }
    )
    try:
        consumer.assign([TopicPartition(topic, 0, start)])
        seen = 0
        while seen < count:
            batch = consumer.consume(min(10_000, count - seen), timeout=30)
            assert batch, f"{topic}: nothing more after {seen} of {count} records"
            for message in batch:
                error = message.error()
                assert error is None, error
                seen += 1
                yield message
    finally:
        consumer.close()
