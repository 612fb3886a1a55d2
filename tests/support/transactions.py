"""What a client of transactions does in tests, and what consumers read afterwards.

A client commits, aborts and commits, each time COUNT records over the two partitions of a topic,
and with each commit the offset 3 of partition 0 for a group. Then a second producer with the same
transactional id fences the first.
"""

from __future__ import annotations

from confluent_kafka import Consumer, TopicPartition

COUNT = 5
SENT = ("commit", "abort", "again")
COMMITTED_OFFSET = 3

Row = tuple[int, int, str]
"""Partition, offset, value."""


def rows(level: str) -> list[Row]:
    """What a consumer of this isolation level reads. A control batch takes one offset."""
    found: list[Row] = []
    ends = [0, 0]
    for kind in SENT:
        for number in range(COUNT):
            partition = number % 2
            if kind != "abort" or level == "read_uncommitted":
                found.append((partition, ends[partition], f"{kind}{number}"))
            ends[partition] += 1
        ends = [end + 1 for end in ends]
    return sorted(found)


def read(bootstrap: str, topic: str, level: str, partitions: int = 2) -> list[Row]:
    """What confluent-kafka reads of a topic, up to the end that its level has."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "reader",
            "isolation.level": level,
            "enable.partition.eof": True,
            "enable.auto.commit": False,
        }
    )
    consumer.assign([TopicPartition(topic, number, 0) for number in range(partitions)])
    found: list[Row] = []
    ended = 0
    try:
        while ended < partitions:
            message = consumer.poll(10.0)
            assert message is not None, found
            if message.error():
                ended += 1
                continue
            partition, offset, value = message.partition(), message.offset(), message.value()
            assert partition is not None
            assert offset is not None
            assert value is not None
            found.append((partition, offset, value.decode()))
    finally:
        consumer.close()
    return sorted(found)


def committed(bootstrap: str, topic: str, group: str) -> int:
    """The stable offset of the group in partition 0."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group})
    try:
        (found,) = consumer.committed([TopicPartition(topic, 0)], 10.0)
    finally:
        consumer.close()
    return found.offset
