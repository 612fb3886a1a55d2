"""Snapshots of a log that goes on: their contents, their growth, kills and damage."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import warnings
from pathlib import Path

import pytest

from quafka_broker.snapshots.create import Creation, SnapshotError
from quafka_broker.snapshots.cut_files import PinnedFiles
from quafka_broker.snapshots.destination import Destination
from quafka_broker.snapshots.folder_destination import FolderDestination
from quafka_broker.snapshots.open_destination import open_destination
from quafka_broker.snapshots.pins import pin, pinned_cut
from quafka_proto.snapshot_format import SnapshotManifest, manifest_path
from tests.support.snapshot_reader import in_folder, manifests, values
from tests.unit.broker.snapshot_tools import (
    ORG,
    OTHER_ORG,
    Busy,
    contents,
    delete_below,
    faults,
    named,
    put,
    rewrite,
    snapshot,
    state_in,
)
from tests.unit.broker.test_offsets import commit, committed


async def test_a_snapshot_is_what_was_there_at_the_cut(
    tmp_path: Path, dest: Path, store: Destination
) -> None:
    async with state_in(tmp_path / "data") as state:
        topics = [(await state.topics.create(ORG, name, 1))[0] for name in "abc"]
        for n in range(60):
            for topic in topics:
                await put(state, topic, *named(topic.name, range(n, n + 1)))
        await delete_below(state, topics[0], 17)
        await commit(state, "g", ("a", 0, 21), ("c", 0, 60), metadata="here")

        async def meanwhile() -> None:
            """All that may happen to the log while its files are linked or copied."""
            for topic in topics:
                await put(state, topic, *named(topic.name, range(60, 90)))
            await commit(state, "g", ("a", 0, 80))
            await state.topics.delete(topics[2])
            await delete_below(state, topics[0], 70)
            await delete_below(state, topics[1], 45)
            assert await rewrite(state) > 0

        made = (await snapshot(state, store, between=meanwhile)).manifest
        read = in_folder(dest)
        assert values(read, made, ORG, "a") == named("a", range(17, 60))
        assert values(read, made, ORG, "b") == named("b", range(60))
        assert values(read, made, ORG, "c") == named("c", range(60))
        offsets = {(at.topic, at.partition): at for g in made.groups for at in g.offsets}
        assert {place: at.offset for place, at in offsets.items()} == {("a", 0): 21, ("c", 0): 60}
        assert offsets["a", 0].metadata == "here"
        assert faults(store, made) == []

        later = (await snapshot(state, store)).manifest
        assert values(read, later, ORG, "a") == named("a", range(70, 90))
        assert values(read, later, ORG, "b") == named("b", range(45, 90))
        assert later.topic(ORG, "c") is None
        assert {at.topic: at.offset for g in later.groups for at in g.offsets} == (
            {place[0]: at for place, at in (await committed(state, "g")).items()}
        )
        assert faults(store, later) == []
        assert values(read, made, ORG, "c") == named("c", range(60)), (
            "the older one has not changed"
        )
        assert list((tmp_path / "data" / "pins").iterdir()) == []


async def test_snapshots_of_a_busy_log(tmp_path: Path, dest: Path, store: Destination) -> None:
    """Appends, retention, deletion, new topics of old names, and rewriting, all at once."""
    random.seed(9)
    async with state_in(tmp_path / "data") as state:
        busy = Busy(state)
        work = asyncio.create_task(busy.run())
        made: list[tuple[SnapshotManifest, dict[str, tuple[int, list[bytes]]]]] = []
        for _ in range(8):
            await asyncio.sleep(0.02)
            manifest = (await snapshot(state, store, between=busy.another_turn)).manifest
            made.append((manifest, busy.at(manifest)))
        busy.stop = True
        await work
    read = in_folder(dest)
    for manifest, expected in made:
        assert faults(store, manifest) == []
        assert {topic.name for topic in manifest.topics} == set(expected)
        for name, (start, every) in expected.items():
            assert values(read, manifest, ORG, name) == every[start:], (manifest.id, name)
    assert len({manifest.end_id for manifest, _ in made}) == 8, "nothing happened meanwhile"


async def test_what_has_not_changed_is_not_copied_again(
    tmp_path: Path, dest: Path, store: Destination
) -> None:
    async with state_in(tmp_path / "data") as state:
        topic, _ = await state.topics.create(ORG, "t", 1)
        every = named("t", range(100))
        await put(state, topic, *every[:60])
        first = await snapshot(state, store)
        again = await snapshot(state, store)
        assert (again.written, again.linked) == (0, 0)
        assert again.manifest.pieces == first.manifest.pieces
        for n in range(60, 100):
            await put(state, topic, every[n])
        third = await snapshot(state, store)
        assert set(first.manifest.pieces) < set(third.manifest.pieces)
        log = sum(p.length for p in {*third.manifest.pieces} - {*first.manifest.pieces})
        assert third.written < 2 * log
        assert values(in_folder(dest), third.manifest, ORG, "t") == every
        assert faults(store, third.manifest) == []


async def test_a_segment_that_grows_for_long_does_not_fall_to_pieces(
    tmp_path: Path, dest: Path, store: Destination
) -> None:
    async with state_in(tmp_path / "data") as state:
        topic, _ = await state.topics.create(ORG, "t", 1)
        for n in range(20):
            await put(state, topic, b"%d" % n)
            made = (await snapshot(state, store)).manifest
        assert len(made.pieces) < 17
        assert values(in_folder(dest), made, ORG, "t") == [b"%d" % n for n in range(20)]
        assert faults(store, made) == []


async def test_another_log_under_the_same_numbers_is_not_taken_for_this_one(
    tmp_path: Path, dest: Path, store: Destination
) -> None:
    """The broker's folder was put back from an older copy, and went on otherwise."""
    data, copy = tmp_path / "data", tmp_path / "copy"
    async with state_in(data) as state:
        topic, _ = await state.topics.create(ORG, "t", 1)
        await put(state, topic, b"one")
    copy_files(data, copy)
    for value in (b"two", b"TWO"):
        async with state_in(data) as state:
            topic, _ = await state.topics.create(ORG, "t", 1)
            await put(state, topic, value)
            made = (await snapshot(state, store)).manifest
            assert values(in_folder(dest), made, ORG, "t") == [b"one", value]
        copy_files(copy, data)


