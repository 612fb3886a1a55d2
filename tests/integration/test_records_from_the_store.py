"""Old records come to a gateway from the object store itself, and are those that were produced."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from quafka_proto.chain_format import decode_directory
from tests.support.prometheus import get, samples
from tests.support.store_cluster import StoreCluster

pytestmark = pytest.mark.long

RECORDS, SIZE = 160, 100_000
ROUND = 8
"""Records that wait to be acknowledged: a commit group has no more, whatever the machine does."""
SEGMENT = 4 << 20
SEALED = RECORDS * SIZE // (SEGMENT + ROUND * SIZE)
"""At least so many segments become objects: one takes the whole group that fills it."""


def _produce(bootstrap: str) -> list[bytes]:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic("t", 1)])["t"].result(20)
    producer = Producer(
        {"bootstrap.servers": bootstrap, "linger.ms": 5, "enable.idempotence": True}
    )
    values = [os.urandom(SIZE) for _ in range(RECORDS)]
    for number, value in enumerate(values, start=1):
        producer.produce("t", value, partition=0)
        if number % ROUND == 0:
            assert producer.flush(60) == 0
    return values


def _sealed(cluster: StoreCluster) -> list[Path]:
    """The objects of sealed segments that the manifest names: only those are read by place."""
    store = Path(cluster.url.removeprefix("file://"))
    (manifest,) = cluster.state().manifests
    if manifest is None or not manifest.directory:
        return []
    files = decode_directory((store / manifest.directory).read_bytes())
    return [store / each.path for each in files if each.name.endswith(".log")]


def _consume(bootstrap: str) -> list[bytes | None]:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "g", "check.crcs": True})
    consumer.assign([TopicPartition("t", 0, 0)])
    found: list[bytes | None] = []
    until = time.monotonic() + 60
    while len(found) < RECORDS and time.monotonic() < until:
        for message in consumer.consume(RECORDS, 1.0):
            assert message.error() is None, message.error()
            found.append(message.value())
    consumer.close()
    return found


def _fetched(operations: str) -> dict[str, float]:
    """Bytes that came to a gateway by place and by value, and its requests to the store."""
    found = samples(get(operations, "/metrics")[2])
    of = {next(iter(labels)): value for (name, labels), value in found.items()
          if name in ("quafka_gateway_fetched_bytes_total", "quafka_store_requests_total")
          and len(labels) == 1}  # fmt: skip
    return {"place": of["by=place"], "value": of["by=value"], "get": of.get("kind=get", 0.0)}


def test_old_records_come_from_the_store(tmp_path: Path) -> None:
    args = ("--wal-segment-bytes", str(SEGMENT))
    cluster = StoreCluster(
        tmp_path, brokers=("a",), gateways=("g", "h"), shards=1, broker_args=args
    )
    with cluster:
        values = _produce(cluster.bootstrap("g"))
        until = time.monotonic() + 60
        while len(sealed := _sealed(cluster)) < SEALED:
            assert time.monotonic() < until, sealed
            time.sleep(0.1)

        assert _consume(cluster.bootstrap("g")) == values
        fetched = _fetched(cluster.gateways["g"].ready["operations"])
        assert fetched["place"] > 0.5 * RECORDS * SIZE, fetched
        assert fetched["get"] > 0

        # The other gateway finds objects that are gone or damaged: the broker has the records.
        for number, path in enumerate(sealed):
            if number % 2:
                path.rename(path.with_name("gone"))
            else:
                data = bytearray(path.read_bytes())
                data[SIZE // 2 :: SIZE // 2] = bytes(b ^ 1 for b in data[SIZE // 2 :: SIZE // 2])
                path.write_bytes(data)  # every batch is damaged
        assert _consume(cluster.bootstrap("h")) == values
        fetched = _fetched(cluster.gateways["h"].ready["operations"])
        assert fetched["value"] > 0.5 * RECORDS * SIZE, fetched
