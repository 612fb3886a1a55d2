"""A log in a folder over a store: other machines, checkpoints, rewriting, retention, trouble."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import pytest

from quafka_broker.wal.log import Log
from quafka_broker.wal.rewrite_task import RewritePolicy
from tests.crash.store_explorer import needed
from tests.support.store_folder import CommittingFolder, RecordedStore
from tests.unit.broker.tools import append, open_log, topic_id, values_of

SMALL = 2_000


@pytest.fixture
def store() -> RecordedStore:
    return RecordedStore()


@contextmanager
def folder_over(store: RecordedStore, cache: Path) -> Iterator[CommittingFolder]:
    folder = CommittingFolder(store, cache)
    try:
        yield folder
    finally:
        folder.close()


@asynccontextmanager
async def log_over(
    store: RecordedStore, cache: Path, segment_bytes: int = SMALL
) -> AsyncIterator[tuple[Log, CommittingFolder]]:
    """A broker's log. The end is a crash: nothing is written by it."""
    with folder_over(store, cache) as folder:
        async with open_log(folder, segment_bytes=segment_bytes) as log:
            yield log, folder
            left = store.left_after(len(store.operations))
        store.objects = left


async def test_nothing_is_lost_with_the_folder(store: RecordedStore, tmp_path: Path) -> None:
    async with log_over(store, tmp_path) as (log, _):
        for number in range(50):
            await append(log, "t", b"%d" % number)
    for turn in range(3):
        async with log_over(store, tmp_path / str(turn)) as (log, _):
            expected = [b"%d" % number for number in range(50 + turn)]
            assert await values_of(log, "t") == expected
            assert await append(log, "t", b"%d" % (50 + turn)) == 50 + turn


async def test_sealed_segments_become_objects_and_the_chain_begins_behind_them(
    store: RecordedStore, tmp_path: Path
) -> None:
    async with log_over(store, tmp_path) as (log, folder):
        for number in range(50):
            await append(log, "t", b"%d" % number * 20)
        assert len(log.segments()) > 3
        folder.uploads.upload_sealed()
        assert folder.shard.manifest.chain_start > 20
        assert folder.disk.chained.sealed() == []
    store.objects = {  # as the collector leaves it
        path: data
        for path, data in store.objects.items()
        if not path.startswith("log/") or int(path[-12:]) >= folder.shard.manifest.chain_start
    }
    async with log_over(store, tmp_path / "other") as (log, folder):
        assert await values_of(log, "t") == [b"%d" % number * 20 for number in range(50)]


async def test_a_start_with_a_checkpoint_reads_no_sealed_segment(
    store: RecordedStore, tmp_path: Path
) -> None:
    async with log_over(store, tmp_path) as (log, folder):
        for number in range(300):
            await append(log, "t", b"%d" % number * 20)
        folder.uploads.upload_sealed()
        await log.checkpoint()
        sealed = len(log.segments()) - 1
    assert sealed > 20
    store.reads = 0
    with folder_over(store, tmp_path / "other") as folder:
        async with open_log(folder, segment_bytes=SMALL) as log:
            assert store.reads < sealed
            assert log.partitions.get(topic_id()).high_watermark == 300


async def test_rewritten_and_freed_segments(store: RecordedStore, tmp_path: Path) -> None:
    async with log_over(store, tmp_path) as (log, folder):
        for number in range(60):
            await append(log, "t", b"%d" % number * 20)
            await append(log, "u", b"%d" % number * 20)
        folder.uploads.upload_sealed()
        log.partitions.advance_log_start(topic_id("t"), 55)
        log.partitions.advance_log_start(topic_id("u"), 20)
        task = log.rewrite_task(RewritePolicy(bytes_per_second=1 << 40), lambda: 1)
        assert await task.run_once() > 0
        await task.close()
        await log.checkpoint()
        assert await values_of(log, "u", 20) == [b"%d" % number * 20 for number in range(20, 60)]
    async with log_over(store, tmp_path / "other") as (log, folder):
        assert await values_of(log, "u", 20) == [b"%d" % number * 20 for number in range(20, 60)]
        assert await values_of(log, "t", 55) == [b"%d" % number * 20 for number in range(55, 60)]


async def test_a_store_in_trouble_delays_and_loses_nothing(tmp_path: Path) -> None:
    store = RecordedStore(trouble=0.3, seed=4)
    store.trouble, trouble = 0.0, store.trouble
    for turn in range(3):
        with folder_over(store, tmp_path / str(turn)) as folder:
            store.trouble = trouble
            async with open_log(folder, segment_bytes=SMALL) as log:
                for number in range(20):
                    await append(log, "t", b"%d" % (20 * turn + number))
                folder.uploads.upload_sealed()
                await log.checkpoint()
                expected = [b"%d" % number for number in range(20 * turn + 20)]
                assert await values_of(log, "t") == expected
            store.trouble = 0.0
    assert store.failed > 20


async def test_a_takeover_reads_parts_in_place_of_many_objects(
    store: RecordedStore, tmp_path: Path
) -> None:
    expected: list[bytes] = []
    for turn in range(3):
        async with log_over(store, tmp_path / str(turn), 1 << 20) as (log, folder):
            assert len(folder.shard.objects) <= 3
            assert await values_of(log, "t") == expected
            for _ in range(4):
                for _ in range(20):
                    expected.append(b"%d" % len(expected) * 20)
                    await append(log, "t", expected[-1])
                assert folder.disk.chained.tail()[0] in (20, 21)
                folder.disk.chained.save_tail()
                assert folder.disk.chained.tail() == (0, 0)
            await append(log, "t", b"the last")
            expected.append(b"the last")
            assert folder.shard.manifest.chain_start == 0
    parts = [path for path in needed(store.objects) if "@" in path]
    assert 2 <= len(parts) <= 8
    async with log_over(store, tmp_path / "sealed", 1 << 20) as (log, folder):
        await log.seal()
        folder.uploads.upload_sealed()
    assert not [path for path in needed(store.objects) if "@" in path]
    async with log_over(store, tmp_path / "end") as (log, folder):
        assert not folder.shard.objects
        assert await values_of(log, "t") == expected
