"""What the benchmark asks of a server, with confluent-kafka."""

from __future__ import annotations

import statistics
import threading
import time
from typing import NamedTuple

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

from tests.support.flights import Flight


class Rate(NamedTuple):
    """Records per second and megabytes (10^6 bytes of keys and values) per second."""

    records: float
    megabytes: float


def rate(rows: list[Flight], seconds: float) -> Rate:
    size = sum(len(row.key) + len(row.value) for row in rows)
    return Rate(len(rows) / seconds, size / seconds / 1e6)


def produce_all(bootstrap: str, topic: str, rows: list[Flight]) -> float:
    """Seconds until every row is acknowledged."""
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "linger.ms": 5,
            "queue.buffering.max.messages": 1_000_000,
            "acks": "all",
        }
    )
    producer.list_topics(topic, 10)  # connect and create first: not what is measured
    began = time.perf_counter()
    for row in rows:
        producer.produce(topic, row.value, row.key, timestamp=row.timestamp)
    if producer.flush(120):
        raise RuntimeError(f"{topic}: not all rows were acknowledged")
    return time.perf_counter() - began


def consume_all(bootstrap: str, topic: str, count: int) -> float:
    """Seconds from the first poll until `count` records are in hand."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "bench",
            "enable.auto.commit": False,
            # librdkafka's default, a second, makes it pause now and then with its queue half empty
            "fetch.queue.backoff.ms": 10,
        }
    )
    consumer.list_topics(topic, timeout=10)
    began = time.perf_counter()
    consumer.assign([TopicPartition(topic, 0, 0)])
    seen = 0
    while seen < count:
        batch = consumer.consume(min(50_000, count - seen), timeout=5)
        for message in batch:
            error = message.error()
            if error is not None:
                raise KafkaException(error)
        seen += len(batch)
    took = time.perf_counter() - began
    consumer.close()
    return took


class Latency(NamedTuple):
    """Milliseconds from produce() to the consumer's poll."""

    p50: float
    p99: float


def end_to_end(bootstrap: str, topic: str, per_second: int, seconds: float) -> Latency:
    """Produce at a steady rate, consume at the same time, one record at a time."""
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 0, "acks": "all"})
    producer.list_topics(topic, 10)
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "bench",
            "enable.auto.commit": False,
            "fetch.wait.max.ms": 500,
        }
    )
    consumer.assign([TopicPartition(topic, 0, 0)])
    total = int(per_second * seconds)
    waits: list[float] = []

    give_up = time.perf_counter() + seconds + 30

    def read() -> None:
        while len(waits) < total and time.perf_counter() < give_up:
            message = consumer.poll(1.0)
            value = message.value() if message is not None else None
            if value:
                waits.append(time.perf_counter() - float(value))

    reader = threading.Thread(target=read)
    reader.start()
    began = time.perf_counter()
    for i in range(total):
        due = began + i / per_second
        if (ahead := due - time.perf_counter()) > 0:
            time.sleep(ahead)  # not poll(): the client must leave the servers their share of CPU
        producer.produce(topic, repr(time.perf_counter()).encode())
        producer.poll(0)
    producer.flush(30)
    reader.join()
    consumer.close()
    if len(waits) < total:
        raise RuntimeError(f"{total - len(waits)} of {total} records did not arrive in time")
    steady = sorted(waits[per_second:])  # the first second warms up
    return Latency(
        statistics.median(steady) * 1e3, steady[min(len(steady) - 1, len(steady) * 99 // 100)] * 1e3
    )
