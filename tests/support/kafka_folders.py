"""Log folders of a real Apache Kafka, and what its own consumers read from it.

`python -m tests.support.kafka_folders` writes `kafka_folders.zip` again: `clean` after a shutdown,
`killed` copied while Kafka was writing, and `expected.json`. So bare machines have a real folder.
"""

from __future__ import annotations

import base64
import json
import shutil
import tempfile
import time
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import confluent_kafka as untyped_confluent
from confluent_kafka import admin as untyped_admin

from tests.support.apache_kafka import ApacheKafka, apache_kafka

confluent: Any = untyped_confluent
kafka_admin: Any = untyped_admin
ZIP = Path(__file__).with_name("kafka_folders.zip")
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
NOW = 1_700_000_000_000
COMPACTED, TRANSACTIONS, ROLLED, TRIMMED = "compacted.one", "transactions", "dashes-0-1", "trimmed"
DELETED, EMPTY = "deleted", "empty"
_COMMIT_SECONDS = 60.0
_NO_COORDINATOR = {
    confluent.KafkaError.NOT_COORDINATOR,
    confluent.KafkaError.COORDINATOR_NOT_AVAILABLE,
    confluent.KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
}
GROUP = "readers"
Expected = dict[str, Any]


def write(kafka: ApacheKafka) -> Any:
    """Topics of all kinds. Returns a producer whose transaction is open."""
    admin = kafka_admin.AdminClient({"bootstrap.servers": kafka.bootstrap})
    often = {"segment.ms": "200"}
    compact = {
        "cleanup.policy": "compact",
        "min.cleanable.dirty.ratio": "0.01",
        "max.compaction.lag.ms": "200",
    }
    topics = [kafka_admin.NewTopic(f"codec-{codec}", 1) for codec in CODECS]
    topics += [kafka_admin.NewTopic(name, 1) for name in (EMPTY, TRIMMED, DELETED)]
    topics += [kafka_admin.NewTopic(ROLLED, 3, config=often), kafka_admin.NewTopic(TRANSACTIONS, 2)]
    topics += [kafka_admin.NewTopic(COMPACTED, 1, config=often | compact)]
    for made in admin.create_topics(topics).values():
        made.result()
    _codecs(kafka)
    _rolled(kafka)
    producer = _transactions(kafka)
    _groups(kafka)
    trimmed = confluent.TopicPartition(TRIMMED, 0, 7)
    for done in admin.delete_records([trimmed]).values():
        done.result()
    for done in admin.delete_topics([DELETED]).values():
        done.result()
    resource = kafka_admin.ConfigResource(
        kafka_admin.ResourceType.TOPIC, "codec-gzip", incremental_configs=[_retention()]
    )
    for done in admin.incremental_alter_configs([resource]).values():
        done.result()
    return producer


def _retention() -> Any:
    how = kafka_admin.AlterConfigOpType.SET
    return kafka_admin.ConfigEntry("retention.bytes", "12345678", incremental_operation=how)


def _codecs(kafka: ApacheKafka) -> None:
    for codec in CODECS:
        producer = _producer(kafka, **{"compression.type": codec, "enable.idempotence": True})
        for number in range(120):
            producer.produce(
                f"codec-{codec}",
                key=None if number % 7 == 0 else b"key %d" % number,
                value=None if number % 11 == 0 else b"value %d " % number * 4,
                headers=[("n", b"%d" % number), ("none", None)],
                timestamp=NOW + 10 * number,
            )
            if number % 40 == 39:
                producer.flush()
    producer = _producer(kafka)
    for number in range(10):
        for topic in (TRIMMED, DELETED):
            producer.produce(topic, value=b"%d" % number, timestamp=NOW + number)
        producer.flush()


def _rolled(kafka: ApacheKafka) -> None:
    producer = _producer(kafka)
    for turn in range(6):
        for number in range(30):
            value = b"%d-%d" % (turn, number)
            producer.produce(ROLLED, value=value, partition=number % 2, timestamp=NOW + 1000 * turn)
            producer.produce(COMPACTED, key=b"%d" % (number % 7), value=value)
        producer.produce(COMPACTED, key=b"once %d" % turn, value=b"kept")
        producer.flush()
        time.sleep(0.3)


def _transactions(kafka: ApacheKafka) -> Any:
    producer = _producer(kafka, **{"transactional.id": "one"})
    producer.init_transactions()
    other = _producer(kafka, **{"transactional.id": "two"})
    other.init_transactions()
    for turn in range(6):
        producer.begin_transaction()
        other.begin_transaction()
        for number in range(5):
            producer.produce(TRANSACTIONS, value=b"%d %d" % (turn, number), partition=number % 2)
            other.produce(TRANSACTIONS, value=b"other %d" % turn, partition=0)
        producer.flush()
        other.flush()
        if turn % 2:
            producer.abort_transaction()
        else:
            producer.commit_transaction()
        other.commit_transaction()
    producer.begin_transaction()
    producer.produce(TRANSACTIONS, value=b"open", partition=0)
    producer.flush()
    other.begin_transaction()
    other.produce(TRANSACTIONS, value=b"after", partition=0)
    other.flush()
    other.commit_transaction()
    return producer


def _groups(kafka: ApacheKafka) -> None:
    consumer = _consumer(kafka.bootstrap, "read_committed", GROUP)
    place = confluent.TopicPartition
    _commit(consumer, place("codec-none", 0, 50), place(ROLLED, 1, 3))
    _commit(consumer, place("codec-none", 0, 77))
    producer = _producer(kafka, **{"transactional.id": "offsets"})
    producer.init_transactions()
    for offset, commits in ((20, True), (30, False)):
        producer.begin_transaction()
        producer.send_offsets_to_transaction(
            [place("codec-gzip", 0, offset)], consumer.consumer_group_metadata()
        )
        if commits:
            producer.commit_transaction()
        else:
            producer.abort_transaction()
    consumer.close()


