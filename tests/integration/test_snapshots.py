"""`quafka snapshot` beside a broker that serves: equal to what consumers saw at the cut."""

from __future__ import annotations

import errno
import json
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from quafka.cli import main
from quafka_mesh_ops.identity import Identity
from quafka_proto.snapshot_format import SnapshotManifest
from tests.support.cluster import Cluster
from tests.support.confluent import consume
from tests.support.snapshot_reader import in_folder, manifests, read_topic, values
from tests.support.snapshots import SnapshotMaker

CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]
ORG = 1

Quafka = Callable[..., str]


@pytest.fixture(autouse=True)
def not_nice(monkeypatch: pytest.MonkeyPatch) -> None:
    """The command runs in this process, which has other tests to run."""
    monkeypatch.setattr("os.nice", lambda _by: 0)


@pytest.fixture
def quafka(capsys: pytest.CaptureFixture[str]) -> Quafka:
    """Runs `quafka snapshot ...`; it must succeed; gives what it printed."""

    def run(*arguments: str | Path) -> str:
        code = main(["snapshot", *map(str, arguments)])
        said = capsys.readouterr()
        assert code == 0, said.err
        return said.out

    return run


@pytest.fixture
def cluster(tmp_path: Path) -> Any:
    """One whose log has small segments."""
    with Cluster(tmp_path, broker_args=("--wal-segment-bytes", "65536")) as started:
        yield started


class Load:
    """Producers of all codecs, numbering their records, until they are told to stop."""

    def __init__(self, bootstrap: str) -> None:
        self._producers = {
            codec: Producer(
                {
                    "bootstrap.servers": bootstrap,
                    "compression.type": codec,
                    "linger.ms": 2,
                    "message.timeout.ms": 60_000,
                    "reconnect.backoff.max.ms": 200,
                }
            )
            for codec in CODECS
        }
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.sent = 0

    def __enter__(self) -> Load:
        """Every topic is there when it has begun."""
        self._send()
        for producer in self._producers.values():
            assert producer.flush(10) == 0
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()
        for producer in self._producers.values():
            assert producer.flush(60) == 0

    def _run(self) -> None:
        while not self._stop.is_set():
            self._send()
            time.sleep(0.0005)

    def _send(self) -> None:
        for codec, producer in self._producers.items():
            producer.produce(codec, b"%d " % self.sent * 9, key=codec)
            producer.poll(0)
        self.sent += 1


def commit(bootstrap: str, group: str, topic: str, offset: int) -> None:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group})
    consumer.commit(offsets=[TopicPartition(topic, 0, offset)], asynchronous=False)
    consumer.close()


def at(cluster: Cluster) -> tuple[str, ...]:
    """Where the broker is on the mesh, and who."""
    ready = cluster.broker.ready
    return "--broker", ready["mesh"], "--broker-id", ready["node_id"]


def check(dest: Path, manifest: SnapshotManifest, bootstrap: str) -> None:
    """Every topic at the cut is what a consumer sees up to there."""
    for topic in manifest.topics:
        (partition,) = topic.partitions
        seen = consume(bootstrap, topic.name, partition.high_watermark)
        found = read_topic(in_folder(dest), manifest, topic)[0]
        stored = {record.offset: (record.key, record.value, record.timestamp) for record in found}
        expected = {m.offset(): (m.key(), m.value(), m.timestamp()[1]) for m in seen}
        assert stored == expected


