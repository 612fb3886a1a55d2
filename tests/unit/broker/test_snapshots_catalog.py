"""The snapshots of one DEST: leases, drops, garbage, and the lock."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from itertools import chain, repeat
from pathlib import Path
from unittest.mock import patch

import pytest

from quafka_broker.snapshots import catalog
from quafka_broker.snapshots.destination import Destination
from quafka_broker.snapshots.folder_destination import FolderDestination
from quafka_loop import clock
from quafka_proto.errors import Malformed
from quafka_proto.snapshot_format import SnapshotManifest, manifest_path
from tests.support.snapshot_reader import in_folder, manifests, values
from tests.unit.broker.snapshot_tools import (
    ORG,
    CopyingDestination,
    contents,
    faults,
    named,
    put,
    snapshot,
    state_in,
)


async def test_what_is_dropped_goes_but_for_what_others_need(
    tmp_path: Path, dest: Path, store: Destination
) -> None:
    async with state_in(tmp_path / "data") as state:
        topic, _ = await state.topics.create(ORG, "t", 1)
        made: list[SnapshotManifest] = []
        for n in range(3):
            await put(state, topic, *named("t", range(40 * n, 40 * n + 40)))
            made.append((await snapshot(state, store)).manifest)
    for gone, left in ((1, (0, 2)), (0, (2,)), (2, ())):
        with store.locked() as lock:
            catalog.drop(store, lock, made[gone].id)
        assert [m.id for m in manifests(dest)] == [made[n].id for n in left]
        for n in left:
            assert values(in_folder(dest), made[n], ORG, "t") == named("t", range(40 * n + 40))
    assert contents(dest) == set()
    with store.locked() as lock, pytest.raises(FileNotFoundError):
        catalog.drop(store, lock, made[0].id)


async def test_a_snapshot_goes_when_its_lease_is_over(tmp_path: Path, dest: Path) -> None:
    store = FolderDestination(dest)
    async with state_in(tmp_path / "data") as state:
        short = (await snapshot(state, store, lease_seconds=0.0)).manifest
        long = (await snapshot(state, store, lease_seconds=3600.0)).manifest
        last = (await snapshot(state, store)).manifest
        assert [m.id for m in manifests(dest)] == [long.id, last.id]
        assert short.id < long.id < last.id


async def test_ids_grow_also_when_all_have_been_dropped(tmp_path: Path, dest: Path) -> None:
    store = FolderDestination(dest)
    async with state_in(tmp_path / "data") as state:
        first, second = [(await snapshot(state, store)).manifest for _ in range(2)]
        for manifest in (first, second):
            with store.locked() as lock:
                catalog.drop(store, lock, manifest.id)
        with patch.object(clock, "time_ns", return_value=(second.cut_ms + 2_000) * 1_000_000):
            third = (await snapshot(state, store)).manifest
    assert first.id < second.id < third.id


async def test_a_manifest_of_a_later_version_is_left_alone(tmp_path: Path, dest: Path) -> None:
    """Nothing is collected where it is not known what is needed."""
    store = FolderDestination(dest)
    async with state_in(tmp_path / "data") as state:
        topic, _ = await state.topics.create(ORG, "t", 1)
        await put(state, topic, b"x")
        made = (await snapshot(state, store)).manifest
        path = dest / manifest_path(made.id)
        path.write_bytes(path.read_bytes().replace(b'"version":1', b'"version":9', 1))
        before = contents(dest)
        with pytest.raises(Malformed, match="version 9"):
            await snapshot(state, store)
        assert contents(dest) == before


async def test_a_snapshot_that_cannot_be_read_can_be_dropped(tmp_path: Path, dest: Path) -> None:
    store = FolderDestination(dest)
    async with state_in(tmp_path / "data") as state:
        topic, _ = await state.topics.create(ORG, "t", 1)
        await put(state, topic, b"x")
        garbled = (await snapshot(state, store)).manifest
        good = (await snapshot(state, store)).manifest
        (dest / manifest_path(garbled.id)).write_bytes(b"{")
        with store.locked() as lock:
            with pytest.raises(Malformed, match=garbled.id):
                catalog.drop(store, lock, good.id)
            catalog.drop(store, lock, garbled.id)
        assert [manifest.id for manifest in manifests(dest)] == [good.id]
        assert values(in_folder(dest), good, ORG, "t") == [b"x"]


async def test_files_of_others_are_no_garbage(tmp_path: Path, dest: Path) -> None:
    """`quafka snapshot create .` where somebody has a folder `snapshots` of his own."""
    theirs = ["snapshots/App.test.js.snap", "snapshots/photos/1.jpg", "segments/notes.log"]
    for path in theirs:
        (dest / path).parent.mkdir(parents=True, exist_ok=True)
        (dest / path).write_bytes(b"dear")
    store = FolderDestination(dest)
    async with state_in(tmp_path / "data") as state:
        topic, _ = await state.topics.create(ORG, "t", 1)
        for _ in range(2):
            await put(state, topic, *named("t", range(20)))
            made = (await snapshot(state, store)).manifest
            org = (await snapshot(state, store, org=ORG)).manifest
    for manifest in (made, org):
        with store.locked() as lock:
            catalog.drop(store, lock, manifest.id)
    assert {*theirs} < contents(dest)
    for manifest in catalog.load_all(store):
        with store.locked() as lock:
            catalog.drop(store, lock, manifest.id)
    assert contents(dest) == {*theirs}


async def test_what_cannot_be_listed_is_not_taken_for_garbage(
    tmp_path: Path, dest: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = CopyingDestination(dest)
    async with state_in(tmp_path / "data") as state:
        topic, _ = await state.topics.create(ORG, "t", 1)
        await put(state, topic, *named("t", range(20)))
        kept = (await snapshot(state, store, org=ORG)).manifest
        other = (await snapshot(state, store)).manifest
        there = contents(dest)
        scan = os.scandir

        def failing(path: Path) -> object:
            if kept.id in str(path):
                raise OSError(errno.EIO, "Input/output error", str(path))
            return scan(path)

        with monkeypatch.context() as patched:
            patched.setattr("os.scandir", failing)
            with pytest.raises(OSError, match="Input/output error"):
                await snapshot(state, store)
            with pytest.raises(OSError, match="Input/output error"), store.locked() as lock:
                catalog.drop(store, lock, other.id)
    assert contents(dest) == there
    assert faults(store, kept) == []


def test_who_was_suspended_removes_nothing_more(dest: Path) -> None:
    """Files that were garbage then may be part of somebody else's snapshot by now."""
    store = FolderDestination(dest)
    for number in range(9):
        store.put(f"segments/{number:012d}-{0:016x}.log", [b"x"])

    class LostLater:
        checks = 0

        def check(self) -> None:
            self.checks += 1
            if self.checks > 1:
                raise OSError("the lock was lost")

    times = chain([5_000.0] * 6, repeat(9_000.0))
    with (
        patch.object(clock, "time", lambda: next(times)),
        pytest.raises(OSError, match="lock was lost"),
    ):
        catalog.collect_garbage(store, LostLater(), [])
    assert len(contents(dest)) == 4


def test_a_full_disk_is_given_back(dest: Path) -> None:
    def chunks() -> Iterator[bytes]:
        yield b"x" * 1_000
        raise OSError(errno.ENOSPC, "No space left on device")

    store = FolderDestination(dest)
    with pytest.raises(OSError, match="No space"):
        store.write("segments/0.log", chunks())
    assert contents(dest) == set()


async def test_one_command_at_a_time(dest: Path) -> None:
    with FolderDestination(dest).locked(), pytest.raises(BlockingIOError):
        FolderDestination(dest).locked().__enter__()
