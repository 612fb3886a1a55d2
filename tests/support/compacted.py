"""Compacted topics for tests: the same writes to any broker, and what a consumer then reads."""

from __future__ import annotations

import random
import time
from typing import Any, NamedTuple

import confluent_kafka as confluent
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from quafka_proto.schema.quafka import DescribeCompactionRequest, DescribeCompactionResponse
from tests.support.raw_client import RawClient

EAGER = (
    "--log-cleaner-backoff-ms", "100",
    "--log-cleaner-max-wait-ms", "0",
)  # fmt: skip
"""What a broker is told, so that it compacts what is due at once."""
CONFIGS = {
    "cleanup.policy": "compact",
    "min.cleanable.dirty.ratio": "0.0001",
    "max.compaction.lag.ms": "100",
    "segment.ms": "100",
}
"""A topic that is due after any write. Apache Kafka compacts only what is in closed segments."""
ALWAYS_DUE = ("--log-cleaner-max-compaction-lag-ms", "100")
"""The same for topics that others create."""
LAST = b"last"
"""The key of the record that closes the segments before it."""
_ROLLED_SECONDS = 0.3


class Row(NamedTuple):
    """A record as a consumer sees it."""

    offset: int
    key: bytes | None
    value: bytes | None


def create(bootstrap: str, topic: str, configs: dict[str, str] = CONFIGS) -> None:
    """Create a topic with one partition."""
    admin: Any = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(topic, 1, 1, config=configs)])[topic].result(30)


def fill(bootstrap: str, topic: str, seed: int, rounds: int = 12) -> None:
    """Puts, tombstones, committed and aborted transactions, then the record with key `LAST`.

    The offsets are the same on every broker: each round ends before the next one begins.
    """
    rng = random.Random(seed)
    plain = confluent.Producer(
        {"bootstrap.servers": bootstrap, "linger.ms": 5, "enable.idempotence": True, "log_level": 0}
    )
    settings = {"bootstrap.servers": bootstrap, "transactional.id": topic, "log_level": 0}
    transactional = confluent.Producer(settings)
    transactional.init_transactions(30)
    for number in range(rounds):
        kind = rng.choice(("plain", "plain", "commit", "abort"))
        producer = plain if kind == "plain" else transactional
        if kind != "plain":
            producer.begin_transaction()
        for _ in range(rng.randrange(1, 40)):
            key = b"key %d" % rng.randrange(25)
            value = None if rng.random() < 0.15 else b"%d " % number * rng.randrange(1, 20)
            producer.produce(topic, value, key, partition=0)
        assert producer.flush(30) == 0
        if kind == "commit":
            producer.commit_transaction(30)
        elif kind == "abort":
            producer.abort_transaction(30)
        if kind != "plain":
            _wait_for_marker(bootstrap, topic)
    time.sleep(_ROLLED_SECONDS)
    plain.produce(topic, b"", LAST, partition=0)
    assert plain.flush(30) == 0


def _wait_for_marker(bootstrap: str, topic: str) -> None:
    """Apache Kafka answers the end of a transaction before its marker is in the partition."""
    consumers = [_consumer(bootstrap, level) for level in ("read_committed", "read_uncommitted")]
    place = confluent.TopicPartition(topic, 0)
    try:
        while len({each.get_watermark_offsets(place, 30) for each in consumers}) > 1:
            time.sleep(0.01)
    finally:
        for each in consumers:
            each.close()


def _consumer(bootstrap: str, isolation: str) -> confluent.Consumer:
    return confluent.Consumer(
        {
            "bootstrap.servers": bootstrap, "group.id": "not-used", "log_level": 0,
            "enable.auto.commit": False, "isolation.level": isolation,
            "auto.offset.reset": "error", "enable.partition.eof": True, "fetch.wait.max.ms": 10,
        }
    )  # fmt: skip


def read(bootstrap: str, topic: str, isolation: str = "read_uncommitted") -> list[Row]:
    """All records of partition 0."""
    consumer = _consumer(bootstrap, isolation)
    consumer.assign([confluent.TopicPartition(topic, 0, 0)])
    found: list[Row] = []
    try:
        while True:
            message = consumer.poll(20)
            assert message is not None, "neither a record nor the end of the partition"
            error = message.error()
            if error is not None:
                assert error.code() == confluent.KafkaError._PARTITION_EOF, error
                return found
            offset = message.offset()
            assert offset is not None
            found.append(Row(offset, message.key(), message.value()))
    finally:
        consumer.close()


def wait_for_pass(address: tuple[str, int], topic: str, seconds: float = 30) -> None:
    """Wait until every partition with records has been compacted, and nothing is due."""
    deadline = time.monotonic() + seconds
    with RawClient(address) as client:
        while True:
            request = DescribeCompactionRequest(topic=topic)
            answer = client.call(request, DescribeCompactionResponse, 0)
            assert answer.partitions, f"{topic} is not compacted"
            passes = [each.last_ms >= 0 for each in answer.partitions if each.clean_bytes]
            if passes and all(passes) and not any(each.due for each in answer.partitions):
                return
            assert time.monotonic() < deadline, answer
            time.sleep(0.1)


def wait_compacted(bootstrap: str, topic: str, seconds: float = 20) -> list[Row]:
    """Wait until each key has one record, and return the records."""
    deadline = time.monotonic() + seconds
    while True:
        found = read(bootstrap, topic)
        keys = [row.key for row in found]
        if len(set(keys)) == len(keys):
            return found
        assert time.monotonic() < deadline, f"{len(keys)} records have {len(set(keys))} keys"
        time.sleep(0.1)
