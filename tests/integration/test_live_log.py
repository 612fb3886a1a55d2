"""The live log in an object store, read as Spark does, beside and without its broker."""

from __future__ import annotations

import json
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from pyspark_quafka.live import LiveLog
from pyspark_quafka.offsets import ranges_to_read
from pyspark_quafka.options import Options, read_options
from pyspark_quafka.planner import plan
from pyspark_quafka.scan import Scan, run
from pyspark_quafka.series import open_as_of
from pyspark_quafka.stream_planner import StreamPlanner, StreamPosition
from quafka.cli import main
from quafka_broker.snapshots.stored_log_snapshot import PinnedObjects
from quafka_objects.address import open_store
from quafka_proto.chain_format import decode_manifest, manifest_path
from quafka_proto.view_format import decode_view
from tests.support.cluster import Cluster
from tests.support.confluent import consume
from tests.support.kafka_calls import create_topic, produce
from tests.support.raw_client import RawClient

SEGMENT = 1 << 16
Values = dict[str, list[bytes]]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Its broker does not stop by itself: a test kills it."""
    folder = tmp_path_factory.mktemp("live")
    args = ("--wal-segment-bytes", str(SEGMENT), "--store-view-interval-ms", "1000")
    with Cluster(folder, args, store=f"file://{folder / 'store'}") as running:
        yield running


def options(cluster: Cluster, **more: str) -> Options:
    return read_options({"path": cluster.store, "subscribePattern": ".*", **more})


def values(scans: Sequence[Scan]) -> Values:
    """What the scans read, by topic, in the order of the offsets; each offset once."""
    found: dict[str, list[tuple[int, bytes]]] = defaultdict(list)
    for scan in scans:
        for batch in run(scan):
            for row in batch.to_pylist():
                found[row["topic"]].append((row["offset"], row["value"]))
    for topic, records in found.items():
        offsets = sorted(offset for offset, _ in records)
        assert offsets == list(range(len(offsets))), f"{topic}: {offsets}"
    return {topic: [value for _, value in sorted(records)] for topic, records in found.items()}


def everything(cluster: Cluster, log: LiveLog | None = None, **more: str) -> Values:
    chosen = options(cluster, **more)
    snapshot = (log or LiveLog(open_store(cluster.store))).open()
    return values(plan(snapshot, ranges_to_read(snapshot, chosen), chosen))


def until(cluster: Cluster, topic: str, count: int, log: LiveLog | None = None) -> list[bytes]:
    """The topic's values, once it has so many."""
    deadline = time.monotonic() + 20.0
    while time.monotonic() < deadline:
        found = everything(cluster, log).get(topic, []) if viewed(cluster) else []
        if len(found) >= count:
            return found
        time.sleep(0.1)
    message = f"{topic} has not got {count} records"
    raise TimeoutError(message)


def viewed(cluster: Cluster) -> bool:
    return any(open_store(cluster.store).list_objects("views"))


def test_the_log_as_it_is_now(cluster: Cluster) -> None:
    log = LiveLog(open_store(cluster.store))
    with RawClient(cluster.address) as client:
        create_topic(client, "grows")
        expected: list[bytes] = []
        for number in range(12):
            some = [b"%d-%d" % (number, at) + b"x" * 1_000 for at in range(16)]
            produce(client, "grows", *some)
            expected += some
            if number == 0:
                until(cluster, "grows", 16, log)  # the topic is in a view
            assert everything(cluster, log)["grows"] == expected, "acknowledged, so it is there"
        create_topic(client, "later")
        produce(client, "later", b"one")
        assert until(cluster, "later", 1, log) == [b"one"]
    assert everything(cluster)["grows"] == expected, "a reader that has just begun"
    pieces = {piece.log.split("/")[0] for piece in log.open().manifest.pieces}
    assert pieces == {"files", "log"}, "sealed segments, and the chain"


def test_a_stream(cluster: Cluster) -> None:
    with RawClient(cluster.address) as client:
        create_topic(client, "streamed")
        produce(client, "streamed", b"0")
        until(cluster, "streamed", 1)
        stream = StreamPlanner(streaming(cluster))
        start = stream.initial()
        assert start.offsets == {"streamed": {0: 0}}
        read: list[bytes] = []
        for number in range(1, 6):
            produce(client, "streamed", b"%d" % number)
            end = stream.latest(start)
            assert end.offsets == {"streamed": {0: number + 1}}, "all that is acknowledged"
            found = [v for scan in stream.plan(start, end) for v in raw(scan)]
            read += found
            # After a restart the same batch has the same records.
            again = StreamPlanner(streaming(cluster))
            kept = StreamPosition.from_json(end.to_json())
            assert [v for scan in again.plan(start, kept) for v in raw(scan)] == found
            start = end
        assert read == [b"%d" % number for number in range(6)]
        assert stream.latest(start) == start
        limit = stream.latest(None)
        assert StreamPlanner(streaming(cluster)).initial(limit.snapshot).offsets == start_of(limit)
        produce(client, "streamed", b"6")
        assert stream.latest(start, until=limit.snapshot) == start, "as far as a query is to go"
        assert stream.latest(start).offsets == {"streamed": {0: 7}}


def start_of(position: StreamPosition) -> dict[str, dict[int, int]]:
    return {topic: dict.fromkeys(found, 0) for topic, found in position.offsets.items()}


def streaming(cluster: Cluster) -> Options:
    given = {"path": cluster.store, "subscribe": "streamed", "startingOffsets": "earliest"}
    return read_options(given, streaming=True)


def raw(scan: Scan) -> list[bytes]:
    return [row["value"] for batch in run(scan) for row in batch.to_pylist()]


