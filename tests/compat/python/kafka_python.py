"""A job of tests/support/round_trip.py for kafka-python, of whichever version is imported."""

from __future__ import annotations

import json
import sys
from base64 import b64decode, b64encode
from typing import Any

from kafka import KafkaConsumer, KafkaProducer, TopicPartition


def data(text: str | None) -> bytes | None:
    return None if text is None else b64decode(text)


def text(content: bytes | None) -> str | None:
    return None if content is None else b64encode(content).decode()


def options(job: dict[str, Any]) -> dict[str, Any]:
    """Which Kafka the client is to believe it talks to; without one it asks."""
    version = job["api_version"]
    return {} if version is None else {"api_version": tuple(version)}


def produce(job: dict[str, Any], topic: dict[str, Any]) -> None:
    codec = None if topic["codec"] == "none" else topic["codec"]
    producer = KafkaProducer(
        bootstrap_servers=job["bootstrap"], compression_type=codec, linger_ms=20, **options(job)
    )
    sent = [
        producer.send(
            topic["name"],
            data(row["value"]),
            data(row["key"]),
            headers=[(name, data(content)) for name, content in row["headers"]],
            partition=row["partition"],
            timestamp_ms=row["timestamp"],
        )
        for row in job["rows"]
    ]
    producer.flush(30)
    assert [future.get(10).offset for future in sent] == [row["offset"] for row in job["rows"]]
    producer.close()


def consume(job: dict[str, Any], topic: dict[str, Any]) -> list[dict[str, Any]]:
    consumer = KafkaConsumer(
        bootstrap_servers=job["bootstrap"], consumer_timeout_ms=20_000, **options(job)
    )
    places = [TopicPartition(topic["name"], p) for p in range(job["partitions"])]
    consumer.assign(places)
    consumer.seek_to_end(*places)
    count = sum(consumer.position(place) - job["start"] for place in places)
    for place in places:
        consumer.seek(place, job["start"])
    found = [next(consumer) for _ in range(count)]
    consumer.close()
    return [
        {
            "partition": row.partition,
            "offset": row.offset,
            "timestamp": row.timestamp,
            "key": text(row.key),
            "value": text(row.value),
            "headers": [[name, text(content)] for name, content in row.headers],
        }
        for row in sorted(found, key=lambda row: (row.partition, row.offset))
    ]


def main() -> None:
    job = json.load(sys.stdin)
    answer: dict[str, Any] = {}
    for topic in job["topics"]:
        if topic["produce"]:
            produce(job, topic)
        answer[topic["name"]] = consume(job, topic)
    json.dump(answer, sys.stdout)


main()