def copy_files(source: Path, target: Path) -> None:
    for path in (source / "wal").iterdir():
        (target / "wal").mkdir(parents=True, exist_ok=True)
        (target / "wal" / path.name).unlink(missing_ok=True)
        (target / "wal" / path.name).write_bytes(path.read_bytes())


async def test_a_place_has_the_snapshots_of_one_log(tmp_path: Path, store: Destination) -> None:
    async with state_in(tmp_path / "one") as state:
        await snapshot(state, store)
    async with state_in(tmp_path / "other") as state:
        with pytest.raises(SnapshotError, match="another log"):
            await snapshot(state, store)


# --- one org ----------------------------------------------------------------------------------


async def test_one_orgs_snapshot_has_nothing_of_the_others(
    tmp_path: Path, dest: Path, store: Destination
) -> None:
    async with state_in(tmp_path / "data") as state:
        mine, _ = await state.topics.create(ORG, "t", 1)
        theirs, _ = await state.topics.create(OTHER_ORG, "t", 1)
        for n in range(80):
            await put(state, mine, *named("mine", range(n, n + 1)))
            await put(state, theirs, *named("SECRET", range(n, n + 1)))
        await commit(state, "SECRET", ("t", 0, 5), org=OTHER_ORG)
        await commit(state, "g", ("t", 0, 7))
        await rewrite(state)
        for n in range(80, 100):
            await put(state, mine, *named("mine", range(n, n + 1)))
            await put(state, theirs, *named("SECRET", range(n, n + 1)))
        made = (await snapshot(state, store, org=ORG)).manifest
        assert values(in_folder(dest), made, ORG, "t") == named("mine", range(100))
        assert [(g.org, g.group, g.offsets[0].offset) for g in made.groups] == [(ORG, "g", 7)]
        assert faults(store, made) == []
        for name in contents(dest):
            assert b"SECRET" not in (dest / name).read_bytes(), name

        await put(state, mine, *named("mine", range(100, 110)))
        later = await snapshot(state, store, org=ORG)
        assert later.reused >= len(made.pieces)
        assert values(in_folder(dest), later.manifest, ORG, "t") == named("mine", range(110))
        everybodys = (await snapshot(state, store)).manifest
        assert values(in_folder(dest), everybodys, OTHER_ORG, "t") == named("SECRET", range(100))


