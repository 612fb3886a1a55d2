"""A full disk: producers are refused, work that frees space is not, and writes resume."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from quafka_broker.partitions.errors import StorageError
from quafka_broker.partitions.producers import Producers
from quafka_broker.wal.disk import RealDisk
from quafka_broker.wal.fsync import FsyncPolicy
from quafka_broker.wal.log import Log
from quafka_broker.wal.reserve import NAME
from tests.unit.broker.memory_disk import MemoryDisk
from tests.unit.broker.tools import append, checked, topic_id, values_of

RESERVE = 5_000


@asynccontextmanager
async def open_log(disk: MemoryDisk, segment_bytes: int = 1 << 20) -> AsyncIterator[Log]:
    log = Log(disk, FsyncPolicy(), segment_bytes, reserve_bytes=RESERVE)
    log.open(Producers())
    log.settle(dict.fromkeys(log.partitions.ids(), 0))
    log.start()
    try:
        yield log
    finally:
        await log.close()


async def urgently(log: Log, *values: bytes) -> int:
    pending = log.queue.append(
        log.partitions.get(topic_id("registry")), checked(*values), urgent=True
    )
    return (await pending)[0]


@pytest.mark.parametrize("segment_bytes", [1 << 20, 300])
async def test_urgent_appends_are_written_on_a_full_disk(
    monkeypatch: pytest.MonkeyPatch, segment_bytes: int
) -> None:
    monkeypatch.setattr("quafka_broker.wal.reserve._RETRY_SECONDS", 0.0)
    disk = MemoryDisk()
    async with open_log(disk, segment_bytes) as log:
        await append(log, "a", b"1" * 200)
        assert disk.files[NAME].size() == RESERVE
        disk.room = 100
        with pytest.raises(StorageError):
            await append(log, "a", b"2" * 200)
        assert NAME in disk.files, "not for producers"
        assert await urgently(log, b"delete" * 50) == 0
        assert NAME not in disk.files
        assert await urgently(log, b"more") == 1
        with pytest.raises(StorageError, match="full"):
            await append(log, "a", b"3")
        assert await values_of(log, "a") == [b"1" * 200], "consumers go on"
        disk.room += 200
        with pytest.raises(StorageError, match="full"):
            await append(log, "a", b"4")  # there is room, but not for a reserve
        disk.room += 100_000
        assert await append(log, "a", b"5") == 1
        assert disk.files[NAME].size() == RESERVE
        assert log.health() == (None, None, 0)


async def test_only_appends_that_are_not_urgent_are_refused() -> None:
    disk = MemoryDisk()
    async with open_log(disk) as log:
        disk.room = 0
        partition = log.partitions.get(topic_id("a"))
        pending = [
            log.queue.append(partition, checked(b"1")),
            log.queue.append(partition, checked(b"2")),
        ]
        urgent = log.queue.append(log.partitions.get(topic_id("r")), checked(b"x"), urgent=True)
        later = log.queue.append(partition, checked(b"3"))
        results = await asyncio.gather(*pending, urgent, later, return_exceptions=True)
        assert [isinstance(result, StorageError) for result in results] == [True, True, False, True]
        assert log.health().failed is None
        assert partition.high_watermark == 0
        assert await values_of(log, "r") == [b"x"]
        await log.queue.wait_for_room()


async def test_without_the_reserve_urgent_appends_are_refused_too() -> None:
    disk = MemoryDisk()
    async with open_log(disk) as log:
        disk.room = 0
        with pytest.raises(StorageError):
            await urgently(log, b"x" * 2 * RESERVE)
        assert log.health().refusing is not None
        disk.room = None


async def test_a_checkpoint_may_use_the_reserve() -> None:
    disk = MemoryDisk()
    async with open_log(disk) as log:
        await append(log, "a", b"1")
        disk.room = 10
    assert [name for name in disk.files if name.startswith("checkpoint")]
    assert NAME not in disk.files


def test_a_real_reserve_takes_room(tmp_path: Path) -> None:
    disk = RealDisk(tmp_path)
    for _ in range(2):
        disk.allocate(NAME, 1 << 20)
        assert (tmp_path / NAME).stat().st_blocks * 512 >= 1 << 20
    with pytest.raises(OSError, match=r"."):
        disk.allocate("huge", 1 << 60)
    assert disk.names() == [NAME]
