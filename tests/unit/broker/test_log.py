"""The log: appends, group commit, reads, and faults of the disk."""

from __future__ import annotations

import asyncio
from functools import partial
from pathlib import Path
from typing import cast

import pytest

from quafka_broker.partitions.errors import StorageError
from quafka_broker.partitions.partition import Partition
from quafka_broker.wal.append_queue import Share
from quafka_broker.wal.disk import File, RealDisk
from quafka_broker.wal.fsync import FsyncPolicy
from quafka_broker.wal.opening import _has_freed
from quafka_broker.wal.segment import Segment
from quafka_proto.log_format import APPENDED, REWRITTEN, FileHeader
from tests.unit.broker.memory_disk import MemoryDisk
from tests.unit.broker.tools import EVERYTHING, append, checked, open_log, topic_id, values_of


async def test_offsets_are_dense_per_partition() -> None:
    async with open_log(MemoryDisk()) as log:
        assert await append(log, "a", b"1", b"2") == 0
        assert await append(log, "b", b"x") == 0
        assert await append(log, "a", b"3") == 2
        assert await values_of(log, "a") == [b"1", b"2", b"3"]
        assert await values_of(log, "b") == [b"x"]
        assert await values_of(log, "a", 1) == [b"2", b"3"], "from inside a batch"
        assert await values_of(log, "a", 3) == [], "at the high watermark"


async def test_waiting_appends_share_one_sync() -> None:
    disk = MemoryDisk()
    async with open_log(disk) as log:
        before = disk.syncs()
        offsets = await asyncio.gather(*[append(log, "a", b"%d" % n) for n in range(50)])
        assert offsets == list(range(50))
        assert disk.syncs() - before <= 2
        assert await values_of(log, "a") == [b"%d" % n for n in range(50)]


async def test_records_are_readable_only_after_the_sync() -> None:
    disk = MemoryDisk()
    async with open_log(disk) as log:
        partition = log.partitions.get(topic_id("a"))
        pending = log.queue.append(partition, checked(b"1"))
        assert partition.high_watermark == 0
        await pending
        assert partition.high_watermark == 1
        name = "000000000000.log"
        assert disk.files[name].durable == bytes(disk.files[name].data)


@pytest.mark.parametrize("cached", [True, False])
async def test_reads_work_with_and_without_the_page_cache(cached: bool) -> None:
    disk = MemoryDisk()
    disk.cached = cached
    async with open_log(disk, segment_bytes=400) as log:
        for n in range(20):
            await append(log, "ab"[n % 2], b"%d" % n)
        assert await values_of(log, "a") == [b"%d" % n for n in range(0, 20, 2)]
        assert await values_of(log, "b", 4) == [b"%d" % n for n in range(9, 20, 2)]


async def test_max_bytes_counts_whole_batches() -> None:
    async with open_log(MemoryDisk()) as log:
        partition = log.partitions.get(topic_id("a"))
        size = len(checked(b"1")[0][1])
        for n in range(5):
            await append(log, "a", b"%d" % n)

        async def count(max_bytes: int, at_least_one: bool) -> int:
            return len(await log.reader.read(partition, 0, max_bytes, at_least_one=at_least_one))

        assert await count(0, at_least_one=True) == 1
        assert await count(0, at_least_one=False) == 0
        assert await count(size, at_least_one=False) == 1
        assert await count(2 * size - 1, at_least_one=True) == 1
        assert await count(2 * size, at_least_one=True) == 2
        assert await count(EVERYTHING, at_least_one=False) == 5
        assert log.reader.readable(partition, 0, EVERYTHING, 99) == (5 * size, 5)
        assert log.reader.readable(partition, 3, EVERYTHING, 99) == (2 * size, 2)
        assert log.reader.readable(partition, 0, EVERYTHING, 2) == (2 * size, 2)
        assert log.reader.readable(partition, 0, 1, 99) == (size, 1)
        assert log.reader.readable(partition, 0, 0, 99) == (0, 0)


async def test_batches_are_returned_unchanged_except_offset_and_epoch(tmp_path: Path) -> None:
    batches = checked(b"x" * 5_000)
    async with open_log(RealDisk(tmp_path)) as log:
        partition = log.partitions.get(topic_id("a"))
        await log.queue.append(partition, batches)
        await log.queue.append(partition, batches)
        first, second = await log.reader.read(partition, 0, EVERYTHING, at_least_one=True)
    sent = batches[0][1]
    assert (first[8:12], first[16:]) == (sent[8:12], sent[16:])
    assert bytes(first[:8]) == bytes(8)
    assert bytes(second[:8]) == (1).to_bytes(8, "big")
    assert bytes(first[12:16]) == bytes(4), "leader epoch 0"


