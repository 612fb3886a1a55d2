"""Compacted topics as real clients see them: errors, gaps, empty batches, and beside Kafka."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import confluent_kafka as confluent
import pyarrow.parquet as pq
import pytest
from confluent_kafka import KafkaError

from pyspark_quafka import export_parquet
from tests.support import compacted
from tests.support.apache_kafka import apache_kafka
from tests.support.cluster import Cluster
from tests.support.compacted import CONFIGS, EAGER, LAST, create, fill, read, wait_compacted
from tests.support.consumers import CONSUMER_NAMES, CONSUMERS
from tests.support.group_members import GROUPS
from tests.support.java import JAVA_TOOLS


@pytest.fixture(scope="module")
def bootstrap(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A cluster that compacts what is due at once."""
    folder = tmp_path_factory.mktemp("compaction")
    with Cluster(folder, broker_args=(*EAGER, *GROUPS)) as cluster:
        yield cluster.bootstrap


@pytest.fixture(scope="module")
def sparse(bootstrap: str) -> list[tuple[int, bytes]]:
    """The offsets and values of the topic "sparse", of which compaction has left little."""
    create(bootstrap, "sparse")
    producer = confluent.Producer({"bootstrap.servers": bootstrap, "linger.ms": 5})
    for number in range(3_000):
        key = b"kept %d" % number if number in (0, 700, 701, 2_000) else b"often"
        producer.produce("sparse", b"%d" % number, key, partition=0)
        if not number % 50:
            producer.flush(30)
    assert producer.flush(30) == 0
    found = wait_compacted(bootstrap, "sparse")
    assert [row.offset for row in found] == [0, 700, 701, 2_000, 2_999]
    return [(row.offset, row.value or b"") for row in found]


@pytest.mark.long
@pytest.mark.parametrize("name", CONSUMER_NAMES)
def test_consumers_read_over_gaps(
    bootstrap: str, sparse: list[tuple[int, bytes]], name: str
) -> None:
    consumer = CONSUMERS[name](bootstrap, "sparse")
    try:
        consumer.assign([0])
        for start in (0, 1, 702, 2_999):  # at records and in gaps
            consumer.seek(0, start)
            expected = [each for each in sparse if each[0] >= start]
            found: list[tuple[int, bytes]] = []
            deadline = time.monotonic() + 20
            while len(found) < len(expected):
                found += [(offset, value) for _, offset, value in consumer.poll()]
                assert time.monotonic() < deadline, found
            assert found == expected
    finally:
        consumer.close()


@pytest.mark.long
def test_kcat_reads_over_gaps(bootstrap: str, sparse: list[tuple[int, bytes]], kcat: str) -> None:
    command = [kcat, "-C", "-b", bootstrap, "-t", "sparse", "-o", "1", "-e", "-f", "%o %s\\n"]
    done = subprocess.run(command, check=True, capture_output=True, timeout=30)
    expected = [b"%d %s" % each for each in sparse[1:]]
    assert done.stdout.splitlines() == expected


def test_a_record_without_a_key_fails_its_batch_by_name(bootstrap: str) -> None:
    """As librdkafka's test 0011: the errors of the others say that they are not to blame."""
    create(bootstrap, "keys")
    errors: dict[bytes, int] = {}
    producer = confluent.Producer({"bootstrap.servers": bootstrap, "linger.ms": 200})

    def delivered(error: KafkaError | None, message: confluent.Message) -> None:
        errors[message.value() or b""] = 0 if error is None else error.code()

    for number in range(6):
        key = None if number in (3, 4) else b"key"
        producer.produce("keys", b"%d" % number, key, partition=0, on_delivery=delivered)
    assert producer.flush(30) == 0
    different = KafkaError._INVALID_DIFFERENT_RECORD
    assert errors == {
        b"%d" % n: KafkaError.INVALID_RECORD if n in (3, 4) else different for n in range(6)
    }


@pytest.mark.long
def test_no_key_goes_backwards_while_passes_run(bootstrap: str) -> None:
    create(bootstrap, "counters")
    stop = threading.Event()
    written = 0

    def write() -> None:
        nonlocal written
        producer = confluent.Producer({"bootstrap.servers": bootstrap, "linger.ms": 5})
        while not stop.is_set():
            for key in range(20):
                producer.produce("counters", b"%d" % written, b"%d" % key, partition=0)
            written += 1
            producer.flush(10)
            time.sleep(0.05)  # readers come to the end between two batches

    writer = threading.Thread(target=write)
    writer.start()
    sizes: list[int] = []
    try:
        end = time.monotonic() + 20
        passes = 0
        while passes < 3 and time.monotonic() < end:
            seen: dict[bytes | None, int] = defaultdict(lambda: -1)
            rows = read(bootstrap, "counters")
            for row in rows:
                value = int(row.value or b"")
                assert value > seen[row.key], (row, seen[row.key])
                seen[row.key] = value
            assert len(rows) < 20 or len(seen) == 20, "a key has no value"
            passes += bool(sizes) and len(rows) < sizes[-1]
            sizes.append(len(rows))
    finally:
        stop.set()
        writer.join()
    assert passes, "no pass was seen"
    last = {row.key: int(row.value or b"") for row in wait_compacted(bootstrap, "counters")}
    assert last == {b"%d" % key: written - 1 for key in range(20)}


@pytest.mark.long
@JAVA_TOOLS
def test_apache_kafka_leaves_the_same_records(bootstrap: str, tmp_path: Path) -> None:
    with apache_kafka(tmp_path, log_cleaner_min_cleanable_ratio="0.0001") as kafka:
        for seed in range(2):
            topic = f"table-{seed}"
            left: list[list[compacted.Row]] = []
            for server in (bootstrap, kafka.bootstrap):
                create(server, topic, CONFIGS)
                fill(server, topic, seed)
            for server in (bootstrap, kafka.bootstrap):
                left.append(wait_compacted(server, topic))
                assert left[-1] == read(server, topic, "read_committed")
            ours, theirs = left
            assert ours == theirs
            assert ours[-1].key == LAST


@pytest.mark.long
def test_snapshots_of_compacted_topics_are_read(tmp_path: Path) -> None:
    with Cluster(tmp_path, broker_args=EAGER) as cluster:
        create(cluster.bootstrap, "table")
        fill(cluster.bootstrap, "table", seed=5)
        left = wait_compacted(cluster.bootstrap, "table")
        lake = str(tmp_path / "lake")
        command = [sys.executable, "-m", "quafka", "snapshot", "create", lake]
        subprocess.run([*command, "--data", str(cluster.data)], check=True, capture_output=True)
    export_parquet(lake, str(tmp_path / "parquet"))
    (file,) = (tmp_path / "parquet").rglob("*.parquet")
    rows: Any = pq.read_table(str(file)).to_pylist()
    assert [(row["offset"], row["key"], row["value"]) for row in rows] == left
