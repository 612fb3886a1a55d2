"""Restoring a snapshot: the log that a broker starts on is the one that was there at the cut."""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple
from unittest.mock import patch

import pytest

from quafka_broker.partitions.errors import StorageError
from quafka_broker.snapshots.destination import Destination
from quafka_broker.snapshots.folder_destination import FolderDestination
from quafka_broker.snapshots.restore import DamagedSnapshotError, Restored, RestoreError, restore
from quafka_broker.snapshots.restored_state import SKIPPED_PRODUCER_IDS
from quafka_broker.state import BrokerState
from quafka_broker.topics.topic import Topic
from quafka_broker.wal.data_folder import DataFolder
from quafka_broker.wal.epoch_file import SKIPPED
from quafka_mesh_ops.ops.records import ProduceOp
from quafka_mesh_ops.ops.security import UserChange
from quafka_proto.errors import ErrorCode
from quafka_proto.record_codec import iter_records
from quafka_proto.snapshot_format import SnapshotManifest, decode_manifest, encode_manifest
from quafka_proto.zone_format import decode_zones
from quafka_telemetry.startup import StartupError
from tests.support.suites import more
from tests.unit.broker.snapshot_tools import (
    Busy,
    CopyingDestination,
    delete_below,
    named,
    put,
    rewrite,
    snapshot,
    state_in,
)
from tests.unit.broker.test_offsets import commit, committed
from tests.unit.broker.test_produce import send
from tests.unit.broker.test_security import SHA256, rule, user
from tests.unit.broker.tools import batch_of, values_of
from tests.unit.broker.transactional import Sender, committed_offset, create, fetch, read

ORG, OTHER_ORG = 1, 2
PRODUCER = 40


class Known(NamedTuple):
    """What a log was at a cut."""

    cluster_id: str
    topics: dict[tuple[int, str], Topic]
    values: dict[tuple[int, str], tuple[int, list[bytes]]]
    committed: dict[int, dict[tuple[str, int], int]]
    next_producer_id: int


async def fill(state: BrokerState, turn: int) -> None:
    """Topics of two orgs, one of them deleted and made again; segments that are rewritten."""
    for org in (ORG, OTHER_ORG):
        for name in ("a", "b", "gone"):
            configs = {"retention.ms": "1000"} if name == "b" else {}
            topic, _ = await state.topics.create(org, name, 1, configs)
            await put(state, topic, *named(f"{org}{name}", range(40 * turn, 40 * turn + 40)))
            if name == "gone":
                await state.topics.delete(topic)
                topic, _ = await state.topics.create(org, name, 1)
                await put(state, topic, *named(f"{org}{name}", range(10)))
                await delete_below(state, topic, 10)  # nothing is left of it
            elif name == "b":
                await delete_below(state, topic, 20 * turn + 9)
        await commit(state, "g", ("a", 0, 30 + turn), metadata="m", org=org)
    for sequence in range(8 * turn, 8 * turn + 8):
        producer = PRODUCER, 0, sequence
        (answer,) = await send(
            state, ProduceOp("a", 0, batch_of(b"i%d" % sequence, producer=producer))
        )
        assert not answer.error_code
    await rewrite(state)


async def known_of(state: BrokerState, orgs: tuple[int, ...] = (ORG, OTHER_ORG)) -> Known:
    topics = {(t.org, t.name): t for t in state.registry.every_topic() if t.org in orgs}
    values: dict[tuple[int, str], tuple[int, list[bytes]]] = {}
    for key, topic in topics.items():
        partition = state.log.partitions.get(topic.partition_id(0))
        found = await values_of(state.log, partition, partition.log_start)
        assert partition.log_start + len(found) == partition.high_watermark
        values[key] = partition.log_start, found
    offsets = {org: await committed(state, "g", org) for org in orgs}
    return Known(
        state.registry.cluster_id, topics, values, offsets, await state.producer_ids.allocate(1)
    )


async def restored(
    store: Destination,
    manifest: SnapshotManifest,
    data: Path,
    org: int | None = None,
    *,
    skip_damage: bool = False,
    step: Callable[[str], None] = lambda _: None,
) -> Restored:
    return await asyncio.to_thread(
        restore, store, manifest, data, org=org, skip_damage=skip_damage, step=step
    )


