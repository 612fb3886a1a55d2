"""Snapshots carry topics whose records Redis has: what was there at the cut, for Spark's reader."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from pyspark_quafka.damage import CorruptBatchError
from pyspark_quafka.offsets import ranges_to_read
from pyspark_quafka.options import read_options
from pyspark_quafka.planner import plan
from pyspark_quafka.scan import run
from pyspark_quafka.snapshot import open_snapshot
from pyspark_quafka.store import open_store
from quafka.cli import main
from quafka_proto.snapshot_format import SnapshotManifest, SnapshotPartition
from tests.integration.test_redis_streams import cluster_over, create
from tests.support.cluster import Cluster
from tests.support.redis_server import RedisServer, load
from tests.support.snapshot_reader import in_folder, manifests, values

pytestmark = [pytest.mark.long, pytest.mark.needs("redis-server")]

Quafka = Callable[..., Any]


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RedisServer]:
    with RedisServer(tmp_path / "redis") as found:
        yield found


@pytest.fixture
def quafka(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Quafka:
    """Runs `quafka snapshot ...`; it must succeed; gives what it printed, and to stderr."""
    monkeypatch.setattr("os.nice", int)

    def call(*arguments: str | Path) -> tuple[str, str]:
        code = main(["snapshot", *map(str, arguments)])
        said = capsys.readouterr()
        assert code == 0, said.err
        return said.out, said.err

    return call


def spark_rows(dest: Path, **options: str) -> list[bytes]:
    """The values that Spark's reader finds, by partition and offset."""
    checked = read_options({"path": str(dest), "subscribe": "t", **options})
    snapshot = open_snapshot(open_store(checked.path), checked.as_of, checked.org)
    found = [
        row
        for scan in plan(snapshot, ranges_to_read(snapshot, checked), checked)
        for batch in run(scan)
        for row in batch.to_pylist()
    ]
    return [r["value"] for r in sorted(found, key=lambda row: (row["partition"], row["offset"]))]


def partitions(manifest: SnapshotManifest) -> list[SnapshotPartition]:
    topic = manifest.topic(1, "t")
    assert topic is not None
    return topic.partitions


@pytest.mark.local_log
def test_a_snapshot_has_what_redis_had_at_the_cut(
    tmp_path: Path, server: RedisServer, quafka: Quafka
) -> None:
    """While others add and trim; Spark reads it; a restore has the topic and the group."""
    dest = tmp_path / "dest"
    before = [[b"%d-%d" % (number, n) for n in range(3_000)] for number in range(2)]
    with server.client() as client, cluster_over(tmp_path, server) as cluster:
        for number in range(2):
            load(client, f"s:{number}", before[number], 500)
        create(cluster, server.source("s:{p}"), partitions=3)
        consumer = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": "g"})
        consumer.assign([TopicPartition("t", 0, 0)])
        read = consumer.consume(100, 10)
        consumer.commit(message=read[-1], asynchronous=False)
        consumer.close()
        stop = threading.Event()

        def write() -> None:
            with server.client() as other:
                while not stop.wait(0.002):
                    other.xadd("s:1", {"value": "later"}, maxlen=2_000, approximate=True)

        writing = threading.Thread(target=write)
        writing.start()
        quafka("create", dest, "--data", cluster.data)
        ready = cluster.broker.ready
        remote = ("--broker", ready["mesh"], "--broker-id", ready["node_id"])
        key = cluster.folder / "gateway.key"
        out, _ = quafka(
            "create", tmp_path / "org", *remote, "--node-key", key, "--org", "1",
            "--format", "json",
        )  # fmt: skip
        stop.set()
        writing.join()
    assert json.loads(out)["records"] > 4_000
    for folder in (dest, tmp_path / "org"):
        (manifest,) = manifests(folder)
        found = [values(in_folder(folder), manifest, 1, "t", number) for number in range(3)]
        assert found[0] == before[0]
        assert found[1]
        assert set(found[1]) - {b"later"} <= set(before[1])
        assert not found[2]
        assert [p.copied for p in partitions(manifest)] == list(map(len, found))
        assert spark_rows(folder) == [each for values_ in found for each in values_]
        assert len(spark_rows(folder, maxRecordsPerPartition="100")) == sum(map(len, found))
        quafka("verify", folder)
        assert "log start" in quafka("show", folder)[0]
    quafka("restore", dest, "--data", tmp_path / "restored")
    allowed = ("--sources-redis-allowed", server.address)
    with Cluster(tmp_path / "again", allowed, data=tmp_path / "restored") as cluster:
        consumer = Consumer(
            {"bootstrap.servers": cluster.bootstrap, "group.id": "g", "enable.auto.commit": False}
        )
        (committed,) = consumer.committed([TopicPartition("t", 0)], 10)
        assert committed.offset == (read[-1].offset() or 0) + 1
        consumer.assign([committed])
        assert [m.value() for m in consumer.consume(10, 10)] == before[0][100:110]
        consumer.close()


@pytest.mark.local_log
def test_a_redis_that_is_away_or_too_large_costs_its_own_records(
    tmp_path: Path, server: RedisServer, quafka: Quafka
) -> None:
    with server.client() as client:
        load(client, "s", [b"x" * 1_000] * 5_000)
    limits = ("--sources-redis-snapshot-bytes", "3000000")
    allowed = ("--sources-redis-allowed", server.address)
    with Cluster(tmp_path, (*allowed, *limits)) as cluster:
        create(cluster, server.source("s"))
        producer = Producer({"bootstrap.servers": cluster.bootstrap})
        producer.produce("ours", b"y")
        assert producer.flush(10) == 0
        _, err = quafka("create", tmp_path / "large", "--data", cluster.data)
        assert "t-0" in err
        server.kill()
        _, err = quafka("create", tmp_path / "away", "--data", cluster.data)
        assert "t-0" in err
        cluster.broker.kill()
        _, err = quafka("create", tmp_path / "stopped", "--data", cluster.data)
        assert "t-0" in err
    for name in ("large", "away", "stopped"):
        (manifest,) = manifests(tmp_path / name)
        (partition,) = partitions(manifest)
        assert partition.lost
        assert (partition.copied > 1_000) == (name == "large")
        assert values(in_folder(tmp_path / name), manifest, 1, "ours") == [b"y"]
        quafka("verify", tmp_path / name)
        with pytest.raises(CorruptBatchError):
            spark_rows(tmp_path / name)
