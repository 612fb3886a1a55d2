"""A copy job with transactions: each snapshot, and a restored broker, has each record once."""

from __future__ import annotations

import shutil
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

from quafka.cli import main
from quafka_proto.snapshot_format import SnapshotManifest
from tests.support.cluster import Cluster
from tests.support.command import Command
from tests.support.isolated_snapshot import snapshot_rows
from tests.support.snapshot_reader import manifests
from tests.support.transactions import committed, read

pytestmark = pytest.mark.long

SECONDS = 20.0
RECORDS = 1_500
GROUP = "copy"
COMMITTED = "read_committed"


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cluster]:
    """One whose log has small segments."""
    monkeypatch.setattr("os.nice", lambda _by: 0)
    with Cluster(tmp_path, broker_args=("--wal-segment-bytes", "65536")) as started:
        yield started


class CopyJob:
    """Copies `source` to `copy` from the group's offset on, in transactions that have the offset.

    It aborts some of them and begins these again. It ends with the source, or with its broker.
    """

    def __init__(self, cluster: Cluster, start: int = 0) -> None:
        settings = {"bootstrap.servers": cluster.bootstrap}
        self._member = Consumer({**settings, "group.id": GROUP})
        self._producer = Producer(
            {**settings, "transactional.id": "copy-job", "linger.ms": 0, "log_level": 0}
        )
        self._producer.init_transactions(SECONDS)
        self.at = start
        self.failed = False
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        turn = 0
        while self.at < RECORDS:
            turn += 1
            try:
                self._copy_some(1 + turn % 37, abort=not turn % 3)
            except KafkaException:
                self.failed = True
                return

    def _copy_some(self, count: int, *, abort: bool) -> None:
        end = min(RECORDS, self.at + count)
        self._producer.begin_transaction()
        for number in range(self.at, end):
            self._producer.produce("copy", f"{number}", partition=number % 2)
            if not number % 9:
                self._producer.flush(SECONDS)
        offset = TopicPartition("source", 0, end)
        metadata = self._member.consumer_group_metadata()
        self._producer.send_offsets_to_transaction([offset], metadata, SECONDS)
        if abort:
            self._producer.abort_transaction(SECONDS)
            return
        self._producer.commit_transaction(SECONDS)
        self.at = end

    def end(self) -> None:
        """Wait for the end of the source."""
        self._thread.join()
        self._member.close()


def copied_at(manifest: SnapshotManifest) -> int:
    """The group's committed offset in a snapshot."""
    found = [at for group in manifest.groups if group.group == GROUP for at in group.offsets]
    return found[0].offset if found else 0


@pytest.mark.local_log
def test_snapshots_and_a_restored_broker_have_each_record_once(cluster: Cluster) -> None:
    quafka = Command(cluster.bootstrap)
    quafka("topics create source")
    quafka("topics create copy -p 2")
    numbers = "\n".join(map(str, range(RECORDS)))
    quafka("produce -t source", stdin=numbers.encode())
    dest = cluster.folder / "lake"
    job = CopyJob(cluster)
    for number in range(1, 4):
        while job.at < number * RECORDS // 5:
            assert not job.failed
            time.sleep(0.01)
        assert main(["snapshot", "create", str(dest), "--data", str(cluster.data)]) == 0
    made = manifests(dest)
    for manifest in made:
        values = [int(value) for _, _, value in snapshot_rows(dest, manifest.id, "copy", COMMITTED)]
        assert sorted(values) == list(range(copied_at(manifest))), "one instant, one transaction"
    assert RECORDS // 2 <= copied_at(made[-1]) < RECORDS

    cluster.broker.kill()
    shutil.rmtree(cluster.data)
    assert main(["snapshot", "restore", str(dest), "--data", str(cluster.data)]) == 0
    cluster.start_broker()
    job.end()
    assert job.failed, "it would go on from where it was"
    start = committed(cluster.bootstrap, "source", GROUP)
    assert start == copied_at(made[-1])
    again = CopyJob(cluster, start)
    again.end()
    assert not again.failed
    values = [int(value) for _, _, value in read(cluster.bootstrap, "copy", COMMITTED)]
    assert sorted(values) == list(range(RECORDS))
