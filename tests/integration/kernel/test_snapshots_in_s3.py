"""Snapshots in an object store, through a real HTTP server that checks credentials."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from unittest.mock import patch

import pytest

from quafka.cli import main
from quafka_broker.snapshots import catalog
from quafka_broker.snapshots.bucket_destination import BucketDestination
from quafka_broker.snapshots.control_server import ControlServer
from quafka_broker.snapshots.destination import LOCK
from quafka_broker.snapshots.due_snapshot import make_due
from quafka_broker.snapshots.open_destination import open_destination
from quafka_broker.snapshots.pins import pin
from quafka_broker.snapshots.verify import SnapshotVerification
from quafka_objects.store import ObjectStore
from quafka_proto.snapshot_format import SnapshotManifest
from tests.support.s3 import S3, s3_server
from tests.support.snapshot_reader import values
from tests.unit.broker.snapshot_tools import ORG, named, put, snapshot, state_in
from tests.unit.broker.tools import values_of

DEAD_SECONDS = 1.0


@pytest.fixture(scope="module")
def s3() -> Iterator[S3]:
    with s3_server() as server:
        yield server


@pytest.fixture
def url(s3: S3, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """A place of this test's own."""
    for name, value in s3.environment.items():
        monkeypatch.setenv(name, value)
    return f"{s3.url}/{request.node.name}"


@pytest.fixture
def store(url: str) -> BucketDestination:
    return BucketDestination(url, DEAD_SECONDS)


def sizes(store: ObjectStore, folder: str) -> dict[str, int]:
    return dict(store.list_objects(folder))


def is_whole(store: BucketDestination, manifest: SnapshotManifest) -> bool:
    verification = SnapshotVerification(store, manifest)
    return not any(report.faults for report in verification.pieces()) and (
        verification.missing() == []
    )


async def test_snapshots_grow_and_are_dropped(tmp_path: Path, store: BucketDestination) -> None:
    async with state_in(tmp_path) as state:
        topic, _ = await state.topics.create(ORG, "t", 1)
        await put(state, topic, *named("t", range(60)))
        first = await snapshot(state, store)
        again = await snapshot(state, store)
        assert again.written == 0
        await put(state, topic, *named("t", range(60, 90)))
        third = await snapshot(state, store)
        assert 0 < third.written < first.written
        orgs = await snapshot(state, store, org=ORG)
    for some, count in ((first, 60), (again, 60), (third, 90), (orgs, 90)):
        assert values(store.read, some.manifest, ORG, "t") == named("t", range(count))
        assert is_whole(store, some.manifest)
    made = [first.manifest, again.manifest, third.manifest, orgs.manifest]
    assert catalog.load_all(store) == made
    for number, manifest in enumerate(made):
        with store.locked() as lock:
            catalog.drop(store, lock, manifest.id)
        assert all(is_whole(store, left) for left in made[number + 1 :])
    assert sizes(store, "") == {}


async def test_a_broker_starts_on_what_is_restored(
    tmp_path: Path, store: BucketDestination, url: str
) -> None:
    async with state_in(tmp_path / "data") as state:
        topic, _ = await state.topics.create(ORG, "t", 1)
        await put(state, topic, *named("t", range(60)))
        cluster_id = state.registry.cluster_id
        control = ControlServer(state, tmp_path / "data")
        await control.start()
        made: list[tuple[bool, SnapshotManifest]] = []
        for interval_ms in (0, 3_600_000, 0, 0):
            what = (tmp_path / "data", store, cluster_id, interval_ms, 2)
            made.append(await asyncio.to_thread(make_due, *what))
        await control.close()
    assert [one for one, _ in made] == [True, False, True, True]
    left = [made[2][1], made[3][1]]
    assert catalog.load_all(store) == left, "the two newest are kept"
    for org in (None, ORG):
        new = tmp_path / f"new-{org}"
        command = ["snapshot", "restore", url, "--data", str(new)]
        command += ["--org", str(org)] if org else []
        assert await asyncio.to_thread(main, command) == 0
        async with state_in(new) as state:
            assert state.registry.cluster_id == cluster_id
            assert state.registry.by_name(ORG, "t") == topic
            found = await values_of(state.log, state.log.partitions.get(topic.partition_id(0)))
            assert found == named("t", range(60))


async def test_a_manifest_is_put_only_where_there_is_none(store: BucketDestination) -> None:
    store.publish("m", b"one")
    store.publish("m", b"one")  # as when the answer was lost
    with pytest.raises(FileExistsError):
        store.publish("m", b"two")
    assert store.read("m") == b"one"
    with pytest.raises(FileNotFoundError):
        store.read("nothing")


