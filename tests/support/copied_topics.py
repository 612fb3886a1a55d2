"""Topics to copy, and checks of their copies, for any two servers."""

from __future__ import annotations

from typing import Any

from confluent_kafka import Consumer, Producer, TopicPartition

from tests.support.command import Command

SECONDS = 60.0
Row = tuple[int, bytes | None, bytes | None, Any, int]
"""Partition, key, value, headers, timestamp."""


def read(bootstrap: str, topic: str, places: dict[int, int]) -> list[Row]:
    """The committed records of some partitions, each from an offset on, in their order."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "reader",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
        }
    )
    found: list[Row] = []
    for partition, offset in places.items():
        consumer.assign([TopicPartition(topic, partition, offset)])
        ended = False
        while not ended:
            for message in consumer.consume(1000, 0.1):
                if message.error() is not None:
                    ended = True
                    continue
                key: Any = message.key()
                value: Any = message.value()
                row = (partition, key, value, message.headers(), message.timestamp()[1])
                found.append(row)
    consumer.close()
    return found


def fill(bootstrap: str, topic: str) -> None:
    """Two partitions whose offsets have gaps: aborted transactions, and markers."""
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": f"fill-{topic}"})
    producer.init_transactions(SECONDS)
    for number in range(9):
        producer.begin_transaction()
        for n in range(5):
            producer.produce(
                topic, None if n == 3 else b"v%d.%d" % (number, n),
                None if n == 2 else b"k%d" % n, partition=n % 2,
                headers=[("a", b"1"), ("a", b"\xff"), ("none", None)] if n else None,
                timestamp=1_700_000_000_000 + number,
            )  # fmt: skip
        if number % 3 == 2:
            producer.flush(SECONDS)
            producer.abort_transaction(SECONDS)
        else:
            producer.commit_transaction(SECONDS)


def check_copies(source: str, target: str, topic: str) -> None:
    """Copy a topic from one server to another: records, configs, offsets; what is new later."""
    quafka, there = Command(source), Command(target)
    copy = f"topics copy {topic} --to {target} --format json"
    quafka(f"topics create {topic} -p 2 -c retention.ms=5h")
    fill(source, topic)
    quafka(f"groups reset-offsets g-{topic} -t {topic}:0 --to 17")
    quafka(f"groups reset-offsets g-{topic} -t {topic}:1 --to end")
    done = quafka(f"{copy} -g g-*").json
    assert (done["records"], done["lost"], done["partitions"]) == (30, 0, 2)
    everything = read(source, topic, {0: 0, 1: 0})
    assert len(everything) == 30
    assert read(target, topic, {0: 0, 1: 0}) == everything
    described = there(f"topics describe {topic} --format json").json["topics"][0]
    own = {
        each["name"]: each["value"] for each in described["configs"] if each["source"] == "topic"
    }
    assert own["retention.ms"] == str(5 * 3_600_000)
    (group,) = there(f"groups export g-{topic} --format json").json["groups"]
    places = {each["partition"]: each["offset"] for each in group["partitions"]}
    assert read(target, topic, places) == read(source, topic, {0: 17})

    assert quafka(copy).json["records"] == 0
    quafka(f"topics add-partitions {topic} -n 1")
    quafka(f"produce -t {topic} -p 2", stdin=b"one\ntwo\n")
    assert quafka(copy).json["records"] == 2
    assert read(target, topic, {2: 0}) == read(source, topic, {2: 0})