# --- kill -9 ----------------------------------------------------------------------------------


async def test_killed_at_any_step(tmp_path: Path, dest: Path, store: Destination) -> None:
    """A child is killed at its first, second, ... change of DEST; the last one gets through."""
    data = tmp_path / "data"
    async with state_in(data) as state:
        topic, _ = await state.topics.create(ORG, "t", 1)
        await put(state, topic, *named("t", range(40)))
        old = (await snapshot(state, store, lease_seconds=0.0)).manifest
        await put(state, topic, *named("t", range(40, 120)))
        name = await pin(state, data, local=True)
    seen = {old.id}
    for steps in range(1, 100):
        killed = run_and_kill(store, data, name, steps)
        found = manifests(dest)
        assert found, "the older one has gone too soon"
        new = [manifest for manifest in found if manifest.id not in seen]
        seen |= {manifest.id for manifest in new}
        for manifest in [manifest for manifest in found if manifest.id == old.id] + new:
            count = 40 if manifest.id == old.id else 120
            assert values(in_folder(dest), manifest, ORG, "t") == named("t", range(count))
            assert faults(store, manifest) == []
        if not killed:
            break
    assert steps > 10
    assert old.id not in [manifest.id for manifest in manifests(dest)]
    needed = {path for manifest in manifests(dest) for path in manifest.files()}
    needed |= {manifest_path(manifest.id) for manifest in manifests(dest)}
    assert contents(dest) == needed, "garbage is left"


def run_and_kill(store: Destination, data: Path, name: str, steps: int) -> bool:
    """Make a snapshot in a child that is killed before one of its steps; whether it was."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of Python 3.12: there are threads
        child = os.fork()
    if child:
        return os.WIFSIGNALED(os.waitpid(child, 0)[1])
    left = steps

    def step(_what: str) -> None:
        nonlocal left
        left -= 1
        if not left:
            os.kill(os.getpid(), signal.SIGKILL)

    source = KilledWhileRead(data / "pins" / name, step)
    with store.locked() as lock:
        Creation(store, source, pinned_cut(data, name), step=step).run(lock)
    os._exit(0)


class KilledWhileRead(PinnedFiles):
    """Each read of a log is a step, too: files are killed half-way."""

    def __init__(self, folder: Path, step: object) -> None:
        super().__init__(folder)
        self._step = step

    def log(self, number: int, at: int, size: int) -> bytes:
        assert callable(self._step)
        self._step("read")
        return super().log(number, at, size)


# --- damage -----------------------------------------------------------------------------------


@pytest.mark.parametrize("suffix", [".log", ".oidx", ".zones"])
async def test_damage_in_any_file_is_found(
    tmp_path: Path, dest: Path, store: Destination, suffix: str
) -> None:
    async with state_in(tmp_path / "data") as state:
        topic, _ = await state.topics.create(ORG, "t", 1)
        await put(state, topic, *named("t", range(60)))
        made = (await snapshot(state, store)).manifest
    path = next(p for p in sorted((dest / "segments").iterdir()) if p.name.endswith(suffix))
    whole = path.read_bytes()
    for at in (len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
        assert faults(store, made), at
        path.write_bytes(whole[:at])
        assert faults(store, made), at
    path.write_bytes(whole)
    assert faults(store, made) == []
    path.unlink()
    assert faults(store, made)


def test_a_url_of_a_folder_is_what_readers_take_it_for(tmp_path: Path) -> None:
    folder = tmp_path / "lä ke #1%20"
    for url in (folder.as_uri(), folder.as_uri().replace("file://", "file:")):
        store = open_destination(url)
        assert isinstance(store, FolderDestination)
        assert store.root == folder
