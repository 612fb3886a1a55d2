"""Freeing and grouping while a broker runs, without effect on its clients."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from quafka_broker.partitions.errors import CorruptError
from quafka_broker.partitions.partition import Partition
from quafka_broker.partitions.producers import Producers
from quafka_broker.state import BrokerState
from quafka_broker.wal import rewrite_task
from quafka_broker.wal.disk import RealDisk
from quafka_broker.wal.fsync import FsyncPolicy
from quafka_broker.wal.log import Log
from quafka_broker.wal.rewrite_task import RewritePolicy
from quafka_broker.wal.segment import Segment, log_name
from quafka_loop import clock
from quafka_proto.log_format import APPENDED, REWRITTEN
from quafka_proto.record_codec import iter_records
from tests.unit.broker.memory_disk import MemoryDisk
from tests.unit.broker.tools import (
    EVERYTHING,
    ORG,
    append,
    checked,
    open_log,
    running_state,
    topic_id,
    values_of,
)

FAST = RewritePolicy(bytes_per_second=1 << 40)
SEGMENT = 3_000
NAMES = ["a", "b", "c"]
VALUES = {name: [b"%s%d" % (name.encode(), n) * 5 for n in range(60)] for name in NAMES}


async def fill(log: Log) -> None:
    for n in range(60):
        await asyncio.gather(*[append(log, name, VALUES[name][n]) for name in NAMES])


async def turn(log: Log, policy: RewritePolicy = FAST) -> int:
    work = log.rewrite_task(policy, lambda: 0)
    try:
        return await work.run_once()
    finally:
        await work.close()


async def check(log: Log, starts: dict[str, int]) -> None:
    for name, start in starts.items():
        assert await values_of(log, name, start) == VALUES[name][start:]


def log_size(disk: MemoryDisk) -> int:
    return sum(f.size() for f in disk.files.values() if f.name.endswith((".log", ".oidx")))


def kinds(log: Log) -> list[int]:
    return [segment.kind for segment in log._contents.segments]


@pytest.mark.parametrize("cached", [True, False])
async def test_mixed_segments_are_grouped(cached: bool) -> None:
    disk = MemoryDisk()
    disk.cached = cached
    async with open_log(disk, segment_bytes=SEGMENT) as log:
        await fill(log)
        before = kinds(log)
        assert before == [APPENDED] * len(before)
        assert len(before) > 4
        assert await turn(log) == 0
        assert kinds(log) == [REWRITTEN] * (len(before) - 1) + [APPENDED]
        await check(log, dict.fromkeys(NAMES, 0))
        done = len(disk.done)
        assert await turn(log) == 0
        assert len(disk.done) == done, "once is enough"
        await append(log, "a", b"more")
    for left in (disk.copy(), disk.copy()):
        left.cached = cached
        async with open_log(left, segment_bytes=SEGMENT) as log:
            found = await values_of(log, "a")
            assert found == [*VALUES["a"], b"more"]
            await check(log, {"b": 0, "c": 0})


async def test_dead_records_are_freed() -> None:
    disk = MemoryDisk()
    async with open_log(disk, segment_bytes=SEGMENT) as log:
        await fill(log)
        size = log_size(disk)
        segments = len(kinds(log))
        log.partitions.drop(topic_id("a"))
        log.partitions.advance_log_start(topic_id("b"), 55)
        log.partitions.advance_log_start(topic_id("c"), 50)
        freed = await turn(log)
        assert log_size(disk) == size - freed
        assert freed > 0.8 * size * (segments - 1) / segments
        assert len(kinds(log)) < 4
        await check(log, {"b": 55, "c": 50})


async def test_dead_segments_are_removed_also_without_rewriting() -> None:
    disk = MemoryDisk()
    async with open_log(disk, segment_bytes=SEGMENT) as log:
        await fill(log)
        old = [segment.number for segment in log._contents.segments[:2]]
        for name in NAMES:
            log.partitions.advance_log_start(topic_id(name), 40)
        assert await turn(log, RewritePolicy(rewrite=False)) > 0
        assert not {log_name(number) for number in old} & set(disk.files)
        assert set(kinds(log)) == {APPENDED}
        await check(log, dict.fromkeys(NAMES, 40))


async def test_over_restarts_with_and_without_a_checkpoint() -> None:
    disk = MemoryDisk()
    async with running_state(disk, segment_bytes=SEGMENT) as state:
        partitions: list[Partition] = []
        for name in NAMES:
            topic, _ = await state.topics.create(ORG, name, 1)
            partitions.append(state.log.partitions.get(topic.partition_id(0)))
        for n in range(60):
            for name, partition in zip(NAMES, partitions, strict=True):
                await state.log.queue.append(partition, checked(VALUES[name][n]))
        await delete(state, "a", 60)
        await delete(state, "b", 31)
        assert await turn(state.log) > 0
    for forget_checkpoint in (False, True):
        left = disk.copy()
        if forget_checkpoint:
            for name in [name for name in left.files if name.startswith("checkpoint")]:
                del left.files[name]
        async with running_state(left, segment_bytes=SEGMENT) as state:
            for name, start in (("a", 60), ("b", 31), ("c", 0)):
                topic_ = state.registry.by_name(ORG, name)
                assert topic_ is not None
                partition = state.log.partitions.get(topic_.partition_id(0))
                assert (partition.log_start, partition.high_watermark) == (start, 60)
                assert await values_of(state.log, partition, start) == VALUES[name][start:]
            assert not state.log.damages


async def delete(state: BrokerState, name: str, offset: int) -> None:
    topic = state.registry.by_name(ORG, name)
    assert topic is not None
    await state.topics.delete_records({topic: {0: offset}})
    state.log.partitions.get(topic.partition_id(0))


async def test_running_reads_keep_the_old_files(tmp_path: Path) -> None:
    log = Log(RealDisk(tmp_path), FsyncPolicy(0.0), SEGMENT)
    log.open(Producers())
    log.start()
    await fill(log)
    old = log._contents.segments[0]
    descriptors = len(list(Path("/proc/self/fd").iterdir()))
    whole = old.log.read(0, old.end)
    log.partitions.drop(topic_id("a"))
    await turn(log)
    assert log._contents.segments[0] is not old
    assert old.log.read(0, old.end) == whole
    del old
    async with asyncio.timeout(10):  # a thread lets go of its last job a moment after its end
        while len(list(Path("/proc/self/fd").iterdir())) > descriptors:
            gc.collect()
            await asyncio.sleep(0.01)
    await check(log, {"b": 0, "c": 0})
    await log.close()


async def test_reading_goes_on_while_everything_is_rewritten(tmp_path: Path) -> None:
    log = Log(RealDisk(tmp_path), FsyncPolicy(0.0), SEGMENT)
    log.open(Producers())
    log.start()
    await fill(log)
    stop = asyncio.Event()

    async def read() -> int:
        count = 0
        while not stop.is_set():
            await check(log, {"b": 0, "c": 0})
            count += 1
            await asyncio.sleep(0.0005)
        return count

    readers = [asyncio.create_task(read()) for _ in range(3)]
    log.partitions.drop(topic_id("a"))
    await turn(log, RewritePolicy(bytes_per_second=1 << 20))
    stop.set()
    assert min(await asyncio.gather(*readers)) > 1
    await log.close()


async def test_a_damaged_segment_is_left_as_it_is() -> None:
    disk = MemoryDisk()
    async with open_log(disk, segment_bytes=SEGMENT) as log:
        await fill(log)
        name = log_name(0)
        disk.files[name].data[500] ^= 1
        spoilt = bytes(disk.files[name].data)
        await turn(log)
        assert bytes(disk.files[name].data) == spoilt
        assert kinds(log)[:2] == [APPENDED, REWRITTEN]
        assert not [left for left in disk.files if left.endswith(".new")]


async def test_a_damaged_segment_is_freed_when_nothing_in_it_is_live() -> None:
    disk = MemoryDisk()
    async with open_log(disk, segment_bytes=SEGMENT) as log:
        await fill(log)
    disk = disk.crashed()
    name = log_name(0)
    disk.files[name].data[-1] ^= 1
    async with open_log(disk, segment_bytes=SEGMENT) as log:
        for id_ in log.partitions.ids():
            with suppress(CorruptError):
                await log.reader.read(log.partitions.get(id_), 0, EVERYTHING, at_least_one=True)
        assert log.damages
        for id_ in log.partitions.ids():
            log.partitions.advance_log_start(id_, log.partitions.get(id_).high_watermark)
        await turn(log)
        assert name not in disk.names()
        assert not log.damages
    async with open_log(disk) as log:
        assert not log.damages


async def test_a_full_disk_is_left_alone_until_there_is_room() -> None:
    disk = MemoryDisk()
    async with open_log(disk, segment_bytes=SEGMENT) as log:
        await fill(log)
        disk.room = 1_000
        assert await turn(log) == 0
        assert set(kinds(log)) == {APPENDED}
        disk.room = None
        await turn(log)
        assert REWRITTEN in kinds(log)


async def test_a_stop_in_the_middle_leaves_the_old_segments() -> None:
    disk = MemoryDisk()
    async with open_log(disk, segment_bytes=SEGMENT) as log:
        await fill(log)
        work = log.rewrite_task(RewritePolicy(bytes_per_second=10_000), lambda: 0)
        task = asyncio.create_task(work.run_once())
        while not [name for name in disk.files if name.endswith(".new")]:
            await asyncio.sleep(0.001)
        task.cancel()
        await work.close()
        assert set(kinds(log)) == {APPENDED}
        await check(log, dict.fromkeys(NAMES, 0))
    async with open_log(disk.copy(), segment_bytes=SEGMENT) as log:
        await check(log, dict.fromkeys(NAMES, 0))


async def test_it_runs_again_after_deletions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rewrite_task, "_POLL_SECONDS", 0.01)
    disk = MemoryDisk()
    deletions = 0
    async with open_log(disk, segment_bytes=SEGMENT) as log:
        await fill(log)
        work = log.rewrite_task(FAST, lambda: deletions)
        task = asyncio.create_task(work.run())
        async with asyncio.timeout(10):
            while REWRITTEN not in kinds(log) or APPENDED in kinds(log)[:-1]:
                await asyncio.sleep(0.01)
            segments = len(kinds(log))
            for name in NAMES:
                log.partitions.advance_log_start(topic_id(name), 60)
            await asyncio.sleep(0.05)
            assert len(kinds(log)) == segments, "nobody has said so"
            deletions += 1
            while len(kinds(log)) > 1:
                await asyncio.sleep(0.01)
        task.cancel()
        await work.close()
        batches = await log.reader.read(
            log.partitions.get(topic_id("a")), 60, EVERYTHING, at_least_one=True
        )
        assert [record for batch in batches for record in iter_records(batch)] == []


async def test_records_that_die_at_the_last_moment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its last records die after they were counted and before its index is read."""
    disk = MemoryDisk()
    async with open_log(disk, segment_bytes=SEGMENT) as log:
        await fill(log)
        work = log.rewrite_task(FAST, lambda: 0)
        count = work._live_records

        async def count_and_delete(segment: Segment) -> int:
            live = await count(segment)
            for name in NAMES:
                log.partitions.advance_log_start(topic_id(name), 59)
            return live

        monkeypatch.setattr(work, "_live_records", count_and_delete)
        await work.run_once()
        await work.close()
        assert all(segment.entries for segment in log._contents.segments)
        await check(log, dict.fromkeys(NAMES, 59))
    async with open_log(disk.copy(), segment_bytes=SEGMENT) as log:
        assert all(segment.entries for segment in log._contents.segments)


async def test_the_pace_includes_the_time_of_the_steps_themselves() -> None:
    async with open_log(MemoryDisk()) as log:
        work = log.rewrite_task(RewritePolicy(bytes_per_second=1 << 20), lambda: 0)

        def steps(seconds: float) -> Iterator[int]:
            for _ in range(100):
                clock.sleep(seconds)
                yield 1 << 16

        for seconds, expected in ((0.0, 6.25), (0.04, 6.25), (0.1, 10.0)):
            began = clock.monotonic()
            await work.paced(steps(seconds))
            assert clock.monotonic() - began == pytest.approx(expected, rel=0.01)
        await work.close()


async def test_after_a_long_step_the_pace_is_not_made_up_for() -> None:
    async with open_log(MemoryDisk()) as log:
        work = log.rewrite_task(RewritePolicy(bytes_per_second=1 << 20), lambda: 0)

        def steps() -> Iterator[int]:
            clock.sleep(60)
            for _ in range(16):
                yield 1 << 16

        began = clock.monotonic()
        await work.paced(steps())
        assert clock.monotonic() - began == pytest.approx(60 + 15 / 16 - 0.05)
        await work.close()