@pytest.mark.long
@pytest.mark.local_log
def test_under_load_and_kill_9(cluster: Cluster, tmp_path: Path, quafka: Quafka) -> None:
    dest = tmp_path / "dest"
    create = ("create", dest, "--data", cluster.data, "--format", "json")
    made: list[dict[str, Any]] = []
    with Load(cluster.bootstrap):
        for turn in range(4):
            time.sleep(0.2)
            commit(cluster.bootstrap, "group", "none", 10 + turn)
            made.append(json.loads(quafka(*create)))
            if turn == 1:
                cluster.broker.kill()
                made.append(json.loads(quafka(*create)))  # in the place of the broker
                cluster.start_broker()
            if turn == 2:
                cluster.broker.kill()
                cluster.start_broker()
    found = manifests(dest)
    assert [about["id"] for about in made] == [manifest.id for manifest in found]
    committed = [
        {(g.group, at.topic): at.offset for g in manifest.groups for at in g.offsets}
        for manifest in found
    ]
    assert [offsets["group", "none"] for offsets in committed] == [10, 11, 11, 12, 13]
    assert {topic.name for topic in found[-1].topics} == set(CODECS)
    for manifest in found:
        check(dest, manifest, cluster.bootstrap)
        quafka("verify", dest, manifest.id)
    sizes = [about["records"] for about in made]
    assert sizes == sorted(sizes)
    assert made[-1]["reused"] > 0


@pytest.mark.long
@pytest.mark.local_log
def test_from_elsewhere(
    cluster: Cluster, tmp_path: Path, quafka: Quafka, capsys: pytest.CaptureFixture[str]
) -> None:
    """Over the mesh, as a node on the broker's allow-list; segments grow and are gone on with."""
    gateway, stranger = cluster.folder / "gateway.key", tmp_path / "stranger.key"
    dests = {tmp_path / "all": (), tmp_path / "org": ("--org", "1")}
    with Load(cluster.bootstrap):
        for _ in range(2):
            for dest, org in dests.items():
                create = ("create", dest, *at(cluster), "--node-key", gateway, *org)
                said = json.loads(quafka(*create, "--format", "json"))
    assert said["linked"] == 0
    assert said["reused"] > 0, [
        (manifest.id, manifest.org, manifest.segments) for manifest in manifests(dest)
    ]
    for dest in dests:
        for manifest in manifests(dest):
            check(dest, manifest, cluster.bootstrap)
            quafka("verify", dest, manifest.id)
    assert list((cluster.data / "pins").iterdir()) == []

    Identity.create(stranger)
    nothing = tmp_path / "nothing"
    command = ["snapshot", "create", str(nothing), *at(cluster), "--node-key", str(stranger)]
    with patch("quafka_broker.snapshots.remote_cut._CONNECT_SECONDS", 1.0):
        assert main(command) == 2
    assert "allow-list" in capsys.readouterr().err
    assert manifests(nothing) == []


@pytest.mark.local_log
def test_what_the_command_says(cluster: Cluster, tmp_path: Path, quafka: Quafka) -> None:
    dest = tmp_path / "dest"
    producer = Producer({"bootstrap.servers": cluster.bootstrap})
    for n in range(10):
        producer.produce("orders", b"%d" % n)
    assert producer.flush(10) == 0
    commit(cluster.bootstrap, "billing", "orders", 4)
    assert "1 topics, 10 records" in quafka("create", dest, "--data", cluster.data)
    quafka("create", dest, "--data", cluster.data, "--org", "1", "--lease", "30d")
    listed = [json.loads(line) for line in quafka("list", dest, "--format", "json").splitlines()]
    assert [(about["org"], about["records"]) for about in listed] == [(None, 10), (1, 10)]
    shown = quafka("show", dest, listed[0]["id"])
    assert "orders" in shown
    assert "billing" in shown
    assert json.loads(quafka("show", dest, "--format", "json"))["org"] == 1
    assert "whole" in quafka("verify", dest)
    quafka("drop", dest, listed[0]["id"])
    (left,) = manifests(dest)
    assert values(in_folder(dest), left, ORG, "orders") == [b"%d" % n for n in range(10)]


