"""Snapshots of a log that goes on: what they hold, what they hold on to, what they leave behind."""

from __future__ import annotations

import asyncio
import errno
import os
import random
import signal
import threading
import time
import warnings
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from itertools import chain, repeat
from pathlib import Path
from unittest.mock import patch

import pytest

from quafka_broker.config import BrokerConfig
from quafka_broker.ops import snapshots as ops
from quafka_broker.server import DataFolder
from quafka_broker.snapshots import catalog, pins
from quafka_broker.snapshots import local_cut as local_cut_module
from quafka_broker.snapshots.create import Creation, SnapshotError
from quafka_broker.snapshots.cut import decode_cut
from quafka_broker.snapshots.cut_files import PinnedFiles
from quafka_broker.snapshots.destination import Destination
from quafka_broker.snapshots.folder_destination import FolderDestination
from quafka_broker.snapshots.local_cut import local_cut
from quafka_broker.snapshots.open_destination import open_destination
from quafka_broker.snapshots.pins import held, pin, pinned_cut
from quafka_broker.snapshots.repack import Repack
from quafka_broker.snapshots.verify import Verification
from quafka_broker.snapshots.zone_cache import fill_zone_cache, zones_name
from quafka_broker.state import BrokerState
from quafka_mesh_ops.errors import OpFailedError
from quafka_mesh_ops.ops.snapshots import (
    MAX_READ,
    PinOrg,
    PinSnapshot,
    ReadOrgPinned,
    ReadPinned,
    UnpinOrg,
    UnpinSnapshot,
)
from quafka_proto.errors import ErrorCode, Malformed
from quafka_proto.log_format import FILE_HEADER_SIZE, INDEX_ROW_SIZE, IndexRow, decode_row
from quafka_proto.snapshot_format import Manifest, manifest_path
from quafka_proto.zone_format import ZoneBuilder, decode_zones, encode_zones
from quafka_telemetry.startup import StartupError
from tests.support.snapshot_reader import in_folder, manifests, values
from tests.unit.broker.snapshot_tools import (
    CopyingDestination,
    delete_below,
    put,
    rewrite,
    snapshot,
    state_in,
)
from tests.unit.broker.test_offsets import commit, committed
from tests.unit.broker.tools import context

E = ErrorCode
ORG, OTHER_ORG = 1, 2
ONE, TWO = "1" * 64, "2" * 64
LIMITS = pins.PinLimits.of(BrokerConfig())


@pytest.fixture
def dest(tmp_path: Path) -> Path:
    return tmp_path / "dest"


@pytest.fixture(params=["linked", "copied"])
def store(request: pytest.FixtureRequest, dest: Path) -> Destination:
    return FolderDestination(dest) if request.param == "linked" else CopyingDestination(dest)


def named(name: str, numbers: range) -> list[bytes]:
    return [b"%s %d " % (name.encode(), n) * 8 for n in numbers]


def faults(store: Destination, manifest: Manifest) -> list[str]:
    """All that `quafka snapshot verify` would complain of."""
    verification = Verification(store, manifest)
    found = [fault for report in verification.pieces() for fault in report.faults]
    return [*found, *verification.missing()]


def contents(dest: Path) -> set[str]:
    found = (path for path in dest.rglob("*") if path.is_file() and path.name != "lock")
    return {path.relative_to(dest).as_posix() for path in found}


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
        made: list[tuple[Manifest, dict[str, tuple[int, list[bytes]]]]] = []
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


class Busy:
    """Changes a log and knows what is in it; each incarnation of a topic has values of its own."""

    def __init__(self, state: BrokerState) -> None:
        self.stop = False
        self._state = state
        self._turns = 0
        self._rewriting = asyncio.Lock()
        self._every: dict[bytes, list[bytes]] = {}  # by the topic's id

    async def run(self) -> None:
        while not self.stop:
            await self.another_turn()
            await asyncio.sleep(0)

    async def another_turn(self) -> None:
        self._turns += 1
        name = random.choice("abcdef")
        topic, _ = await self._state.topics.create(ORG, name, 1)
        known = self._every.setdefault(topic.uuid, [])
        some = [b"%s %d " % (topic.uuid.hex().encode(), len(known) + n) * 3 for n in range(5)]
        known += some
        await put(self._state, topic, *some)
        if not self._turns % 7:
            await delete_below(self._state, topic, random.randrange(len(known)))
        if not self._turns % 31:
            await self._state.topics.delete(topic)
        if not self._turns % 23:
            async with self._rewriting:  # a log has one rewrite task
                await rewrite(self._state)

    def at(self, manifest: Manifest) -> dict[str, tuple[int, list[bytes]]]:
        """Log start, and all values up to the high watermark, of each topic at a cut."""
        return {
            topic.name: (
                topic.partitions[0].log_start,
                self._every[bytes.fromhex(topic.uuid)][: topic.partitions[0].high_watermark],
            )
            for topic in manifest.topics
        }


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