async def check(data: Path, before: Known, orgs: tuple[int, ...] = (ORG, OTHER_ORG)) -> None:
    """A broker starts on a folder, twice, and everything is as it was."""
    last_id = 0
    for _ in range(2):
        async with state_in(data) as state:
            after = await known_of(state, orgs)
            assert state.log.epochs.current >= SKIPPED
            assert list(state.log.damages) == []
        assert after.cluster_id == before.cluster_id
        assert after.topics == {key: t for key, t in before.topics.items() if key[0] in orgs}
        assert after.values == {key: v for key, v in before.values.items() if key[0] in orgs}
        assert after.committed == {org: before.committed[org] for org in orgs}
        assert after.next_producer_id > max(last_id, before.next_producer_id + 1_000_000)
        last_id = after.next_producer_id


@pytest.mark.parametrize("taken_of", [None, *more([ORG])])
@pytest.mark.parametrize("org", [None, ORG])
async def test_a_broker_starts_on_what_was_there(
    tmp_path: Path, store: Destination, taken_of: int | None, org: int | None
) -> None:
    """Of all and of one org: of a log that has grown by pieces, and been rewritten."""
    made: list[tuple[SnapshotManifest, Known]] = []
    async with state_in(tmp_path / "data") as state:
        await state.producer_ids.allocate(1)
        for turn in range(3):
            await fill(state, turn)
            known = await known_of(state)
            made.append(((await snapshot(state, store, org=taken_of)).manifest, known))
    orgs = (ORG,) if org or taken_of else (ORG, OTHER_ORG)
    for number, (manifest, known) in enumerate(made):
        data = tmp_path / f"new{number}"
        assert (await restored(store, manifest, data, org)).faults == []
        assert not any(each.stat().st_mode & 0o007 for each in (data / "wal").iterdir())
        await check(data, known, orgs)
        assert {topic.org for topic in manifest.topics if topic.org not in orgs} <= {OTHER_ORG}


