"""Records by librdkafka, acks=all."""

from __future__ import annotations

import time
from functools import partial
from typing import NamedTuple

from confluent_kafka import Producer

from tests.bench.peers import Server
from tests.bench.rows.row import Figures, Row
from tests.support.kafka_calls import create_topic
from tests.support.raw_client import RawClient


class _Case(NamedTuple):
    """`records` records of `size` bytes over `partitions`."""

    label: str
    size: int
    records: int
    partitions: int
    codec: str

    @property
    def topic(self) -> str:
        return self.label.replace(" ", "-").replace(",", "")


_CASES = (
    _Case("1 KB, 1 partition", 1_000, 200_000, 1, "none"),
    _Case("1 KB lz4, 12 partitions", 1_000, 300_000, 12, "lz4"),
    _Case("1 KB, 1,000 partitions", 1_000, 100_000, 1_000, "none"),
    _Case("100 B, 12 partitions", 100, 500_000, 12, "none"),
)


def _prepare(case: _Case, server: Server) -> None:
    with RawClient(server.address, 60) as client:
        create_topic(client, case.topic, case.partitions)
    time.sleep(2)  # Kafka answers before the partitions have a leader


def _produce(case: _Case, server: Server, _seconds: float, _round: int) -> Figures:
    producer = Producer(
        {
            "bootstrap.servers": server.bootstrap,
            "linger.ms": 5,
            "compression.type": case.codec,
            "acks": "all",
            "queue.buffering.max.messages": 1_000_000,
            "queue.buffering.max.kbytes": 1 << 20,
        }
    )
    producer.list_topics(case.topic, 30)
    value = bytes(range(250)) * (case.size // 250) or bytes(case.size)
    before, began = server.cpu_seconds(), time.perf_counter()
    for number in range(case.records):
        producer.produce(case.topic, value, partition=number % case.partitions)
        if number % 10_000 == 0:
            producer.poll(0)
    if producer.flush(120):
        raise RuntimeError("not everything was taken")
    took, size = time.perf_counter() - began, case.size * case.records
    return size / took / 1e6, (server.cpu_seconds() - before) / size * 1e9


ROWS = tuple(
    Row(
        "produce", f"produce {case.label}", ("MB/s", "CPU s/GB"),
        partial(_produce, case), partial(_prepare, case),
    )
    for case in _CASES
)  # fmt: skip
