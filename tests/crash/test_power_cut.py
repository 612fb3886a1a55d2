"""A power cut at every moment of a workload: no acknowledged record is lost, none is invented."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quafka_broker.partitions.errors import CorruptError
from quafka_broker.wal.fsync import FsyncPolicy
from quafka_broker.wal.log import Log
from tests.support.no_threads import no_threads
from tests.support.suites import examples, more
from tests.unit.broker.memory_disk import MemoryDisk, Snapshot, Survives
from tests.unit.broker.tools import EVERYTHING, append, checked, open_log, topic_id, values_of

NAMES = "abc"
SEGMENT = 1_500

Sent = dict[str, list[bytes]]
Acked = list[tuple[int, str, int]]
"""The number of disk operations at the time of an answer; topic; records up to it."""

SURVIVORS: dict[str, Survives] = {
    "nothing": lambda _name, _sector: False,
    "everything": lambda _name, _sector: True,
    "the log but not the index": lambda name, _sector: name.endswith(".log"),
    "the index but not the log": lambda name, _sector: name.endswith(".oidx"),
    "every other sector": lambda _name, sector: sector % 2 == 0,
    "the others": lambda _name, sector: sector % 2 == 1,
    "all but one in three": lambda _name, sector: sector % 3 != 0,
}


async def workload(
    disk: MemoryDisk, fsync: FsyncPolicy, checkpoint_bytes: int = 1 << 30
) -> tuple[Sent, Acked]:
    """Groups of appends to three topics, over several segments."""
    sent: Sent = {name: [] for name in NAMES}
    acked: Acked = []

    async def one(log: Log, name: str, value: bytes) -> None:
        sent[name].append(value)
        mine = len(sent[name])
        await append(log, name, value)
        acked.append((len(disk.done), name, mine))

    async with open_log(disk, fsync, SEGMENT, checkpoint_bytes) as log:
        for turn in range(8):
            await asyncio.gather(
                *[one(log, name, b"%s%d" % (name.encode(), turn) * 30) for name in NAMES * 2]
            )
    return sent, acked


@asynccontextmanager
async def recovered(disk: MemoryDisk, segment_bytes: int = 1 << 20) -> AsyncIterator[Log]:
    """The log of a disk after a cut, opened many times: only the disk's content matters."""
    with no_threads():
        async with open_log(disk, segment_bytes=segment_bytes) as log:
            yield log


async def check(disk: MemoryDisk, sent: Sent, least: dict[str, int]) -> None:
    """The found records are a prefix of the sent ones, include all acknowledged ones, and stay."""
    found: Sent = {}
    async with recovered(disk, SEGMENT) as log:
        assert not log.damages
        for name in NAMES:
            found[name] = await values_of(log, name)
            assert found[name] == sent[name][: len(found[name])]
            assert len(found[name]) >= least[name]
            assert await append(log, name, b"after") == len(found[name])
    async with recovered(disk.copy(), SEGMENT) as log:
        for name in NAMES:
            assert await values_of(log, name) == [*found[name], b"after"]


def least_acked(acked: Acked, operations: int) -> dict[str, int]:
    return {
        name: max((n for done, of, n in acked if of == name and done <= operations), default=0)
        for name in NAMES
    }


@pytest.mark.parametrize("survivors", SURVIVORS)
@pytest.mark.parametrize("size_survives", [*more([True]), False])
@pytest.mark.parametrize("checkpoint_bytes", [700, *more([1 << 30])])
async def test_at_every_moment(survivors: str, size_survives: bool, checkpoint_bytes: int) -> None:
    disk = MemoryDisk(record=True)
    sent, acked = await workload(disk, FsyncPolicy(), checkpoint_bytes)
    assert len(disk.files) > 6, "several segments"
    assert len(acked) == 48
    for operations, snapshot in enumerate(disk.snapshots, 1):
        left = snapshot.after_power_cut(SURVIVORS[survivors], size_survives)
        await check(left, sent, least_acked(acked, operations))


@examples(40)
@given(data=st.data())
def test_at_any_moment_with_any_sectors(data: st.DataObject) -> None:
    async def run() -> None:
        disk = MemoryDisk(record=True)
        sent, acked = await workload(disk, FsyncPolicy())
        # The number of operations differs between runs: appends share writes as they arrive.
        operations = 1 + data.draw(st.integers(0, 9_999)) % len(disk.snapshots)
        lost = data.draw(st.sets(st.integers(0, 200)))
        left = disk.snapshots[operations - 1].after_power_cut(
            lambda _name, sector: sector not in lost, size_survives=True
        )
        await check(left, sent, least_acked(acked, operations))

    asyncio.run(run())