async def test_a_restart_finds_everything(tmp_path: Path) -> None:
    expected = [b"%d" % n for n in range(60)]
    async with open_log(RealDisk(tmp_path), segment_bytes=2_000) as log:
        for value in expected[:40]:
            await append(log, "a", value)
            await append(log, "b", value)
    assert len(RealDisk(tmp_path).names()) > 4
    async with open_log(RealDisk(tmp_path), segment_bytes=2_000) as log:
        assert await values_of(log, "a") == expected[:40]
        for value in expected[40:]:
            await append(log, "a", value)
    async with open_log(RealDisk(tmp_path)) as log:
        assert await values_of(log, "a") == expected
        assert await values_of(log, "b") == expected[:40]


async def test_a_log_that_closes_takes_no_other_checkpoint() -> None:
    """A shard that is handed over may be lost, and closed, before its last checkpoint begins."""
    async with open_log(MemoryDisk()) as log:
        await append(log, "a", b"1")
        closing = asyncio.ensure_future(log.close())
        await asyncio.sleep(0)
        with pytest.raises(OSError, match="the log closes"):
            await log.checkpoint()
        await closing
        with pytest.raises(OSError, match="the log closes"):
            await log.checkpoint()


async def test_a_full_disk_refuses_and_later_writes_work() -> None:
    disk = MemoryDisk()
    async with open_log(disk) as log:
        await append(log, "a", b"1")
        before = {name: bytes(file.data) for name, file in disk.files.items()}
        disk.room = 100
        with pytest.raises(StorageError, match="No space left"):
            await append(log, "a", b"2" * 200)
        assert {name: bytes(file.data) for name, file in disk.files.items()} == before
        disk.room = None
        assert await append(log, "a", b"3") == 1
        assert await values_of(log, "a") == [b"1", b"3"]
    async with open_log(disk.copy()) as log:
        assert await values_of(log, "a") == [b"1", b"3"]


async def test_a_failed_write_refuses_the_waiting_appends() -> None:
    disk = MemoryDisk()
    async with open_log(disk) as log:
        partition = log.partitions.get(topic_id("a"))
        disk.room = 0
        waiting = [log.queue.append(partition, checked(b"%d" % n)) for n in range(3)]
        results = await asyncio.gather(*waiting, return_exceptions=True)
        assert all(isinstance(result, StorageError) for result in results)
        assert partition.high_watermark == 0


async def test_a_full_disk_while_a_new_segment_is_begun() -> None:
    disk = MemoryDisk()
    async with open_log(disk, segment_bytes=200) as log:
        await append(log, "a", b"1" * 200)
        for room in (0, 20, 50):  # no file, half a header, half an index header
            disk.room = room
            with pytest.raises(StorageError):
                await append(log, "a", b"2")
            assert disk.names() == ["000000000000.log", "000000000000.oidx", "leader-epoch"]
        disk.room = None
        assert await append(log, "a", b"3") == 1
    async with open_log(disk.copy()) as log:
        assert await values_of(log, "a") == [b"1" * 200, b"3"]


async def test_a_failed_sync_ends_writing_but_not_reading() -> None:
    disk = MemoryDisk()
    async with open_log(disk) as log:
        await append(log, "a", b"1")
        disk.sync_fails = True
        with pytest.raises(StorageError, match="fsync failed"):
            await append(log, "a", b"2")
        disk.sync_fails = False
        with pytest.raises(StorageError, match="takes no more writes"):
            await append(log, "a", b"3")
        assert log.failure is not None
        assert await values_of(log, "a") == [b"1"], "what was not durable is not served"
        assert log.health().failed == log.failure
        await log.close()
        assert not [name for name in disk.names() if name.startswith("checkpoint")]


async def test_a_write_that_cannot_be_truncated_ends_writing() -> None:
    disk = MemoryDisk()
    async with open_log(disk) as log:
        await append(log, "a", b"1")
        disk.room, disk.truncate_fails = 100, True
        with pytest.raises(StorageError):
            await append(log, "a", b"2" * 200)
        disk.room, disk.truncate_fails = None, False
        with pytest.raises(StorageError, match="takes no more writes"):
            await append(log, "a", b"3")
        assert await values_of(log, "a") == [b"1"]
    async with open_log(disk.copy()) as log:
        assert await values_of(log, "a") == [b"1"]


async def test_unreadable_data_is_a_storage_error() -> None:
    disk = MemoryDisk()
    async with open_log(disk) as log:
        await append(log, "a", b"1")
        disk.unreadable = True
        with pytest.raises(StorageError):
            await values_of(log, "a")
        with pytest.raises(StorageError):
            log.reader.readable(log.partitions.get(topic_id("a")), 0, 1, 1)


async def test_interval_syncs_soon_and_only_when_there_is_something() -> None:
    disk = MemoryDisk()
    async with open_log(disk, FsyncPolicy(0.01)) as log:
        before = disk.syncs()
        await append(log, "a", b"1")
        assert disk.syncs() == before
        await asyncio.sleep(0.1)
        assert disk.syncs() == before + 1
        await append(log, "a", b"2")
    assert disk.syncs() == before + 2, "closing syncs"


