"""The power is cut after each call of `quafka snapshot create` and `drop`.

No partial snapshot or Parquet export is ever visible. No existing snapshot is lost, the log is not
affected, and the next command works and removes leftovers. Once the command has reported success,
the snapshot stays.
"""

from __future__ import annotations

import asyncio
import os
import random
import warnings
from dataclasses import dataclass
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from pyspark_quafka import export_parquet
from quafka_broker.snapshots import catalog
from quafka_broker.snapshots.create import Creation
from quafka_broker.snapshots.cut_files import PinnedFiles
from quafka_broker.snapshots.destination import Destination
from quafka_broker.snapshots.folder_destination import FolderDestination
from quafka_broker.snapshots.pins import held, pin, pinned_cut
from quafka_broker.snapshots.verify import SnapshotVerification
from quafka_broker.snapshots.zone_cache import fill_zone_cache
from quafka_proto.snapshot_format import manifest_path
from tests.crash.recorded_folders import FATES, Moment, Names, Operation, Recorder, Sync, SyncNames
from tests.support.mounts import LoopFilesystem, mountable
from tests.support.snapshot_reader import in_folder, manifests, values
from tests.support.suites import more
from tests.unit.broker.snapshot_tools import CopyingDestination, put, snapshot, state_in

ORG = 1
DATA = "quafka-data"
AGAIN = 0.15
"""The number of cuts between two checks that open the log and make another snapshot."""


def numbered(numbers: range) -> list[bytes]:
    return [b"%d " % number * 40 for number in numbers]


@dataclass
class Recorded:
    """A command, and the content of each snapshot that exists before or after it."""

    recorder: Recorder
    dest: str
    wal: dict[str, bytes]
    records: dict[str, int]
    stay: set[str]
    """Snapshots that must exist after any cut."""
    done: set[str]
    """The only snapshots that may exist when the command has ended."""


async def creation(folder: Path, *, links: bool, org: int | None = None) -> Recorded:
    """A second snapshot, in place of one whose lease is over; the last segment has grown.

    Zones are made before it, also under recording: the snapshot links to them.
    """
    disk = folder / "disk"
    data, store = disk / DATA, FolderDestination(disk / "lake")
    async with state_in(data) as state:
        topic, _ = await state.topics.create(ORG, "t", 1)
        await put(state, topic, *numbered(range(20)))
        first = (await snapshot(state, store, org=org)).manifest.id
        await put(state, topic, *numbered(range(20, 30)))
        over = (await snapshot(state, store, org=org, lease_seconds=0.0)).manifest.id
        for begin in range(30, 70, 10):
            await put(state, topic, *numbered(range(begin, begin + 10)))
        wal = _files(data / "wal")
        recorder = Recorder(disk, data / "wal")
        with recorder.recording(None if links else store.root):
            assert fill_zone_cache(data, state.log.segments()) > 1
            made = (await snapshot(state, store, org=org)).manifest.id
    records = {first: 20, over: 30, made: 70}
    return Recorded(recorder, "lake", wal, records, {first}, {first, made})


async def first_creation(folder: Path) -> Recorded:
    """The first snapshot, in folders that do not exist yet."""
    disk = folder / "disk"
    data = disk / DATA
    async with state_in(data) as state:
        topic, _ = await state.topics.create(ORG, "t", 1)
        await put(state, topic, *numbered(range(30)))
        wal = _files(data / "wal")
        recorder = Recorder(disk, data / "wal")
        with recorder.recording():
            made = (await snapshot(state, FolderDestination(disk / "new" / "lake"))).manifest.id
    return Recorded(recorder, "new/lake", wal, {made: 30}, set(), {made})


async def dropping(folder: Path) -> Recorded:
    """One of two snapshots that share files is dropped."""
    disk = folder / "disk"
    data, store = disk / DATA, FolderDestination(disk / "lake")
    async with state_in(data) as state:
        topic, _ = await state.topics.create(ORG, "t", 1)
        await put(state, topic, *numbered(range(20)))
        first = (await snapshot(state, store, org=ORG)).manifest.id
        await put(state, topic, *numbered(range(20, 50)))
        second = (await snapshot(state, store)).manifest.id
        wal = _files(data / "wal")
        recorder = Recorder(disk, data / "wal")
        with recorder.recording(), store.locked() as lock:
            catalog.drop(store, lock, first)
    return Recorded(recorder, "lake", wal, {first: 20, second: 50}, {second}, {second})