@pytest.mark.long
@pytest.mark.local_log
@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (("create", "{dest}", "--data", "{dest}/nothing"), "no log"),
        (("show", "{dest}"), "no snapshots"),
        (("show", "{dest}", "00000001-20260101T000000Z"), "00000001"),
        (("drop", "{dest}", "x"), "no snapshot x"),
        (("list", "ftp://host/x"), "one of s3://, s3a://"),
        (("create", "https://host/x", "--data", "{data}"), "one of s3://, s3a://"),
        (("create", "", "--data", "{data}"), "the path is empty"),
        (("create", "file://./x", "--data", "{data}"), "three slashes"),
        (("create", "{data}/file", "--data", "{data}"), "/file: it is not a folder"),
        (("list", "{data}/file"), "/file: it is not a folder"),
        (("create", "{data}/file/lake", "--data", "{data}"), "/file/lake: Not a directory"),
        (
            ("verify", "{dest}", "00000001-20260101T000000Z"),
            "{dest}: there is no snapshot 00000001-",
        ),
        (("create", "{dest}", "--broker", "x:1"), "--broker needs --broker-id"),
        (("create", "{dest}", "--broker", "x", "--broker-id", "y"), "host:port, not 'x'"),
        (("create", "{dest}", "--broker", "x:1", "--broker-id", "y"), "--broker-id: 'y' is not"),
        (
            ("create", "{dest}", "--broker-id", "y", "--data", "{data}"),
            "--broker-id needs --broker",
        ),
    ],
)
def test_what_cannot_be_done_is_said_in_a_sentence(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    arguments: tuple[str, ...],
    complaint: str,
) -> None:
    data, dest = tmp_path / "data", tmp_path / "dest"
    (data / "wal").mkdir(parents=True)
    (data / "file").touch()
    code = main(["snapshot", *(each.format(dest=dest, data=data) for each in arguments)])
    said = capsys.readouterr()
    assert (code, said.out) == (2, "")
    assert complaint.format(dest=dest) in said.err
    assert len(said.err.splitlines()) == 1
    assert list(tmp_path.iterdir()) == [data]


@pytest.mark.parametrize(
    ("option", "value", "complaint"),
    [
        ("--org", "0", "'0' is not an org"),
        ("--org", "-5", "'-5' is not an org"),
        ("--lease", "0s", "a number above 0 and s, min, h or d"),
        ("--lease", "99999999999d", "at most 36500d"),
    ],
)
def test_what_would_make_no_sense_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], option: str, value: str, complaint: str
) -> None:
    with pytest.raises(SystemExit):
        main(["snapshot", "create", str(tmp_path), f"{option}={value}"])
    assert complaint in capsys.readouterr().err


def test_a_list_of_what_can_be_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    dest = tmp_path / "dest"
    assert main(["snapshot", "list", str(dest)]) == 2
    assert "there is no such folder" in capsys.readouterr().err
    dest.mkdir()
    assert main(["snapshot", "list", str(dest)]) == 0
    assert "no snapshots" in capsys.readouterr().err
    whole = SnapshotMaker(dest).publish()
    damaged = dest / "snapshots" / "00000009-20260101T000000Z"
    damaged.mkdir()
    (damaged / "manifest.json").touch()
    assert main(["snapshot", "list", str(dest)]) == 2
    said = capsys.readouterr()
    assert whole in said.out
    assert f"snapshot {damaged.name}: the manifest is not JSON" in said.err
    assert main(["snapshot", "verify", f"file://{dest}", whole]) == 0


@pytest.mark.long
@pytest.mark.local_log
def test_a_disk_that_is_full_behind_the_snapshot(
    cluster: Cluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    full = OSError(errno.ENOSPC, "No space left on device")
    command = ["snapshot", "create", str(tmp_path / "dest"), "--data", str(cluster.data)]
    with patch("pyspark_quafka.parquet.export_parquet", side_effect=full):
        assert main([*command, "--format", "parquet"]) == 2
    said = capsys.readouterr().err
    assert (
        "the snapshot was created, but its Parquet export failed: No space left on device" in said
    )


@pytest.mark.long
def test_an_object_store_needs_its_extra(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "quafka_broker.snapshots.bucket_destination", None)
    assert main(["snapshot", "list", "s3://bucket/lake"]) == 2
    assert "quafka[s3]" in capsys.readouterr().err
