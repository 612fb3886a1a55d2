"""Transactions of a real producer, as operators and analysts see them."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, Producer

from quafka.cli import main
from tests.support.cluster import Cluster
from tests.support.command import Command
from tests.support.isolated_snapshot import snapshot_rows
from tests.support.prometheus import Scrape, get
from tests.support.snapshot_reader import manifests
from tests.support.transactions import read

pytestmark = pytest.mark.long

SECONDS = 20.0
PARTITIONS = 3


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cluster]:
    """One whose log has small segments."""
    monkeypatch.setattr("os.nice", lambda _by: 0)
    with Cluster(tmp_path, broker_args=("--wal-segment-bytes", "65536")) as started:
        yield started


def producer(cluster: Cluster, name: str, **settings: Any) -> Producer:
    given = {"bootstrap.servers": cluster.bootstrap, "transactional.id": name, "linger.ms": 0}
    made = Producer({**given, **settings})
    made.init_transactions(SECONDS)
    return made


def test_the_command_finds_a_transaction_that_hangs_and_ends_it(cluster: Cluster) -> None:
    quafka = Command(cluster.bootstrap)
    quafka("topics create orders -p 2")
    slow = producer(cluster, "slow", **{"transaction.timeout.ms": 60_000})
    slow.begin_transaction()
    slow.produce("orders", b"x", partition=1)
    assert slow.flush(SECONDS) == 0
    quick = producer(cluster, "quick")
    quick.begin_transaction()
    quick.produce("orders", b"y", partition=1)
    quick.commit_transaction(SECONDS)
    (found,) = quafka("transactions list --state Ongoing --format json").json["transactions"]
    assert (found["transactional_id"], found["partitions"]) == ("slow", 1)
    assert (found["timeout_seconds"], 0 <= found["open_seconds"] < 60) == (60, True)
    listed = quafka("transactions list").rows
    assert [row[:2] for row in listed] == [["slow", "Ongoing"], ["quick", "CompleteCommit"]]
    (found,) = quafka("transactions describe slow --format json").json["transactions"]
    assert found["partitions"] == [
        {
            "topic": "orders", "partition": 1, "first_offset": 0, "last_stable_offset": 0,
            "high_watermark": 3, "held_back": 3,
        }
    ]  # fmt: skip
    assert "1 open transactions at" in quafka("doctor").out
    operations = cluster.broker.ready["operations"]
    _, _, page = get(operations, "/statusz")
    assert "Open transactions: 1, oldest first" in page
    assert "<td>slow" in page
    quafka("transactions abort slow")
    with pytest.raises(KafkaException, match="fenced"):
        slow.commit_transaction(SECONDS)
    assert quafka("transactions list --state Ongoing").out == "no such transactions\n"
    figures = Scrape(operations)
    assert figures("quafka_transactions_open") == 0
    assert figures("quafka_transactions_ended_total", outcome="commit") == 1
    assert figures("quafka_transaction_requests_fenced_total") >= 1
    again = producer(cluster, "slow")
    again.begin_transaction()
    again.produce("orders", b"z", partition=0)
    assert again.flush(SECONDS) == 0
    assert quafka("transactions abort -t orders").out.startswith("aborted producer ")
    (found,) = quafka("transactions describe slow --format json").json["transactions"]
    assert [each["held_back"] for each in found["partitions"]] in ([], [0])


# --- snapshots --------------------------------------------------------------------------------


class Load:
    """A producer of transactions of any size, of which it aborts a third."""

    def __init__(self, cluster: Cluster, name: str) -> None:
        self.stop = threading.Event()
        self._producer = producer(cluster, name)
        self._random = random.Random(name)
        self._thread = threading.Thread(target=self._run, args=(name,))
        self._thread.start()

    def _run(self, name: str) -> None:
        number = 0
        while not self.stop.is_set():
            self._producer.begin_transaction()
            try:
                number = self._send(name, number)
                if self._random.randrange(3):
                    self._producer.commit_transaction(SECONDS)
                    continue
            except KafkaException as e:
                # librdkafka purges what an abort finds in its queue, sequence numbers included; the
                # next transaction may then have to be aborted, too.
                if not (e.args[0].txn_requires_abort() or e.args[0].code() == KafkaError._STATE):
                    raise
            self._producer.abort_transaction(SECONDS)

    def _send(self, name: str, number: int) -> int:
        for _ in range(self._random.randrange(1, 20)):
            partition = self._random.randrange(PARTITIONS)
            self._producer.produce("orders", f"{name} {number}", partition=partition)
            number += 1
            if not self._random.randrange(4):
                self._producer.flush(SECONDS)
        return number

    def end(self) -> None:
        self.stop.set()
        self._thread.join()


@pytest.mark.local_log
def test_a_snapshot_has_what_consumers_of_its_instant_saw(cluster: Cluster) -> None:
    """Also of transactions that were open then, and end later."""
    Command(cluster.bootstrap)(f"topics create orders -p {PARTITIONS}")
    dest = cluster.folder / "lake"
    loads = [Load(cluster, f"load-{number}") for number in range(3)]
    try:
        for org in ((), (), ("--org", "1")):
            time.sleep(0.3)
            create = ["snapshot", "create", str(dest), "--data", str(cluster.data), *org]
            assert main(create) == 0
    finally:
        for load in loads:
            load.end()
    assert main(["snapshot", "verify", str(dest)]) == 0
    made = manifests(dest)
    parts = [part for manifest in made for part in manifest.topics[0].partitions]
    assert any(part.aborted for part in parts)
    for level in ("read_committed", "read_uncommitted"):
        consumed = read(cluster.bootstrap, "orders", level, PARTITIONS)
        assert len(consumed) > 100
        for manifest in made:
            ends = {
                part.partition: part.last_stable_offset
                if level == "read_committed"
                else part.high_watermark
                for part in manifest.topics[0].partitions
            }
            expected = [row for row in consumed if row[1] < ends[row[0]]]
            assert snapshot_rows(dest, manifest.id, "orders", level) == expected
