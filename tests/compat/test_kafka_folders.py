"""What a real Apache Kafka 4.3 writes just now is read as its own programs read it."""

from __future__ import annotations

import asyncio
import re
import time
from pathlib import Path
from typing import Any

import confluent_kafka as untyped_confluent
import pytest

from quafka_broker.imports.importer import import_topics
from quafka_broker.kafka_logs.batch_file import open_batches
from quafka_broker.kafka_logs.log_folders import KafkaFolders
from tests.support.apache_kafka import apache_kafka
from tests.support.java import JAVA_TOOLS
from tests.support.java_tools import run_tools, tool
from tests.support.kafka_folder_checks import check_folders, records
from tests.support.kafka_folders import ROLLED, SETTINGS, TRANSACTIONS, make

pytestmark = pytest.mark.long

confluent: Any = untyped_confluent


@JAVA_TOOLS
def test_a_copied_and_a_stopped_folder(tmp_path: Path) -> None:
    expected = make(tmp_path)
    for name in ("clean", "killed"):
        check_folders(KafkaFolders([tmp_path / name]), expected)
    folders = KafkaFolders([tmp_path / "clean"])
    paths = [
        segment.path
        for name in (*expected["topics"], "__consumer_offsets", "__transaction_state")
        for number in folders.topics[name].partitions
        for segment in folders.open(name, number).view.segments
    ]
    files = ",".join(map(str, paths))
    dumped = run_tools({"dump": tool("DumpLogSegments", "--files", files)})["dump"]
    assert dumped.exit == 0, dumped.output
    assert list(_batches(paths)) == [_dumped(line) for line in dumped.lines if _dumped(line)]


def _batches(paths: list[Path]) -> Any:
    """What kafka-dump-log prints of each batch."""
    for path in paths:
        with open_batches(path) as file:
            for placed in file.walk(0, verify=True):
                header = placed.header
                yield (
                    header.base_offset, header.last_offset, header.record_count,
                    header.base_sequence, header.producer_id, header.producer_epoch,
                    header.leader_epoch, placed.position, header.max_timestamp, header.length,
                    header.crc,
                )  # fmt: skip


_DUMPED = re.compile(
    r"baseOffset: (\d+) lastOffset: (\d+) count: (\d+) baseSequence: (-?\d+) lastSequence: -?\d+ "
    r"producerId: (-?\d+) producerEpoch: (-?\d+) partitionLeaderEpoch: (\d+) .*"
    r"position: (\d+) CreateTime: (-?\d+) size: (\d+) magic: 2 .*crc: (\d+) isvalid: true"
)


def _dumped(line: str) -> tuple[int, ...] | None:
    match = _DUMPED.fullmatch(line.strip())
    return match and tuple(map(int, match.groups()))


@JAVA_TOOLS
def test_a_running_kafka_is_followed_and_imported(tmp_path: Path) -> None:
    with apache_kafka(tmp_path / "kafka", 2, **SETTINGS) as kafka:
        producer = confluent.Producer({"bootstrap.servers": kafka.bootstrap, "linger.ms": 0})
        _produce(producer, 0)
        folders = KafkaFolders([kafka.settings])
        assert folders.running
        log = folders.open(ROLLED, 0)
        for first in range(10, 60, 10):
            _produce(producer, first)
            assert log.refresh()
            assert [r.offset for r, _ in records(log, 1 << 20)] == list(range(first + 10))
            assert not log.refresh()
        opened = confluent.Producer(
            {"bootstrap.servers": kafka.bootstrap, "transactional.id": "open", "log_level": 0}
        )
        opened.init_transactions()
        opened.begin_transaction()
        opened.produce(TRANSACTIONS, b"open")
        opened.flush()
        give_up = time.monotonic() + 20
        while not (folders.refresh() and TRANSACTIONS in folders.topics):
            assert time.monotonic() < give_up
        data = tmp_path / "data"
        (first_import, second) = asyncio.run(import_topics(folders, data, verify=True))
        assert (first_import.records, second.open) == (60, [0])
        _produce(producer, 60)
        kafka.stop()
        del opened
    stopped = KafkaFolders([kafka.settings])
    assert not stopped.running
    again = asyncio.run(import_topics(stopped, data, verify=True))
    assert [report.records for report in again] == [10, 0]


def _produce(producer: Any, first: int) -> None:
    for number in range(first, first + 10):
        producer.produce(ROLLED, b"%d" % number)
    assert producer.flush(20) == 0
