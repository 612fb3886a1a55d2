"""Compares what is read from a folder with what Kafka's clients saw."""

from __future__ import annotations

from typing import Any

from quafka_broker.kafka_logs.log_folders import KafkaFolders
from quafka_broker.kafka_logs.partition_log import PartitionLog
from quafka_proto.record_codec import Record, iter_records
from quafka_proto.records import CONTROL, TRANSACTIONAL, read_header
from tests.support.kafka_folders import GROUP, Expected, row


def check_folders(folders: KafkaFolders, expected: Expected) -> None:
    """Every topic, record, bound, aborted transaction and committed offset."""
    names = {name for name in folders.topics if not name.startswith("__")}
    assert names == set(expected["topics"])
    for name, topic in expected["topics"].items():
        found = folders.topics[name]
        assert found.topic_id.hex() == topic["id"]
        assert found.partition_count == len(topic["partitions"])
        for number, partition in enumerate(topic["partitions"]):
            check_partition(folders.open(name, number), partition)
    offsets = folders.groups()[GROUP].offsets
    seen = {f"{name}-{number}": at.offset for (name, number), at in offsets.items()}
    assert seen == expected["groups"][GROUP]


def check_partition(log: PartitionLog, expected: dict[str, Any]) -> None:
    """Bounds and records, read in pieces of several sizes."""
    assert (log.log_start, log.log_end) == (expected["start"], expected["end"])
    for size in (1, 300, 1 << 20):
        found = [row(record) for record, _ in records(log, size)]
        assert found == expected["records"]
    aborted = {
        (each.producer_id, offset)
        for each in log.aborted(log.log_start, log.log_end)
        for offset in range(each.first_offset, each.last_offset)
    }
    committed = [
        record.offset
        for record, producer in records(log, 1 << 20)
        if record.offset < log.last_stable_offset and (producer, record.offset) not in aborted
    ]
    assert committed == expected["committed"]


def records(log: PartitionLog, size: int) -> list[tuple[Record, int]]:
    """The records of all batches that are no control batches, each with its transaction's producer
    (-1: none)."""
    found: list[tuple[Record, int]] = []
    offset = log.log_start
    while offset < log.log_end:
        batches = log.read(offset, size)
        if not batches:
            break
        for batch in batches:
            header = read_header(batch.data)
            producer = header.producer_id if header.attributes & TRANSACTIONAL else -1
            assert batch.next_offset == header.last_offset + 1 > offset
            offset = batch.next_offset
            if not header.attributes & CONTROL:
                each = [r for r in iter_records(batch.data) if r.offset >= log.log_start]
                found += [(record, producer) for record in each]
            if batch.path is not None:
                with batch.path.open("rb") as file:
                    file.seek(batch.position)
                    assert file.read(len(batch.data)) == batch.data
    return found
