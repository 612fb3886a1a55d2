"""Consumers of both isolation levels at once, from the gateway's memory and by place."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest
from confluent_kafka import Producer

from tests.support.cluster import Cluster
from tests.support.kafka_calls import create_topic
from tests.support.prometheus import Scrape
from tests.support.raw_client import RawClient
from tests.support.transactions import Row, read

pytestmark = pytest.mark.long

_TOPIC = "levels"
_TRANSACTIONS, _BATCHES, _BYTES = 6, 4, 60_000
_CONSUMERS = 3


def _is_committed(number: int) -> bool:
    return number % 3 != 1


def _produce(bootstrap: str) -> dict[str, list[Row]]:
    """Six transactions, each third aborted, and one that stays open; what each level reads."""
    producer = Producer(
        {"bootstrap.servers": bootstrap, "transactional.id": "levels", "linger.ms": 0}
    )
    producer.init_transactions(20.0)
    found: dict[str, list[Row]] = {"read_committed": [], "read_uncommitted": []}
    offset = 0
    for number in range(_TRANSACTIONS + 1):
        producer.begin_transaction()
        for _ in range(_BATCHES):
            value = os.urandom(_BYTES // 2).hex()
            producer.produce(_TOPIC, value, partition=0)
            producer.flush()
            row = (0, offset, value)
            found["read_uncommitted"].append(row)
            if number < _TRANSACTIONS and _is_committed(number):
                found["read_committed"].append(row)
            offset += 1
        if number == _TRANSACTIONS:
            break
        if _is_committed(number):
            producer.commit_transaction(20.0)
        else:
            producer.abort_transaction(20.0)
        offset += 1
    return found


@pytest.mark.parametrize("records", [pytest.param("auto", marks=pytest.mark.local_log), "value"])
def test_each_consumer_reads_what_its_level_has(tmp_path: Path, records: str) -> None:
    args = ("--mesh-records", records)
    with Cluster(tmp_path, broker_args=args, gateway_args=args) as cluster:
        with RawClient(cluster.address) as client:
            create_topic(client, _TOPIC)
        expected = _produce(cluster.bootstrap)
        found: dict[str, list[list[Row]]] = {level: [] for level in expected}

        def consume(level: str) -> None:
            found[level].append(read(cluster.bootstrap, _TOPIC, level, partitions=1))

        def fetched() -> dict[str, float]:
            scrape = Scrape(cluster.gateway.ready["operations"])
            return {
                by: scrape("quafka_gateway_fetched_bytes_total", by=by) for by in ("place", "value")
            }

        for level in expected:
            consume(level)
        first = fetched()
        threads = [
            threading.Thread(target=consume, args=(level,))
            for level in expected
            for _ in range(_CONSUMERS)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for level, rows in expected.items():
            assert len(found[level]) == 1 + _CONSUMERS
            assert all(each == rows for each in found[level]), level
        assert (first["place"] > 0) == (records == "auto")
        assert fetched() == first, "what is known is answered from memory"