def _commit(consumer: Any, *offsets: Any) -> None:
    """On a busy machine a node of Kafka's may lose its session, and be no coordinator meanwhile."""
    give_up = time.monotonic() + _COMMIT_SECONDS
    while True:
        try:
            consumer.commit(offsets=list(offsets), asynchronous=False)
            return
        except confluent.KafkaException as e:
            if e.args[0].code() not in _NO_COORDINATOR or time.monotonic() > give_up:
                raise
            time.sleep(0.2)


def observe(kafka: ApacheKafka) -> Expected:
    """What Kafka's clients see: topics, records by offset, offsets of groups."""
    admin = kafka_admin.AdminClient({"bootstrap.servers": kafka.bootstrap})
    names = [name for name in admin.list_topics().topics if not name.startswith("__")]
    described = admin.describe_topics(confluent.TopicCollection(names))
    topics: Expected = {}
    for name, future in described.items():
        found = future.result()
        high, low = found.topic_id.get_most_significant_bits(), found.topic_id
        parts = [high, low.get_least_significant_bits()]
        topics[name] = {
            "id": b"".join((bits % (1 << 64)).to_bytes(8, "big") for bits in parts).hex(),
            "partitions": [_partition(kafka, name, n) for n in range(len(found.partitions))],
        }
    group = _consumer(kafka.bootstrap, "read_committed", GROUP)
    places = [confluent.TopicPartition(n, p) for n in names for p in range(2)]
    places = [place for place in places if place.partition < len(topics[place.topic]["partitions"])]
    offsets = {
        f"{place.topic}-{place.partition}": place.offset
        for place in group.committed(places, timeout=20)
        if place.offset >= 0
    }
    group.close()
    return {"topics": topics, "groups": {GROUP: offsets}}


def _partition(kafka: ApacheKafka, topic: str, partition: int) -> Expected:
    consumer = _consumer(kafka.bootstrap, "read_uncommitted", "observer")
    place = confluent.TopicPartition(topic, partition)
    start, end = consumer.get_watermark_offsets(place, timeout=20)
    consumer.close()
    return {
        "start": start,
        "end": end,
        "records": list(read_all(kafka.bootstrap, topic, partition, "read_uncommitted")),
        "committed": [r[0] for r in read_all(kafka.bootstrap, topic, partition, "read_committed")],
    }


def read_all(bootstrap: str, topic: str, partition: int, isolation: str) -> Iterator[list[Any]]:
    """The records of a partition as a consumer reads them, in the form of `Expected`."""
    consumer = _consumer(bootstrap, isolation, "observer")
    consumer.assign([confluent.TopicPartition(topic, partition, 0)])
    try:
        while True:
            message = consumer.poll(20)
            assert message is not None
            error = message.error()
            if error is not None:
                assert error.code() == confluent.KafkaError._PARTITION_EOF
                return
            headers = [[name, _text(value)] for name, value in message.headers() or []]
            yield [
                message.offset(), message.timestamp()[1], _text(message.key()),
                _text(message.value()), headers,
            ]  # fmt: skip
    finally:
        consumer.close()


def _text(data: bytes | None) -> str | None:
    return None if data is None else base64.b64encode(data).decode()


def row(record: Any) -> list[Any]:
    """A record of ours in the form of `Expected`."""
    headers = [[name, _text(value)] for name, value in record.headers]
    return [record.offset, record.timestamp, _text(record.key), _text(record.value), headers]


def _producer(kafka: ApacheKafka, **settings: Any) -> Any:
    given: dict[str, Any] = {"bootstrap.servers": kafka.bootstrap, "linger.ms": 5, "log_level": 0}
    return confluent.Producer(given | settings)


def _consumer(bootstrap: str, isolation: str, group: str) -> Any:
    return confluent.Consumer(
        {
            "bootstrap.servers": bootstrap, "group.id": group, "log_level": 0,
            "enable.auto.commit": False, "isolation.level": isolation,
            "auto.offset.reset": "earliest", "enable.partition.eof": True, "fetch.wait.max.ms": 10,
        }
    )  # fmt: skip


SETTINGS = {
    "log_index_size_max_bytes": "4096",
    "metadata_log_max_record_bytes_between_snapshots": "3000",
    "log_cleaner_min_cleanable_ratio": "0.01",
}


def make(folder: Path) -> Expected:
    """A clean folder at `folder/clean` and a copy of a running Kafka's at `folder/killed`."""
    with apache_kafka(folder / "kafka", 1, **SETTINGS) as kafka:
        opened = write(kafka)
        time.sleep(1.5)  # for the cleaner
        expected = observe(kafka)
        shutil.copytree(kafka.log_dirs[0], folder / "killed")
        kafka.stop()
        del opened
    shutil.copytree(kafka.log_dirs[0], folder / "clean")
    return expected


def recorded(folder: Path) -> Expected:
    """Unpack the recorded folders. Returns what Kafka's clients saw of them."""
    with zipfile.ZipFile(ZIP) as packed:
        packed.extractall(folder)
    expected: Expected = json.loads((folder / "expected.json").read_text())
    return expected


def _record() -> None:
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        (folder / "expected.json").write_text(json.dumps(make(folder)))
        shutil.rmtree(folder / "kafka")
        with zipfile.ZipFile(ZIP, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as packed:
            for path in sorted(folder.rglob("*")):
                packed.write(path, path.relative_to(folder))


if __name__ == "__main__":
    _record()