# --- what is left over ------------------------------------------------------------------------


async def test_what_is_dropped_goes_but_for_what_others_need(
    tmp_path: Path, dest: Path, store: Destination
) -> None:
    async with state_in(tmp_path / "data") as state:
        topic, _ = await state.topics.create(ORG, "t", 1)
        made: list[Manifest] = []
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
        with patch("time.time_ns", return_value=(second.cut_ms + 2_000) * 1_000_000):
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
        path.write_bytes(path.read_bytes().replace(b'"version":1', b'"version":2', 1))
        before = contents(dest)
        with pytest.raises(Malformed, match="version 2"):
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
        patch("quafka_broker.snapshots.catalog.time.time", lambda: next(times)),
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


# --- pins -------------------------------------------------------------------------------------


async def test_a_pin_holds_what_the_broker_frees_also_over_a_restart(
    tmp_path: Path, dest: Path
) -> None:
    data = tmp_path / "data"
    async with state_in(data) as state:
        topic, _ = await state.topics.create(ORG, "t", 1)
        await put(state, topic, *named("t", range(60)))
        name = await pin(state, data, local=True)
        with held(data, name) as folder:
            await delete_below(state, topic, 60)
            assert await rewrite(state) > 0
            await state.log.close()
            async with state_in(data) as again:
                pins.remove_ended_pins(data, LIMITS)
                topic, _ = await again.topics.create(ORG, "t", 1)
                await put(again, topic, *named("t", range(60, 90)))
                assert await rewrite(again) >= 0
            store = FolderDestination(dest)
            with store.locked() as lock:
                made = Creation(store, PinnedFiles(folder), pinned_cut(data, name)).run(lock)
            assert values(in_folder(dest), made.manifest, ORG, "t") == named("t", range(60))
        assert not folder.exists()


async def test_a_pin_that_nobody_holds_is_removed(tmp_path: Path) -> None:
    data = tmp_path / "data"
    async with state_in(data) as state:
        await state.topics.create(ORG, "t", 1)
        kept, old, lost = [await pin(state, data, local=True) for _ in range(3)]
        remote, over = [await pin(state, data, local=False) for _ in range(2)]
    (data / "pins" / lost / "pin.json").unlink()
    hour_ago = time.time() - 3600
    for name in (kept, old, over):
        os.utime(data / "pins" / name / "pin.json", (hour_ago, hour_ago))
    os.utime(data / "pins" / lost, (hour_ago, hour_ago))
    with held(data, kept):
        pins.remove_ended_pins(data, LIMITS)
        assert {path.name for path in (data / "pins").iterdir()} == {kept, remote}
    almost = time.time() - LIMITS.lease + 60
    os.utime(data / "pins" / remote / "pin.json", (almost, almost))
    pins.renew(data, remote, LIMITS)
    assert (data / "pins" / remote / "pin.json").stat().st_mtime > almost + 60
    os.utime(data / "pins" / remote / "pin.json", (hour_ago, hour_ago))
    with pytest.raises(FileNotFoundError, match="has ended"):
        pins.renew(data, remote, LIMITS)  # it has, also while nobody has removed it
    pins.remove_ended_pins(data, LIMITS)
    assert list((data / "pins").iterdir()) == []


async def test_no_pin_outlives_its_longest_time_however_often_it_is_read(tmp_path: Path) -> None:
    data = tmp_path / "data"
    async with state_in(data) as state:
        local = await pin(state, data, local=True)
        remote = await pin(state, data, local=False, owner=ONE)
    long_ago = time.time() - LIMITS.lifetime - 60
    with held(data, local):
        for name in (local, remote):
            pins.renew(data, name, LIMITS)
            os.utime(data / "pins" / name, (long_ago, long_ago))
        with pytest.raises(FileNotFoundError, match="has ended"):
            pins.renew(data, remote, LIMITS)
        pins.remove_ended_pins(data, LIMITS)
        assert list((data / "pins").iterdir()) == []


async def test_an_owner_has_so_many_pins_and_others_theirs(tmp_path: Path) -> None:
    data, most = tmp_path / "data", LIMITS.pins
    one, two = replace(context(), peer=ONE), replace(context(OTHER_ORG), peer=TWO)
    async with state_in(data) as state:
        name = ""
        with ExitStack() as commands:
            for _ in range(most):
                name = (await ops.pin(state, one, PinSnapshot())).pin
                commands.enter_context(held(data, await pin(state, data, local=True)))
            with pytest.raises(pins.TooManyPinsError, match=r"snapshot\.pins\.max"):
                await pin(state, data, local=True)
        for _ in range(most + 1):  # of commands that were killed, for all we know
            await pin(state, data, local=True)
        with pytest.raises(OpFailedError) as refused:
            await ops.pin_org(state, one, PinOrg())
        assert refused.value.error_code == E.THROTTLING_QUOTA_EXCEEDED
        assert await ops.pin_org(state, two, PinOrg())
        hour_ago = time.time() - 3600
        os.utime(data / "pins" / name / "pin.json", (hour_ago, hour_ago))
        assert await ops.pin(state, one, PinSnapshot())  # one has ended, though nobody came back
        assert len(list((data / "pins").glob("remote-*"))) == most + 1