@pytest.mark.long
@pytest.mark.parametrize("checkpoint_bytes", [700, 1 << 30])
async def test_with_lax_syncing_a_prefix_is_left(checkpoint_bytes: int) -> None:
    disk = MemoryDisk(record=True)
    sent, _ = await workload(disk, FsyncPolicy(0.0), checkpoint_bytes)
    for snapshot in disk.snapshots:
        for survives in SURVIVORS.values():
            await check(snapshot.after_power_cut(survives, True), sent, dict.fromkeys(NAMES, 0))


async def test_a_second_power_cut_during_recovery() -> None:
    disk = MemoryDisk(record=True)
    sent, acked = await workload(disk, FsyncPolicy(), 700)
    for operations, snapshot in list(enumerate(disk.snapshots, 1))[::5]:
        first = snapshot.after_power_cut(SURVIVORS["every other sector"], True)
        again = MemoryDisk(record=True)
        for file in first.files.values():
            again.put(file.name, bytes(file.data))
        async with recovered(again, SEGMENT):
            pass
        for second in again.snapshots:
            left = second.after_power_cut(SURVIVORS["the index but not the log"], True)
            await check(left, sent, least_acked(acked, operations))


async def grouped() -> tuple[MemoryDisk, int]:
    """One segment: three acknowledged groups, then one of three batches, and its position."""
    disk = MemoryDisk()
    async with open_log(disk) as log:
        for n in range(3):
            await append(log, "a", b"%d" % n * 50)
        start = disk.files["000000000000.log"].size()
        partition = log.partitions.get(topic_id("a"))
        await asyncio.gather(
            *[log.queue.append(partition, checked(b"%d" % n * 50)) for n in range(3, 6)]
        )
    return disk.crashed(), start


Spoil = Callable[[bytearray, int], None]


def _flip(data: bytearray, at: int) -> None:
    data[at] ^= 0x40


def _zero_from(data: bytearray, at: int) -> None:
    data[at:] = bytes(len(data) - at)


def _cut(data: bytearray, at: int) -> None:
    del data[at:]


@pytest.mark.parametrize("spoil", [_flip, _zero_from, _cut])
@pytest.mark.parametrize("index_survives", [True, False])
async def test_a_torn_tail_is_cut_off_at_every_byte(spoil: Spoil, index_survives: bool) -> None:
    disk, start = await grouped()
    whole = bytes(disk.files["000000000000.log"].data)
    size = (len(whole) - start) // 3
    for at in range(start, len(whole)):
        left = disk.copy()
        data = left.files["000000000000.log"].data
        spoil(data, at)
        if not index_survives:
            del left.files["000000000000.oidx"]
        kept = 3
        while kept < 6 and data[: start + (kept - 2) * size] == whole[: start + (kept - 2) * size]:
            kept += 1
        async with recovered(left) as log:
            assert await values_of(log, "a") == [b"%d" % n * 50 for n in range(kept)]
            assert await append(log, "a", b"next") == kept


@pytest.mark.parametrize("length", [1, 40])
async def test_damage_of_acknowledged_data_is_never_cut_off(length: int) -> None:
    """At each byte of the acknowledged groups: later entries show that they were durable.

    Exactly the damaged records are lost and reported, and no offset shifts.
    """
    disk, start = await grouped()
    first_end = 32 + (start - 32) // 3
    for at in range(32, start - length + 1):
        left = disk.copy()
        for place in range(at, at + length):
            _flip(left.files["000000000000.log"].data, place)
        del left.files["000000000000.oidx"]
        position = 32 + (at - 32) // (first_end - 32) * (first_end - 32)
        async with recovered(left) as log:
            partition = log.partitions.get(topic_id("a"))
            assert partition.high_watermark == 6
            assert log.damages[0].start == position
            lost = {n for d in log.damages for of in d.lost for n in range(of.first, of.end)}
            assert len(lost) == len(log.damages) == 1 + (at + length > position + first_end - 32)
            for offset in range(6):
                if offset in lost:
                    with pytest.raises(CorruptError):
                        await log.reader.read(partition, offset, EVERYTHING, at_least_one=True)
                else:
                    values = await values_of(log, partition, offset)
                    assert values[0] == b"%d" % offset * 50
            assert await append(log, "a", b"next") == 6


def test_the_model_of_the_disk_forgets() -> None:
    """The disk of the tests above finds known faults."""
    snapshot = Snapshot({"x": (b"a" * 100 + b"b" * 100, b"a" * 100)}, frozenset({"x"}))

    def left(survives: Survives, size_survives: bool) -> bytes:
        return bytes(snapshot.after_power_cut(survives, size_survives).files["x"].data)

    assert left(SURVIVORS["nothing"], True) == b"a" * 100 + bytes(100)
    assert left(SURVIVORS["nothing"], False) == b"a" * 100
    assert left(SURVIVORS["everything"], True) == b"a" * 100 + b"b" * 100