def _files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


COMMANDS = {
    "the first": first_creation,
    "by links": lambda folder: creation(folder, links=True),
    "without links": lambda folder: creation(folder, links=False),
    "one org's": lambda folder: creation(folder, links=True, org=ORG),
    "drop": dropping,
}


@pytest.mark.parametrize(
    "command", ["the first", *more([name for name in COMMANDS if name != "the first"])]
)
async def test_no_half_snapshot_is_visible(tmp_path: Path, command: str) -> None:
    assert await explore(await COMMANDS[command](tmp_path), tmp_path) > 20


async def explore(recorded: Recorded, folder: Path) -> int:
    """Cut the power after each operation, with each outcome; returns the number of states."""
    rng = random.Random(1)
    operations = recorded.recorder.operations
    checked = 0
    for at in range(len(operations) + 1):
        moment = Moment(recorded.recorder, at)
        for fate in FATES:
            left = folder / f"left-{checked}"
            try:
                await _cut(recorded, moment, fate, left, rng, last=at == len(operations))
            except BaseException as e:
                done = [_named(operation) for operation in operations[max(0, at - 3) : at]]
                e.add_note(f"{at} of {len(operations)} operations, {fate}; the last: {done}")
                raise
            checked += 1
    return checked


async def _cut(
    recorded: Recorded, moment: Moment, fate: str, left: Path, rng: random.Random, *, last: bool
) -> None:
    wal, data = left / "wal", left / "disk" / DATA
    wal.mkdir(parents=True)
    active = max(name for name in recorded.wal if name.endswith(".log"))
    for name, content in recorded.wal.items():
        # Data written after the cut may be torn, and so may all of the last index.
        torn = rng.randbytes(rng.randrange(200)) if name == active else b""
        if name == active.replace(".log", ".oidx"):
            content = content[: rng.randrange(len(content) + 1)]
        (wal / name).write_bytes(content + torn)
    moment.leave(left / "disk", wal, fate, rng)
    wal.rename(data / "wal")
    dest = left / "disk" / recorded.dest
    found = _check(dest, recorded.records)
    assert recorded.stay <= found
    if last:
        assert found == recorded.done
    if not last and rng.random() >= AGAIN:
        return
    async with state_in(data) as state:  # which cuts the torn tail off linked files, too
        assert _check(dest, recorded.records) == found
        again = (await snapshot(state, FolderDestination(dest))).manifest
        whole = max(recorded.records.values())
        assert values(in_folder(dest), again, ORG, "t") == numbered(range(whole))
    _check(dest, {**recorded.records, again.id: whole})
    needed = {path for each in manifests(dest) for path in each.files()}
    needed |= {manifest_path(each.id) for each in manifests(dest)} | {"lock"}
    there = {path.relative_to(dest).as_posix() for path in dest.rglob("*") if path.is_file()}
    assert there == needed, "garbage is left"


def _check(dest: Path, records: dict[str, int]) -> set[str]:
    """Check that each visible snapshot is whole; returns their ids."""
    store = FolderDestination(dest)
    found = catalog.load_all(store)
    for manifest in found:
        assert values(in_folder(dest), manifest, ORG, "t") == numbered(range(records[manifest.id]))
        verification = SnapshotVerification(store, manifest)
        assert [fault for report in verification.pieces() for fault in report.faults] == []
        assert verification.missing() == []
    return {manifest.id for manifest in found}