async def test_a_pin_is_its_owners_and_for_its_org(tmp_path: Path) -> None:
    one, two = replace(context(ORG), peer=ONE), replace(context(ORG), peer=TWO)
    other_org = replace(context(OTHER_ORG), peer=ONE)
    async with state_in(tmp_path) as state:
        topic, _ = await state.topics.create(ORG, "t", 1)
        await put(state, topic, b"x")
        whole = (await ops.pin(state, one, PinSnapshot())).pin
        pinned = await ops.pin_org(state, one, PinOrg())
        of_org, (cut,) = pinned.pin, decode_cut(bytes(pinned.about)).segments
        read = ReadPinned(whole, 0, False, 0, 8)
        read_org = ReadOrgPinned(of_org, 0, 0, cut.rows, 0, MAX_READ)
        assert (await ops.read(state, one, read)).data == b"QUAFKLOG"
        found = await ops.read_org_pinned(state, one, read_org)
        assert len(found.rows) == INDEX_ROW_SIZE
        for refused in (
            ops.read(state, two, read),
            ops.unpin(state, two, UnpinSnapshot(whole)),
            ops.read(state, one, replace(read, pin=of_org)),
            ops.unpin(state, one, UnpinSnapshot(of_org)),
            ops.read_org_pinned(state, two, read_org),
            ops.read_org_pinned(state, other_org, read_org),
            ops.read_org_pinned(state, one, replace(read_org, pin=whole)),
            ops.unpin_org(state, other_org, UnpinOrg(of_org)),
        ):
            with pytest.raises(OpFailedError) as caught:
                await refused
            assert caught.value.error_code == E.RESOURCE_NOT_FOUND
        await ops.unpin(state, one, UnpinSnapshot(whole))
        await ops.unpin_org(state, one, UnpinOrg(of_org))
        assert list((tmp_path / "pins").iterdir()) == []


@pytest.mark.parametrize("size", [1, 700, MAX_READ])
async def test_of_an_org_its_entries_leave_the_broker_and_nothing_else(
    tmp_path: Path, size: int
) -> None:
    """Whatever the answers' size, as one log file they are what a repack on the spot is."""
    node = replace(context(OTHER_ORG), peer=ONE)
    async with state_in(tmp_path) as state:
        mine, _ = await state.topics.create(OTHER_ORG, "mine", 2)
        secret, _ = await state.topics.create(ORG, "secret", 1)
        for n in range(25):
            await put(state, mine, *named("mine", range(n, n + 1 + n % 2)), partition=n % 2)
            await put(state, secret, *named("secret", range(n, n + n % 3)))
        await put(state, mine, b"long" * 500)
        await delete_below(state, mine, 3)
        assert await rewrite(state) > 0  # rows of a rewritten segment are in another order
        pinned = await ops.pin_org(state, node, PinOrg())
        about = decode_cut(bytes(pinned.about))
        assert {topic.name for topic in about.manifest.topics} == {"mine"}
        files = PinnedFiles(tmp_path / "pins" / pinned.pin)
        for cut in about.segments:
            row, skip, rows, entries = 0, 0, b"", b""
            while row < cut.rows:
                op = ReadOrgPinned(pinned.pin, cut.number, row, cut.rows, skip, size)
                answer = await ops.read_org_pinned(state, node, op)
                assert len(answer.entries) <= size
                assert (answer.next_row, answer.next_skip) > (row, skip)
                row, skip = answer.next_row, answer.next_skip
                rows, entries = rows + answer.rows, entries + answer.entries
            assert b"secret" not in entries
            repack = Repack(files, cut, OTHER_ORG, 0)
            assert len(rows) == INDEX_ROW_SIZE * repack.rows
            assert len(entries) == repack.size - FILE_HEADER_SIZE
            there = b"".join(repack.log())
            at = 0
            for moved in chain.from_iterable(_rows(some) for some in repack.index()):
                end = moved.end - moved.position
                assert entries[at : at + end] == there[moved.position : moved.end]
                at += end
            tail = ReadOrgPinned(pinned.pin, cut.number, cut.rows, cut.rows, 0, 0)
            answer = await ops.read_org_pinned(state, node, tail)
            assert answer.tail == files.tail(cut.number, cut.rows)
            assert not answer.rows


