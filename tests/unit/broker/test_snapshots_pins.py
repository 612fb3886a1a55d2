"""Pins: owners, limits, ends, and what the mesh may read of them."""

from __future__ import annotations

import asyncio
import os
from contextlib import ExitStack
from dataclasses import replace
from itertools import chain
from pathlib import Path
from unittest.mock import patch

import pytest

from quafka_broker.config.settings import BrokerConfig
from quafka_broker.ops import snapshots as ops
from quafka_broker.snapshots import local_cut as local_cut_module
from quafka_broker.snapshots import pins
from quafka_broker.snapshots.create import Creation
from quafka_broker.snapshots.cut import decode_cut
from quafka_broker.snapshots.cut_files import PinnedFiles
from quafka_broker.snapshots.folder_destination import FolderDestination
from quafka_broker.snapshots.local_cut import local_cut
from quafka_broker.snapshots.pins import held, pin, pinned_cut
from quafka_broker.snapshots.repack import Repack
from quafka_broker.wal.data_folder import DataFolder
from quafka_loop import clock, threads
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
from quafka_proto.errors import ErrorCode
from quafka_proto.log_format import FILE_HEADER_SIZE, INDEX_ROW_SIZE, IndexRow, decode_row
from quafka_telemetry.startup import StartupError
from tests.support.snapshot_reader import in_folder, values
from tests.support.suites import more
from tests.unit.broker.snapshot_tools import (
    ORG,
    OTHER_ORG,
    delete_below,
    named,
    put,
    rewrite,
    state_in,
)
from tests.unit.broker.tools import context

E = ErrorCode
ONE, TWO = "1" * 64, "2" * 64
LIMITS = pins.PinLimits.of(BrokerConfig())


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
    hour_ago = clock.time() - 3600
    for name in (kept, old, over):
        os.utime(data / "pins" / name / "pin.json", (hour_ago, hour_ago))
    os.utime(data / "pins" / lost, (hour_ago, hour_ago))
    with held(data, kept):
        pins.remove_ended_pins(data, LIMITS)
        assert {path.name for path in (data / "pins").iterdir()} == {kept, remote}
    almost = clock.time() - LIMITS.lease + 60
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
    long_ago = clock.time() - LIMITS.lifetime - 60
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
        hour_ago = clock.time() - 3600
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


@pytest.mark.parametrize("size", [*more([1]), 700, *more([MAX_READ])])
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

    def release() -> None:
        clock.sleep(0.3)
        other.release()

    released = threads.Thread(target=release)
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
    assert len(list(Path("/proc/self/fd").iterdir())) <= open_before
    other.release()