async def test_clients_go_on(tmp_path: Path, store: Destination) -> None:
    """Nothing is stored twice, deleted topics do not come back, and the next snapshot goes on."""
    async with state_in(tmp_path / "data") as state:
        await state.producer_ids.allocate(1)
        await fill(state, 0)
        first = await snapshot(state, store)
        for sequence in (8, 9):  # lost, with the disk
            await send(
                state, ProduceOp("a", 0, batch_of(b"lost", producer=(PRODUCER, 0, sequence)))
            )
    await restored(store, first.manifest, tmp_path / "new")
    async with state_in(tmp_path / "new") as state:
        topic = state.registry.by_name(ORG, "a")
        assert topic is not None
        end = state.log.partitions.get(topic.partition_id(0)).high_watermark

        async def answer(producer: int, epoch: int, sequence: int) -> tuple[ErrorCode, int]:
            batch = batch_of(b"i%d" % sequence, producer=(producer, epoch, sequence))
            (found,) = await send(state, ProduceOp("a", 0, batch))
            return ErrorCode(found.error_code), found.base_offset

        assert await answer(PRODUCER, 0, 7) == (ErrorCode.NONE, end - 1), "it is there already"
        assert (await answer(PRODUCER, 0, 1))[0] == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        # Its batches 8 and 9 are lost, and it has no use for an error; from then on none may be.
        assert await answer(PRODUCER, 0, 10) == (ErrorCode.NONE, end)
        assert await answer(PRODUCER, 0, 10) == (ErrorCode.NONE, end)
        for sequence in (9, 13):
            assert (await answer(PRODUCER, 0, sequence))[0] == (
                ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
            )
        # One that began after the snapshot goes on, and its id is nobody else's.
        fresh = await state.producer_ids.allocate(1)
        assert await answer(fresh - SKIPPED_PRODUCER_IDS // 2, 0, 5) == (ErrorCode.NONE, end + 1)
        assert (await answer(fresh, 0, 5))[0] == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        new, _ = await state.topics.create(ORG, "fresh", 1)
        await put(state, new, *named("fresh", range(5)))
        again = await snapshot(state, store)
    assert again.manifest.id > first.manifest.id
    assert again.reused > 0
    await restored(store, again.manifest, tmp_path / "newer")
    async with state_in(tmp_path / "newer") as state:
        assert await values_of(state.log, state.log.partitions.get(new.partition_id(0))) == named(
            "fresh", range(5)
        )


async def test_of_a_busy_log(tmp_path: Path, dest: Path) -> None:
    """Whatever happens to the log: each snapshot can be started from, and one org of it."""
    random.seed(11)
    store = CopyingDestination(dest)
    async with state_in(tmp_path / "data") as state:
        busy = Busy(state)
        made: list[tuple[SnapshotManifest, dict[str, tuple[int, list[bytes]]]]] = []
        for _ in range(3):
            for _ in range(30):
                await busy.another_turn()
            manifest = (await snapshot(state, store, between=busy.another_turn)).manifest
            made.append((manifest, busy.at(manifest)))
    for number, (manifest, expected) in enumerate(made):
        for org in (None, ORG):
            data = tmp_path / f"{number}-{org}"
            await restored(store, manifest, data, org)
            async with state_in(data) as state:
                for topic in state.registry.topics(ORG):
                    partition = state.log.partitions.get(topic.partition_id(0))
                    start, every = expected[topic.name]
                    assert partition.log_start == start
                    assert await values_of(state.log, partition, start) == every[start:]
                assert set(expected) == {topic.name for topic in state.registry.topics(ORG)}
                again = Busy(state)  # generations and ids go on
                for topic in state.registry.topics(ORG):
                    await state.topics.delete(topic)
                for _ in range(10):
                    await again.another_turn()
            async with state_in(data):
                pass


async def test_a_manifest_of_an_older_version(tmp_path: Path, dest: Path) -> None:
    """Without what was added for restores."""
    store = FolderDestination(dest)
    async with state_in(tmp_path / "data") as state:
        await fill(state, 0)
        known = await known_of(state)
        made = (await snapshot(state, store, org=ORG)).manifest
    old = encode_manifest(
        replace(
            made,
            producer_ids_up_to=0,
            evicted=None,
            topics=[replace(topic, ulid="", slug="", created_ms=0) for topic in made.topics],
        )
    )
    for field in (
        b'"evicted":null',
        b'"producer_ids_up_to":0',
        b'"ulid":""',
        b'"slug":""',
        b'"created_ms":0',
    ):
        old = old.replace(b"," + field, b"")
    await restored(store, decode_manifest(old), tmp_path / "new")
    async with state_in(tmp_path / "new") as state:
        after = await known_of(state, (ORG,))
    assert after.values == {key: v for key, v in known.values.items() if key[0] == ORG}
    assert {t.uuid for t in after.topics.values()} == {
        t.uuid for key, t in known.topics.items() if key[0] == ORG
    }


class KilledError(BaseException):
    """No handler of the command sees a kill."""


async def test_half_a_restore_is_no_log(tmp_path: Path, dest: Path) -> None:
    store = FolderDestination(dest)
    async with state_in(tmp_path / "data") as state:
        await fill(state, 0)
        known = await known_of(state)
        made = (await snapshot(state, store)).manifest
    steps: list[str] = []
    await restored(store, made, tmp_path / "whole", step=steps.append)
    data = tmp_path / "new"
    for at in range(1, len(steps)):
        left = iter(steps[1 : at + 1])

        def step(_name: str, left: object = left) -> None:
            if next(left, None) is None:  # type: ignore[call-overload]
                raise KilledError

        with pytest.raises(KilledError):
            await restored(store, made, data, step=step)
        with pytest.raises(StartupError, match="did not finish"):
            DataFolder(data).hold()
        assert not (data / "wal").exists()
    await restored(store, made, data)
    await check(data, known)


@pytest.mark.parametrize("there", ["wal", "notes.txt"])
async def test_what_is_there_stays(tmp_path: Path, dest: Path, there: str) -> None:
    store = FolderDestination(dest)
    async with state_in(tmp_path / "data") as state:
        await fill(state, 0)
        made = (await snapshot(state, store)).manifest
    data = tmp_path / "new"
    (data / there).mkdir(parents=True)
    with pytest.raises(RestoreError, match=f"is not empty: it has {there}"):
        await restored(store, made, data)
    assert os.listdir(data) == [there]  # noqa: PTH208
    (data / there).rmdir()
    (data / "node.key").touch()
    await restored(store, made, data)
    with pytest.raises(RestoreError, match="is not empty"):
        await restored(store, made, data)
    for org in (7, 9):
        with pytest.raises(RestoreError, match=f"nothing of org {org}"):
            await restored(store, made, tmp_path / "other", org)


async def test_a_full_disk(tmp_path: Path, dest: Path) -> None:
    store = FolderDestination(dest)
    async with state_in(tmp_path / "data") as state:
        await fill(state, 0)
        made = (await snapshot(state, store)).manifest
    data = tmp_path / "new"
    with patch("shutil.disk_usage") as usage:
        usage.return_value.free = 10
        with pytest.raises(RestoreError, match="has 10 bytes free"):
            await restored(store, made, data)
    full = OSError(28, "No space left on device")
    with (
        patch("quafka_broker.snapshots.restored_files.RestoredFiles._copy", side_effect=full),
        pytest.raises(OSError, match="No space"),
    ):
        await restored(store, made, data)
    assert not (data / "restoring").exists()


# --- damage -------------------------------------------------------------------------------------


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 0x20
    path.write_bytes(data)


def flip_header(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[9] ^= 0x20
    path.write_bytes(data)


def zero(path: Path) -> None:
    data = bytearray(path.read_bytes())
    middle = len(data) // 2
    data[middle : middle + 512] = bytes(len(data[middle : middle + 512]))
    path.write_bytes(data)


def cut(path: Path) -> None:
    os.truncate(path, path.stat().st_size * 2 // 3)


@pytest.mark.parametrize(
    ("damage", "org"),
    [
        (zero, None),
        (cut, ORG),
        *(
            pytest.param(damage, org, marks=pytest.mark.long)
            for damage, org in (
                (flip, None), (flip_header, None), (cut, None), (Path.unlink, None),
                (flip_header, ORG), (zero, ORG),
            )
        ),
    ],
)  # fmt: skip
async def test_damage(tmp_path: Path, damage: Callable[[Path], None], org: int | None) -> None:
    """It is refused and said. With consent everything is there that is whole, topics and groups
    also where the log's own events are in the damage, and no offset is given again."""
    dest = tmp_path / "dest"
    store = CopyingDestination(dest)
    async with state_in(tmp_path / "data") as state:
        await fill(state, 0)
        await snapshot(state, store)
        await fill(state, 1)
        known = await known_of(state)
        made = (await snapshot(state, store)).manifest
    orgs = (ORG,) if org else (ORG, OTHER_ORG)
    for number, path in enumerate(some_files(made)):
        whole = (dest / path).read_bytes()
        damage(dest / path)
        data = tmp_path / f"new{number}"
        try:
            await restored(store, made, data, org)
        except DamagedSnapshotError:
            assert not (data / "restoring").exists()
            assert not (data / "wal").exists()
            done = await restored(store, made, data, org, skip_damage=True)
            assert done.faults
        else:
            assert org or damage is flip_header, "what is no byte of the snapshot's may be damaged"
        lost = await lost_in(data, known, orgs)
        there = sum(
            zone.records
            for piece in made.pieces
            if piece.log == path
            for zone in decode_zones((dest / piece.zones).read_bytes())
        )
        assert lost <= (1 if damage is flip else there), path
        (dest / path).write_bytes(whole)
    for path in {piece.zones for piece in made.pieces}:
        damage(dest / path)
    assert (await restored(store, made, tmp_path / "zones", org)).faults == [], "none are needed"


def some_files(manifest: SnapshotManifest) -> list[str]:
    """The first log and index, some in the middle, and those that were written last."""
    found: list[str] = []
    for paths in ([piece.log for piece in manifest.pieces], [p.index for p in manifest.pieces]):
        found += [paths[0], paths[len(paths) // 2], paths[-1]]
    return found


async def lost_in(data: Path, known: Known, orgs: tuple[int, ...]) -> int:
    """How many records cannot be read; what can is right, and where it was."""
    lost = 0
    async with state_in(data) as state:
        topics = {(t.org, t.name): t for t in state.registry.every_topic() if t.org in orgs}
        expected = {key: topic for key, topic in known.topics.items() if key[0] in orgs}
        assert {k: (t.uuid, t.configs, t.generation) for k, t in topics.items()} == (
            {k: (t.uuid, t.configs, t.generation) for k, t in expected.items()}
        )
        for org in orgs:
            assert await committed(state, "g", org) == known.committed[org]
        for key, topic in topics.items():
            start, every = known.values[key]
            partition = state.log.partitions.get(topic.partition_id(0))
            assert partition.high_watermark == start + len(every), key
            lost += partition.log_start - start
            for offset in range(partition.log_start, partition.high_watermark):
                try:
                    (batch,) = await state.log.reader.read(partition, offset, 1, at_least_one=True)
                except StorageError:
                    lost += 1
                    continue
                found = {record.offset: record.value for record in iter_records(batch)}
                assert found.get(offset, every[offset - start]) == every[offset - start]
                lost += offset not in found
    return lost


@pytest.mark.parametrize("org", [None, ORG])
async def test_transactional_producers_are_fenced_and_open_transactions_aborted(
    tmp_path: Path, dest: Path, org: int | None
) -> None:
    """A producer that goes on would commit a part of what it has written."""
    store = CopyingDestination(dest)
    async with state_in(tmp_path / "data") as state:
        await create(state)
        sender, other = Sender(state, "open"), Sender(state, "ended")
        for producer in (sender, other):
            await producer.init()
            await producer.write("t", 0, producer.name.encode())
            await producer.write("t", 1, b"also")
        assert not await sender.offsets(1)
        await other.end()
        await other.write("t", 0, b"aborted")
        await other.end(commit=False)
        made = (await snapshot(state, store)).manifest
        await sender.write("t", 2, b"written since")
    await restored(store, made, tmp_path / "new", org)
    async with state_in(tmp_path / "new") as state:
        assert await read(state) == [b"ended"]
        answer = await fetch(state, committed=True)
        assert answer.last_stable_offset == answer.high_watermark == 6
        assert not state.transactions.table.open
        assert await committed_offset(state, stable=True) == (-1, 0)
        sender.state = other.state = state
        gone = ErrorCode.PRODUCER_FENCED if org is None else ErrorCode.INVALID_PRODUCER_ID_MAPPING
        assert await sender.end() == gone
        assert await other.end() == gone
        for producer in (sender, other):
            assert not await producer.init()
            await producer.write("t", 0, producer.name.encode())
            assert not await producer.end()
        assert await read(state) == [b"ended", b"open", b"ended"]


@pytest.mark.parametrize("org", [None, ORG])
async def test_users_and_rules_are_as_at_the_cut_and_in_no_part_of_a_log(
    tmp_path: Path, store: Destination, org: int | None
) -> None:
    async with state_in(tmp_path / "data") as state:
        await fill(state, 0)
        await state.security.alter_users(ORG, [user("alice"), user("bob")])
        await state.security.create_acls(ORG, [rule("t")])
        await state.security.alter_users(ORG, [UserChange("bob", SHA256)])
        taken = await snapshot(state, store)
        await state.security.alter_users(ORG, [UserChange("alice", SHA256)])
    assert (await restored(store, taken.manifest, tmp_path / "new", org)).faults == []
    for _ in range(2):
        async with state_in(tmp_path / "new") as state:
            its = state.security.table.of(ORG)
            assert not state.security.journal.incomplete
            assert list(its.users) == ([] if org else ["alice"])
            assert list(its.rules) == ([] if org else [rule("t")])
    if org:
        part = (tmp_path / "new").rglob("*.log")
        assert not any(b"SCRAM" in path.read_bytes() for path in part)