async def test_a_failed_late_sync_ends_writing() -> None:
    disk = MemoryDisk()
    async with open_log(disk, FsyncPolicy(0.001)) as log:
        disk.sync_fails = True
        await append(log, "a", b"1")
        await asyncio.sleep(0.05)
        with pytest.raises(StorageError, match="takes no more writes"):
            await append(log, "a", b"2")


async def test_never_leaves_syncing_to_the_system() -> None:
    disk = MemoryDisk()
    async with open_log(disk, FsyncPolicy(0.0)) as log:
        before = disk.syncs()
        await append(log, "a", b"1")
        await asyncio.sleep(0.02)
        assert disk.syncs() == before


async def test_closing_writes_waiting_appends_and_refuses_new_ones() -> None:
    disk = MemoryDisk()
    async with open_log(disk) as log:
        partition = log.partitions.get(topic_id("a"))
        pending = log.queue.append(partition, checked(b"1"))
        closing = asyncio.create_task(log.close())
        assert await pending == [0]
        await closing
        with pytest.raises(StorageError):
            await log.queue.append(partition, checked(b"2"))


async def test_callers_wait_for_room_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("quafka_broker.wal.append_queue._MAX_PENDING_BYTES", 1)
    async with open_log(MemoryDisk()) as log:
        partition = log.partitions.get(topic_id("a"))

        async def send(value: bytes) -> int:
            await log.queue.wait_for_room()
            return (await log.queue.append(partition, checked(value)))[0]

        assert await asyncio.gather(*[send(b"%d" % n) for n in range(20)]) == list(range(20))
        assert await values_of(log, "a") == [b"%d" % n for n in range(20)]


async def test_orgs_that_append_at_once_wait_for_a_share_of_each_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("quafka_broker.wal.log.Share", partial(Share, 1))
    async with open_log(MemoryDisk()) as log:
        flooding = log.partitions.get(topic_id("a")._replace(org_id=7))
        modest = log.partitions.get(topic_id("b")._replace(org_id=8))
        order: list[str] = []

        async def send(partition: Partition, name: str) -> None:
            org = partition.id.org_id
            await log.queue.wait_for_room(org)
            await log.queue.append(partition, checked(b"x"))
            order.append(name)

        alone = [asyncio.create_task(send(flooding, "early")) for _ in range(5)]
        await asyncio.sleep(0)
        assert log.queue.has_room(7)  # one org alone may fill the queue
        await asyncio.gather(*alone, send(modest, "begins"))
        tasks = [asyncio.create_task(send(flooding, f"flood {n}")) for n in range(20)]
        await asyncio.sleep(0)
        assert not log.queue.has_room(7)
        assert log.queue.has_room(8)
        assert log.queue.has_room()  # the broker's own appends wait for nobody
        await send(modest, "modest")
        assert "flood 3" not in order
        await asyncio.gather(*tasks)
        floods = [name for name in order if name.startswith("flood")]
        assert floods == [f"flood {n}" for n in range(20)]
        assert log.figures().pending_bytes == 0
        assert log.queue.has_room(7)


async def test_only_requested_bytes_are_read() -> None:
    disk = MemoryDisk()
    async with open_log(disk) as log:
        for _ in range(3):
            await append(log, "a", b"1")
            await append(log, "b", b"x" * 10_000)
        file = disk.files["000000000000.log"]
        sizes: list[int] = []
        original = file.read_cached

        def counted(position: int, size: int) -> bytearray | None:
            sizes.append(size)
            return original(position, size)

        file.read_cached = counted  # type: ignore[method-assign]
        assert await values_of(log, "a") == [b"1"] * 3
        assert sum(sizes) < 1_000


@pytest.mark.parametrize(
    ("segments", "freed"),
    [
        ([(0, APPENDED, 0, 2), (1, APPENDED, 2, 5), (2, APPENDED, None, 0)], False),
        ([(0, APPENDED, 0, 2), (3, APPENDED, 2, 5)], False),  # 1 and 2 never got a header
        ([(1, APPENDED, 2, 5)], True),
        ([(0, APPENDED, 0, 2), (1, APPENDED, 3, 5)], True),
        ([(0, REWRITTEN, 0, 2)], True),
        ([], False),
    ],
)
def test_missing_ids_show_that_records_were_freed(
    segments: list[tuple[int, int, int | None, int]], freed: bool
) -> None:
    made = []
    for number, kind, first_id, next_id in segments:
        segment = Segment(number, FileHeader(0, kind), cast(File, None), cast(File, None))
        if first_id is not None:
            segment._sample.append(first_id)
        segment.next_id = next_id
        made.append(segment)
    assert _has_freed(made) == freed