@pytest.mark.long
def test_without_a_broker_and_after_a_takeover(cluster: Cluster) -> None:
    with RawClient(cluster.address) as client:
        create_topic(client, "killed")
        produce(client, "killed", b"0")
        until(cluster, "killed", 1)
        produce(client, "killed", b"1")
        cluster.broker.kill()
    assert everything(cluster)["killed"] == [b"0", b"1"]
    cluster.start_broker()
    produce_again(cluster, "killed", b"2")
    assert everything(cluster)["killed"] == [b"0", b"1", b"2"]


def produce_again(cluster: Cluster, topic: str, value: bytes) -> None:
    """Produce through a gateway that has not found the new broker yet."""
    deadline = time.monotonic() + 20.0
    while True:
        try:
            with RawClient(cluster.address) as client:
                produce(client, topic, value)
                return
        except AssertionError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.1)


@pytest.mark.long
def test_snapshots_name_the_log_s_objects(
    cluster: Cluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """They are below the same prefix, outlive the broker, and become logs again."""
    store = open_store(cluster.store)

    def quafka(*arguments: str) -> dict[str, Any]:
        code = main(["snapshot", *arguments, "--format", "json"])
        said = capsys.readouterr()
        assert code == 0, said.err
        found: dict[str, Any] = json.loads(said.out)
        return found

    with RawClient(cluster.address) as client:
        create_topic(client, "kept")
        for number in range(12):
            produce(client, "kept", *[b"%d" % number + b"x" * 1_000] * 16)
    until(cluster, "kept", 12 * 16)
    before = everything(cluster)
    until_viewed_to_the_end(cluster)
    made = quafka("create", cluster.store)
    assert made["reused"] > 0, "sealed segments are not copied"
    assert made["written"] <= 2 * SEGMENT, "the last segment is"
    assert PinnedObjects(store).read() <= {found.path for found in store.list_objects()}
    assert everything_of(cluster.store, made["id"]) == before
    assert main(["snapshot", "verify", cluster.store]) == 0
    capsys.readouterr()
    with RawClient(cluster.address) as client:
        produce(client, "kept", b"after the snapshot")
    assert everything_of(cluster.store, made["id"]) == before

    quafka("restore", cluster.store, made["id"], "--data", str(tmp_path / "restored"))
    (tmp_path / "a").mkdir()
    with Cluster(tmp_path / "a", data=tmp_path / "restored") as local:
        assert consumed(local.bootstrap, "kept", len(before["kept"])) == before["kept"]
    url = f"file://{tmp_path / 'another'}"
    quafka("restore", cluster.store, made["id"], "--data", url)
    (tmp_path / "b").mkdir()
    with Cluster(tmp_path / "b", store=url) as stored:
        assert consumed(stored.bootstrap, "kept", len(before["kept"])) == before["kept"]
        with RawClient(stored.address) as client:
            produce(client, "kept", b"goes on")
        assert until(stored, "kept", len(before["kept"]) + 1)[-1] == b"goes on"
    assert main(["snapshot", "restore", cluster.store, "--data", url]) == 2
    assert "has a log" in capsys.readouterr().err

    main(["snapshot", "drop", cluster.store, made["id"]])
    assert PinnedObjects(store).read() == set()
    assert everything(cluster)["kept"][:-1] == before["kept"], "the log keeps its files"


@pytest.mark.long
def test_a_snapshot_has_all_that_was_acknowledged(
    cluster: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    """It waits for the next view, or finds the one that a broker writes when it stops."""

    def snapshot() -> Values:
        begun = time.strftime("%Y-%m-%d %H:%M:%SZ", time.gmtime())
        assert main(["snapshot", "create", cluster.store, "--format", "json"]) == 0
        made: dict[str, Any] = json.loads(capsys.readouterr().out)
        assert made["cut"] >= begun, "a reader as of a time before finds an earlier snapshot"
        found = everything_of(cluster.store, made["id"])
        assert main(["snapshot", "drop", cluster.store, made["id"]]) == 0
        capsys.readouterr()
        return found

    with RawClient(cluster.address) as client:
        create_topic(client, "late")
        until(cluster, "late", 0)
        for number in range(3):
            produce(client, "late", b"%d" % number)
            assert snapshot()["late"] == [b"%d" % each for each in range(number + 1)]
        produce(client, "late", b"the last one")
    assert cluster.broker.stop() == 0
    try:
        assert snapshot()["late"][-1] == b"the last one"
    finally:
        cluster.start_broker()


def until_viewed_to_the_end(cluster: Cluster) -> None:
    """Wait until the newest view has all that was acknowledged."""
    deadline = time.monotonic() + 20.0
    log = LiveLog(open_store(cluster.store))
    while time.monotonic() < deadline:
        store = open_store(cluster.store)
        manifest = decode_manifest(store.read(manifest_path(0)), 0)
        view = decode_view(store.read(manifest.view), 0).manifest
        now = log.open().manifest
        ends = [{t.name: t.partitions[0].high_watermark for t in m.topics} for m in (view, now)]
        if ends[0] == ends[1]:
            return
        time.sleep(0.1)
    message = "no view has caught up"
    raise TimeoutError(message)


def everything_of(path: str, snapshot_id: str) -> Values:
    chosen = read_options({"path": path, "subscribePattern": ".*", "asOf": snapshot_id})
    snapshot = open_as_of(open_store(path), snapshot_id)
    return values(plan(snapshot, ranges_to_read(snapshot, chosen), chosen))


def consumed(bootstrap: str, topic: str, count: int) -> list[bytes]:
    return [message.value() or b"" for message in consume(bootstrap, topic, count)]