async def test_no_half_export_is_taken_for_whole(tmp_path: Path) -> None:
    data, disk = tmp_path / "data", tmp_path / "disk"
    disk.mkdir()
    async with state_in(data) as state:
        topic, _ = await state.topics.create(ORG, "t", 2)
        await put(state, topic, *numbered(range(20)))
        await put(state, topic, *numbered(range(20, 40)), partition=1)
        made = (await snapshot(state, FolderDestination(tmp_path / "lake"))).manifest.id
    recorder = Recorder(disk, data)
    with recorder.recording():
        exported = export_parquet(tmp_path / "lake", disk / "new" / "parquet")
    assert len(exported.files) == 2
    rng = random.Random(1)
    for at in range(len(recorder.operations) + 1):
        for fate in FATES:
            left = tmp_path / f"left-{at}-{fate}"
            Moment(recorder, at).leave(left, data, fate, rng)
            folder = left / "new" / "parquet" / made
            whole = (folder / "_SUCCESS").exists()
            assert whole or at < len(recorder.operations), "it was said to be done"
            if whole:
                found = pq.read_table(str(folder / "topic=t")).column("value").to_pylist()
                assert sorted(found) == sorted(numbered(range(40)))


@pytest.mark.long
@pytest.mark.parametrize(
    ("kind", "linked"),
    [
        pytest.param("ext4", True, marks=pytest.mark.needs("mkfs.ext4")),
        pytest.param("xfs", False, marks=pytest.mark.needs("mkfs.xfs")),
    ],
)
def test_on_file_systems_that_lose_unsynced_data(tmp_path: Path, kind: str, linked: bool) -> None:
    with mountable(), LoopFilesystem(tmp_path, kind) as disk:
        data, dest = disk.path / "data", disk.path / "new" / "lake"
        store = FolderDestination(dest) if linked else CopyingDestination(dest)
        asyncio.run(_append(data, range(40)))
        records: dict[str, int] = {}
        for count in (40, 60):
            steps = 0
            before = set(records)
            while before == set(records):
                steps += 1
                assert steps < 50, "it never gets through"
                if (made := _made_or_cut(disk, store, data, steps)) is None:
                    disk.restore_power()
                records |= {each.id: count for each in manifests(dest) if each.id not in records}
                found = _check(dest, records)
                assert before <= found
                assert made is None or made in found
            assert steps > 3
            if count == 40:
                asyncio.run(_append(data, range(40, 60)))


async def _append(data: Path, numbers: range) -> None:
    async with state_in(data) as state:
        topic, _ = await state.topics.create(ORG, "t", 1)
        await put(state, topic, *numbered(numbers))


def _made_or_cut(disk: LoopFilesystem, store: Destination, data: Path, steps: int) -> str | None:
    """Make a snapshot in a child process, whose power fails before one of the steps."""
    reader, writer = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of Python 3.12: there are threads
        child = os.fork()
    if not child:
        try:
            made = asyncio.run(_make(disk, store, data, steps))
            disk.cut_power()  # it was reported as done
            os.write(writer, made.encode())
        finally:
            os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as answers:
        made = answers.read()
    os.waitpid(child, 0)
    if made:
        disk.restore_power()
    return made or None


async def _make(disk: LoopFilesystem, store: Destination, data: Path, steps: int) -> str:
    left = steps

    def step(_name: str) -> None:
        nonlocal left
        left -= 1
        if not left:
            disk.cut_power()
            os._exit(0)

    async with state_in(data) as state:
        name = await pin(state, data, local=True)
        with held(data, name) as folder, store.locked() as lock:
            creation = Creation(store, PinnedFiles(folder), pinned_cut(data, name), step=step)
            return creation.run(lock).manifest.id


def _named(operation: Operation) -> str:
    match operation:
        case Names(_, changed):
            return f"names: {', '.join(changed)}"
        case Sync(_, data):
            return f"sync of {len(data)} bytes"
        case SyncNames():
            return "sync of names"


@pytest.mark.long
@pytest.mark.parametrize("kind", [Sync, SyncNames])
async def test_a_disk_that_lies_is_found_out(tmp_path: Path, kind: type[Operation]) -> None:
    """The power cuts and the checks of the tests above find known faults."""
    recorded = await creation(tmp_path, links=False)
    recorded.recorder.operations = [
        operation for operation in recorded.recorder.operations if not isinstance(operation, kind)
    ]
    with pytest.raises(Exception, match=r".") as found:
        await explore(recorded, tmp_path)
    assert any("operations" in note for note in found.value.__notes__)
