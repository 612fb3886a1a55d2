"""Records for consumers to read."""

from __future__ import annotations

import os

from confluent_kafka import Producer

from tests.bench.peers import Server

RECORD = 1_000


def backlog(server: Server, topic: str, mb: int) -> None:
    """Produce so many MB of 1 KB records that do not compress, in batches of about 1 MB."""
    producer = Producer(
        {
            "bootstrap.servers": server.bootstrap,
            "linger.ms": 50,
            "queue.buffering.max.messages": 1_000_000,
            "queue.buffering.max.kbytes": 1 << 20,
        }
    )
    producer.list_topics(topic, 10)
    value = os.urandom(RECORD)
    for _ in range(mb * 1_000_000 // RECORD):
        producer.produce(topic, value, partition=0)
    if producer.flush(120):
        raise RuntimeError(f"{server.name} did not take everything")
