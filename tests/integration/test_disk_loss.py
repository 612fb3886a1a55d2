"""The disk of a broker is lost under load: a new one begins with the last snapshot, clients go on.

The gateway, the producers and the consumer group stay. What was written since the snapshot is
lost; everything before it has the offsets that it had, and nothing is stored twice.
"""

from __future__ import annotations

import json
import shutil
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import kafka
import pytest
from confluent_kafka import Consumer, KafkaError, Message, Producer

from quafka.cli import main
from quafka_proto.schema.metadata import MetadataResponse
from tests.support.cluster import Cluster
from tests.support.confluent import consume
from tests.support.group_members import GROUPS
from tests.support.kafka_calls import metadata
from tests.support.raw_client import RawClient

pytestmark = pytest.mark.long

TOPIC = "orders"
SECONDS = 40.0


class Librdkafka:
    """An idempotent producer that numbers its records."""

    def __init__(self, bootstrap: str) -> None:
        self.acknowledged: dict[bytes, int] = {}
        self.fatal: list[str] = []
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "enable.idempotence": True,
                "linger.ms": 1,
                "reconnect.backoff.max.ms": 200,
                "error_cb": self._error,
            }
        )

    def _error(self, error: KafkaError) -> None:
        if error.fatal():
            self.fatal.append(str(error))

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        value, offset = message.value(), message.offset()
        if error is None and value is not None and offset is not None:
            self.acknowledged[value] = offset

    def send(self, number: int) -> None:
        self._producer.produce(TOPIC, b"c%d" % number, partition=0, on_delivery=self._delivered)
        self._producer.poll(0)

    def close(self) -> None:
        assert self._producer.flush(SECONDS) == 0


class KafkaPython:
    """The same by another client."""

    def __init__(self, bootstrap: str) -> None:
        self.acknowledged: dict[bytes, int] = {}
        self.fatal: list[str] = []
        self._producer: Any = kafka.KafkaProducer(
            bootstrap_servers=bootstrap, enable_idempotence=True, linger_ms=1
        )

    def send(self, number: int) -> None:
        value = b"p%d" % number
        sent = self._producer.send(TOPIC, value, partition=0)
        sent.add_callback(self._delivered, value)

    def _delivered(self, value: bytes, at: Any) -> None:
        self.acknowledged[value] = at.offset

    def close(self) -> None:
        try:
            self._producer.flush(SECONDS)
        finally:
            self._producer.close(timeout=SECONDS)


class Load:
    """Producers and a group's consumer, until they are told to stop."""

    def __init__(self, bootstrap: str) -> None:
        self.producers: list[Librdkafka | KafkaPython] = [
            Librdkafka(bootstrap), KafkaPython(bootstrap),
        ]  # fmt: skip
        self.seen: list[bytes] = []
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": "readers",
                "auto.offset.reset": "earliest",
                "auto.commit.interval.ms": 50,
                "reconnect.backoff.max.ms": 200,
                "topic.metadata.refresh.interval.ms": 500,
            }
        )
        self._consumer.subscribe([TOPIC])
        self._stop = threading.Event()
        self._threads = [threading.Thread(target=self._send), threading.Thread(target=self._read)]

    def __enter__(self) -> Load:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()
        with ExitStack() as closing:  # each is closed, whatever fails
            closing.callback(self._consumer.close)
            for producer in self.producers:
                closing.callback(producer.close)

    def _send(self) -> None:
        number = 0
        while not self._stop.wait(0.002):
            for producer in self.producers:
                producer.send(number)
            number += 1

    def _read(self) -> None:
        while not self._stop.is_set():
            for message in self._consumer.consume(100, 0.05):
                value = message.value()
                if message.error() is None and value is not None:
                    self.seen.append(value)

    def acknowledged(self) -> dict[bytes, int]:
        return {
            value: at
            for producer in self.producers
            for value, at in dict(producer.acknowledged).items()
        }


def until(condition: Callable[[], bool]) -> None:
    limit = time.monotonic() + SECONDS
    while not condition():
        assert time.monotonic() < limit
        time.sleep(0.02)


def has_written(producer: Librdkafka | KafkaPython, old: dict[bytes, int]) -> bool:
    return len(producer.acknowledged.keys() - old.keys()) > 100


def about(cluster: Cluster) -> tuple[str, bytes]:
    """The cluster's id and the topic's."""
    with RawClient(cluster.address) as raw:
        found: MetadataResponse = metadata(raw, TOPIC)
        (topic,) = found.topics
        return str(found.cluster_id), topic.topic_id


@pytest.mark.local_log
def test_a_new_disk_begins_with_the_last_snapshot(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.nice", int)  # the commands run in this process
    dest = tmp_path / "dest"
    small = ("--wal-segment-bytes", "65536")
    with Cluster(tmp_path, broker_args=(*GROUPS, *small)) as cluster:
        with Load(cluster.bootstrap) as load:
            until(lambda: len(load.acknowledged()) > 400 and len(load.seen) > 400)
            before = about(cluster)
            copied = ("snapshot", "create", str(dest), "--data", str(cluster.data))
            assert main([*copied, "--format", "json"]) == 0
            made = json.loads(capsys.readouterr().out)
            counts = [len(producer.acknowledged) for producer in load.producers]
            until(  # these will be lost
                lambda: all(
                    len(producer.acknowledged) > count + 100
                    for producer, count in zip(load.producers, counts, strict=True)
                )
            )
            cluster.broker.kill()
            shutil.rmtree(cluster.data)
            cluster.data = tmp_path / "new"
            assert main(["snapshot", "restore", str(dest), "--data", str(cluster.data)]) == 0
            old = load.acknowledged()  # by now clients have all that the old broker answered
            cluster.start_broker()
            assert about(cluster) == before
            for producer in load.producers:
                until(partial(has_written, producer, old))
            new = load.acknowledged().keys() - old.keys()
            until(lambda: len(new & set(load.seen)) > 100)
        for producer in load.producers:
            assert producer.fatal == []
        acknowledged = load.acknowledged()
        since = {value: at for value, at in acknowledged.items() if value not in old}
        found = list(consume(cluster.bootstrap, TOPIC, 1 + max(since.values())))
        stored = {m.value(): m.offset() for m in found}
        assert max(Counter(m.value() for m in found).values()) == 1, "stored twice"
        kept = {value: at for value, at in old.items() if at < made["records"]}
        assert len(kept) > 400
        assert {value: stored[value] for value in kept} == kept
        assert made["records"] < 1 + max(old.values()), "nothing was lost"
        assert {value: stored[value] for value in since} == since
