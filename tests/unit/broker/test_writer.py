"""Who writes a commit: the event loop if it is short, else the log's thread."""

from __future__ import annotations

import asyncio
import errno
from functools import partial
from itertools import count
from pathlib import Path

import pytest

from quafka_broker.partitions.errors import InDoubtError, StorageError
from quafka_broker.wal import active_segment
from quafka_broker.wal.fsync import FsyncPolicy
from quafka_broker.wal.log_thread import LogThread
from quafka_loop import clock, threads
from quafka_loop.eager_task import EagerTask
from tests.support.virtual.threads import current_hub
from tests.unit.broker.memory_disk import MemoryDisk
from tests.unit.broker.tools import append, checked, open_log, topic_id, values_of

LOOP, THREAD = "main", "wal-write"
LAX = FsyncPolicy(0.0)


class WatchedDisk(MemoryDisk):
    """Knows which threads have written and synced the log; its writes can be slow."""

    def __init__(self) -> None:
        super().__init__()
        self.by: list[tuple[str, str]] = []
        self.write_seconds = 0.0

    def did(self, what: str, name: str) -> None:
        super().did(what, name)
        if name.endswith(".log"):
            clock.sleep(self.write_seconds if what == "append" else 0)
            self.by.append((what, current_hub().current.name))


async def test_a_short_commit_is_written_by_the_loop_and_synced_by_the_thread() -> None:
    disk = WatchedDisk()
    async with open_log(disk) as log:
        disk.by.clear()
        await append(log, "t", b"x")
        assert disk.by == [("append", LOOP), ("sync", THREAD)]


async def test_without_a_sync_a_short_commit_needs_no_thread() -> None:
    disk = WatchedDisk()
    async with open_log(disk, LAX) as log:
        disk.by.clear()
        await append(log, "t", b"x")
        assert disk.by == [("append", LOOP)]


async def test_the_appends_of_a_turn_share_a_commit_which_is_written_in_that_turn() -> None:
    disk = WatchedDisk()
    async with open_log(disk) as log:
        disk.by.clear()
        partition = log.partitions.get(topic_id())
        pending = [log.queue.append(partition, checked(b"x")) for _ in range(5)]
        assert not disk.by
        written: list[int] = []
        asyncio.get_running_loop().call_soon(lambda: written.append(len(disk.by)))
        await asyncio.gather(*pending)
        assert written[0] > 0, "before the next turn"
        assert log.stats.groups == 1


@pytest.mark.parametrize("policy", [LAX, FsyncPolicy()])
async def test_a_long_commit_is_written_by_the_thread(policy: FsyncPolicy) -> None:
    disk = WatchedDisk()
    async with open_log(disk, policy) as log:
        disk.by.clear()
        await append(log, "t", bytes(100_000))
        assert {by for _, by in disk.by} == {THREAD}