async def test_the_wrong_key_is_refused(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wrong")
    with pytest.raises(
        OSError, match=r"segments: access is denied \(.*403 Forbidden: SignatureDoesNotMatch\)"
    ):
        sizes(BucketDestination(url, DEAD_SECONDS), "segments")


async def test_a_bucket_that_is_not_there_is_told(url: str) -> None:
    assert url
    elsewhere = BucketDestination("s3://no-such-bucket/lake", DEAD_SECONDS)
    with pytest.raises(OSError, match="there is no such bucket"):
        sizes(elsewhere, "segments")
    with pytest.raises(OSError, match="there is no such bucket"), elsewhere.locked():
        pass
    with pytest.raises(OSError, match="it names no bucket"):
        BucketDestination("s3://", DEAD_SECONDS)


async def test_an_interrupted_upload_is_gone_on_with(
    tmp_path: Path, store: BucketDestination
) -> None:
    async with state_in(tmp_path) as state:
        topic, _ = await state.topics.create(ORG, "t", 1)
        await put(state, topic, *named("t", range(60)))
        with (
            patch.object(store, "publish", side_effect=ConnectionError),
            pytest.raises(ConnectionError),
        ):
            await snapshot(state, store)
        assert catalog.load_all(store) == []
        uploaded = sizes(store, "segments")
        assert uploaded
        store.put(f"segments/{0:012d}-{0:016x}.log", [b"left by another one"])
        made = await snapshot(state, store)
        assert made.written == 0, "it was all there"
        assert sizes(store, "segments") == uploaded
        assert values(store.read, made.manifest, ORG, "t") == named("t", range(60))


KILLED = """
import os, signal, sys
from pathlib import Path
from quafka_broker.snapshots.create import Creation
from quafka_broker.snapshots.bucket_destination import BucketDestination
from quafka_broker.snapshots.pins import pinned_cut
from quafka_broker.snapshots.cut_files import PinnedFiles

data, name, url, dead_seconds, fatal = sys.argv[1:]

def step(what):
    if what.startswith(fatal):
        os.kill(os.getpid(), signal.SIGKILL)

store = BucketDestination(url, float(dead_seconds))
cut = pinned_cut(Path(data), name)
source = PinnedFiles(Path(data) / "pins" / name)
with store.locked() as lock:
    Creation(store, source, cut, step=step).run(lock)
"""


@pytest.mark.parametrize(
    ("fatal", "there"),
    [
        ("publish", 0),
        pytest.param("write", 0, marks=pytest.mark.long),
        pytest.param("collect", 1, marks=pytest.mark.long),
    ],
)
async def test_killed_while_it_uploads(
    tmp_path: Path, url: str, store: BucketDestination, fatal: str, there: int
) -> None:
    async with state_in(tmp_path) as state:
        topic, _ = await state.topics.create(ORG, "t", 1)
        await put(state, topic, *named("t", range(60)))
        name = await pin(state, tmp_path, local=True)
        arguments = [str(tmp_path), name, url, str(DEAD_SECONDS), fatal]
        child = await asyncio.create_subprocess_exec(sys.executable, "-c", KILLED, *arguments)
        assert await child.wait() == -signal.SIGKILL
        found = catalog.load_all(store)
        assert len(found) == there
        assert all(is_whole(store, manifest) for manifest in found)
        made = (await snapshot(state, store)).manifest  # when the lock of the dead is taken over
    found = catalog.load_all(store)
    assert found[-1] == made
    assert len(found) == there + 1
    assert values(store.read, made, ORG, "t") == named("t", range(60))
    needed = {path for manifest in found for path in manifest.files()}
    assert set(sizes(store, "segments")) == needed


async def test_the_lock_of_the_living_is_respected(url: str, store: BucketDestination) -> None:
    with store.locked() as lock:
        with pytest.raises(BlockingIOError):
            BucketDestination(url, DEAD_SECONDS).locked().__enter__()
        lock.check()
    assert sizes(store, "") == {}


async def test_the_lock_of_the_dead_is_taken_over(url: str) -> None:
    """One that was only thought dead publishes nothing, and takes nobody else's lock away."""
    store = BucketDestination(url, DEAD_SECONDS)
    slow = BucketDestination(url, 3600.0)  # does not renew its lock
    with slow.locked() as lost, store.locked() as ours:
        ours.check()
        with pytest.raises(OSError, match="lock"):
            lost.check()
        assert LOCK in sizes(store, "")


def test_the_command(
    tmp_path: Path, url: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.nice", lambda _by: 0)
    data = tmp_path / "data"

    async def fill() -> None:
        async with state_in(data) as state:
            topic, _ = await state.topics.create(ORG, "t", 1)
            await put(state, topic, *named("t", range(60)))

    def quafka(*arguments: str) -> str:
        assert main(["snapshot", *arguments]) == 0
        return capsys.readouterr().out

    asyncio.run(fill())
    assert "1 topics, 60 records" in quafka("create", url, "--data", str(data))
    assert "until dropped" in quafka("list", url)
    store = open_destination(url)
    (made,) = catalog.load_all(store)
    assert values(store.read, made, ORG, "t") == named("t", range(60))
    quafka("verify", url)
    assert made.id in quafka("drop", url, made.id)
    assert sizes(store, "") == {}