def _rows(data: bytes) -> list[IndexRow]:
    return [decode_row(data, at) for at in range(0, len(data), INDEX_ROW_SIZE)]


@pytest.mark.parametrize(
    ("op", "error"),
    [
        (ReadPinned("../../wal", 0, False, 0, 10), E.INVALID_REQUEST),
        (ReadPinned("local-0123456789abcdef", 0, False, 0, 10), E.INVALID_REQUEST),
        (ReadPinned("remote-0123456789abcdef", 0, False, 0, 10), E.RESOURCE_NOT_FOUND),
        (ReadPinned("{pin}", 0, False, 0, MAX_READ + 1), E.INVALID_REQUEST),
        (ReadPinned("{pin}", 0, False, -1, 10), E.INVALID_REQUEST),
        (ReadPinned("{pin}", 7, False, 0, 10), E.RESOURCE_NOT_FOUND),
        (ReadPinned("{pin}", 0, True, 0, MAX_READ), E.KAFKA_STORAGE_ERROR),
    ],
)
async def test_the_mesh_reads_pins_and_nothing_else(
    tmp_path: Path, op: ReadPinned, error: ErrorCode
) -> None:
    async with state_in(tmp_path) as state:
        await state.topics.create(ORG, "t", 1)
        pinned = await ops.pin(state, context(), PinSnapshot())
        whole = await ops.read(state, context(), ReadPinned(pinned.pin, 0, False, 0, 8))
        assert whole.data == b"QUAFKLOG"
        with pytest.raises(OpFailedError) as raised:
            await ops.read(state, context(), replace(op, pin=op.pin.format(pin=pinned.pin)))
        assert raised.value.error_code == error
        await ops.unpin(state, context(), UnpinSnapshot(pinned.pin))
        assert list((tmp_path / "pins").iterdir()) == []


def test_a_folder_that_is_in_use_is_waited_for(tmp_path: Path, dest: Path) -> None:
    """By a broker that recovers its log, say: it has the folder, and cannot be asked yet."""
    data = tmp_path / "data"

    async def fill() -> None:
        async with state_in(data) as state:
            topic, _ = await state.topics.create(ORG, "t", 1)
            await put(state, topic, b"x")

    asyncio.run(fill())
    other = DataFolder(data)
    other.hold()
    released = threading.Timer(0.3, other.release)
    released.start()
    store = FolderDestination(dest)
    with store.locked() as lock, local_cut(data) as (cut, source):
        made = Creation(store, source, cut).run(lock)
    released.join()
    assert values(in_folder(dest), made.manifest, ORG, "t") == [b"x"]
    other.hold()
    open_before = len(list(Path("/proc/self/fd").iterdir()))
    with (
        patch.object(local_cut_module, "_START_SECONDS", 0.2),
        pytest.raises(StartupError, match="held"),
    ):
        local_cut(data).__enter__()
    assert len(list(Path("/proc/self/fd").iterdir())) == open_before
    other.release()


# --- zones made ahead -------------------------------------------------------------------------


async def test_zones_are_made_ahead_and_are_those_of_the_rows(tmp_path: Path, dest: Path) -> None:
    data = tmp_path / "data"
    async with state_in(data) as state:
        topic, _ = await state.topics.create(ORG, "t", 1)
        for n in range(90):
            await put(state, topic, *named("t", range(n, n + 1)))
        sealed = [segment for segment in state.log.segments() if segment.sealed]
        stopped = threading.Event()
        stopped.set()
        assert fill_zone_cache(data, state.log.segments(), stopped) == 0
        assert fill_zone_cache(data, state.log.segments()) == len(sealed) > 2
        assert fill_zone_cache(data, state.log.segments()) == 0
        with patch("quafka_broker.snapshots.create.ZoneBuilder.add", side_effect=ZoneBuilder.add,
                   autospec=True) as built:  # fmt: skip
            ahead = (await snapshot(state, FolderDestination(dest))).manifest
            assert built.call_count == 1, "of the active segment only"
        assert faults(FolderDestination(dest), ahead) == []

        broken, short, missing = sorted((data / "zones").iterdir())[:3]
        broken.write_bytes(b"x" * 200)
        short.write_bytes(encode_zones(decode_zones(short.read_bytes())[:0]))
        missing.unlink()
        other = FolderDestination(tmp_path / "other")
        made = (await snapshot(state, other)).manifest
        assert faults(other, made) == []
        await delete_below(state, topic, 90)
        await rewrite(state)
        fill_zone_cache(data, state.log.segments())
        assert {path.name for path in (data / "zones").iterdir()} == {
            zones_name(segment) for segment in state.log.segments() if segment.sealed
        }


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