async def test_after_a_slow_write_the_thread_writes_for_a_while(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(active_segment, "_waits", count().__next__)  # the kernel's count of waits
    disk = WatchedDisk()
    async with open_log(disk, LAX) as log:
        disk.write_seconds = 0.02
        await append(log, "t", b"slow")
        disk.by.clear()
        await append(log, "t", b"next")
        assert disk.by == [("append", THREAD)]
        assert await values_of(log, "t") == [b"slow", b"next"]


async def test_the_loop_writes_nothing_while_a_job_uses_the_segment() -> None:
    disk = WatchedDisk()
    async with open_log(disk, LAX) as log:
        begun, goes_on = threads.Event(), threads.Event()
        active = log._open.active  # pyright: ignore[reportPrivateUsage]

        def job() -> int:
            begun.set()
            goes_on.wait(10)
            return len(disk.by)

        running = EagerTask(active.run(job))
        await asyncio.to_thread(begun.wait, 10)
        before = len(disk.by)
        pending = EagerTask(append(log, "t", b"x"))
        await asyncio.sleep(0.02)
        assert not pending.done()
        goes_on.set()
        assert await running == before, "nothing was written meanwhile"
        assert await pending == 0
        assert disk.by[before:] == [("append", THREAD)]


@pytest.mark.parametrize("size", [1, 100_000])
async def test_a_failed_write_is_taken_back_whoever_wrote(size: int) -> None:
    disk = WatchedDisk()
    async with open_log(disk) as log:
        await append(log, "t", b"before")
        disk.room = 50
        with pytest.raises(StorageError, match="No space left"):
            await append(log, "t", bytes(size))
        disk.room = None
        assert await append(log, "t", b"after") == 1
    async with open_log(disk.crashed()) as log:
        assert await values_of(log, "t") == [b"before", b"after"]


async def test_a_failed_sync_of_a_short_commit_ends_the_log() -> None:
    disk = WatchedDisk()
    async with open_log(disk) as log:
        disk.sync_fails = True
        with pytest.raises(InDoubtError):
            await append(log, "t", b"x")
        disk.sync_fails = False
        with pytest.raises(StorageError, match="takes no more writes"):
            await append(log, "t", b"y")
        assert log.failure is not None


async def test_no_sync_follows_a_failed_one() -> None:
    """The kernel may have dropped the pages whose sync failed: the next sync would succeed."""
    disk = WatchedDisk()
    async with open_log(disk) as log:
        active = log._open.active  # pyright: ignore[reportPrivateUsage]
        disk.by.clear()
        disk.sync_fails = True
        failing = EagerTask(append(log, "t", b"x"))
        while not disk.by:
            await asyncio.sleep(0)
        mended = EagerTask(active.run(partial(setattr, disk, "sync_fails", False)))
        later = EagerTask(active.make_log_durable())
        with pytest.raises(InDoubtError):
            await failing
        await mended
        with pytest.raises(OSError, match="fsync failed"):
            await later


async def test_ops_that_append_in_a_chain_leave_the_loop_its_turns() -> None:
    """Without a sync, a commit need not wait for anything."""
    ended = False

    async def chain() -> None:
        while not ended:
            await append(log, "t", b"x")

    async with open_log(MemoryDisk(), LAX) as log:
        running = EagerTask(chain())
        await asyncio.wait_for(asyncio.sleep(0.01), 30)
        ended = True
        await running


async def test_jobs_run_in_order_and_give_their_results_and_errors() -> None:
    thread = LogThread("jobs")
    order: list[int] = []

    def job(number: int) -> int:
        order.append(number)
        if number == 1:
            raise OSError(errno.EIO, "bad")
        return number

    jobs = [thread.run(partial(job, number)) for number in range(4)]
    jobs[2].cancel()
    found = await asyncio.gather(*jobs, return_exceptions=True)
    assert order == [0, 1, 2, 3]
    assert (found[0], found[3]) == (0, 3)
    assert isinstance(found[1], OSError)
    assert isinstance(found[2], asyncio.CancelledError)
    thread.close()
    LogThread("unused").close()


def _descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


async def test_jobs_that_end_while_the_thread_is_closed_give_their_results() -> None:
    thread = LogThread("jobs")
    descriptors = _descriptors()
    jobs = [thread.run(partial(int, number)) for number in range(100)]
    thread.close()
    thread.close()
    assert await asyncio.wait_for(asyncio.gather(*jobs), 30) == list(range(100))
    assert _descriptors() == descriptors


async def test_a_caller_may_run_the_next_job_and_close_the_thread_within_its_answer() -> None:
    thread = LogThread("jobs")

    async def chain() -> list[int]:
        found = [await thread.run(partial(int, number)) for number in range(100)]
        thread.close()
        return found

    assert await asyncio.wait_for(EagerTask(chain()), 30) == list(range(100))


def test_a_thread_outlives_its_loop() -> None:
    thread = LogThread("jobs")
    begin = threads.Event()

    async def leave() -> None:
        thread.run(begin.wait)

    asyncio.run(leave())
    begin.set()
    thread.close()


async def test_sealing_between_appends_loses_nothing() -> None:
    disk = MemoryDisk()
    async with open_log(disk) as log:
        appends: list[asyncio.Future[object]] = []
        for n in range(60):
            appends.append(asyncio.ensure_future(append(log, "t", b"%d" % n)))
            if n % 7 == 0:
                appends.append(asyncio.ensure_future(log.seal()))
            if n % 10 == 0:
                await asyncio.sleep(0)
            if n % 20 == 19:
                await asyncio.gather(*appends)
                await log.seal()
        count = len(log.segments())
        await log.seal()  # the active segment is empty
        assert len(log.segments()) == count > 3
        assert await values_of(log, "t") == [b"%d" % n for n in range(60)]
    for left in (disk, disk.crashed()):
        async with open_log(left) as log:
            assert await values_of(log, "t") == [b"%d" % n for n in range(60)]
            assert not log.damages
            await append(log, "t", b"more")


async def test_a_log_that_has_failed_cannot_be_sealed() -> None:
    disk = MemoryDisk()
    async with open_log(disk) as log:
        await append(log, "t", b"1")
        disk.sync_fails = True
        with pytest.raises(StorageError):
            await append(log, "t", b"2")
        with pytest.raises(OSError, match="no more writes"):
            await log.seal()
        disk.sync_fails = False
