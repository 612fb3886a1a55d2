"""A folder over a store in trouble: a full local disk, an outage, another owner, damage."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import pytest

from quafka_broker.chain.uploads import Uploads
from quafka_broker.wal.errors import DamagedLogError
from quafka_broker.wal.log import Log
from quafka_broker.wal.segment import log_name
from tests.support.mounts import mountable, tmpfs
from tests.support.store_folder import CommittingFolder, RecordedStore
from tests.unit.broker.tools import append, open_log, topic_id, values_of

SEGMENT = 256 << 10
VALUE = bytes(20_000)


async def fill(log: Log, count: int) -> None:
    for _ in range(count):
        await append(log, "t", VALUE)


async def test_on_a_full_disk_the_cache_becomes_smaller_and_nothing_is_refused(
    tmp_path: Path,
) -> None:
    store = RecordedStore()
    with mountable(), tmpfs(mebibytes=3) as small:
        folder = CommittingFolder(store, small, cache_bytes=64 << 20)
        folder.uploads.start()
        async with open_log(folder, segment_bytes=SEGMENT) as log:
            for turn in range(8):
                await fill(log, 40)
                await asyncio.to_thread(folder.uploads.upload_sealed)
                found = await values_of(log, "t", 40 * turn)
                assert found == [VALUE] * 40
            assert len(await values_of(log, "t")) == 320
            await log.checkpoint()
        folder.uploads.close()
        folder.close()
    folder = CommittingFolder(store, tmp_path)
    async with open_log(folder, segment_bytes=SEGMENT) as log:
        assert len(await values_of(log, "t")) == 320
    folder.close()


async def test_an_outage_delays_uploads_and_names_and_ends(tmp_path: Path) -> None:
    store = RecordedStore()
    folder = CommittingFolder(store, tmp_path)
    async with open_log(folder, segment_bytes=SEGMENT) as log:
        await fill(log, 40)
        store.down = True
        folder.uploads.start()
        checkpoint = asyncio.create_task(log.checkpoint())
        while store.failed < 20:
            await asyncio.sleep(0.01)
        assert len(await values_of(log, "t")) == 40
        assert not checkpoint.done()
        store.down = False
        await checkpoint
        while folder.disk.chained.sealed():
            await asyncio.sleep(0.01)
        assert folder.shard.manifest.chain_start > 0
    folder.uploads.close()
    folder.close()


async def test_a_broker_that_stops_during_an_outage_does_not_wait_for_its_end(
    tmp_path: Path,
) -> None:
    store = RecordedStore()
    folder = CommittingFolder(store, tmp_path)
    threads = threading.active_count()
    async with open_log(folder, segment_bytes=SEGMENT) as log:
        await fill(log, 40)
        store.down = True
        folder.uploads.start()
        folder.disk.patience.end_within(0.05)
    folder.uploads.close()
    folder.close()
    assert threading.active_count() <= threads


async def test_a_fenced_owner_names_no_file(tmp_path: Path) -> None:
    store = RecordedStore()
    old = CommittingFolder(store, tmp_path / "old")
    async with open_log(old, segment_bytes=SEGMENT) as log:
        await fill(log, 40)
        new = CommittingFolder(store, tmp_path / "new")
        named = new.shard.manifest.directory
        with pytest.raises(OSError, match="another broker has the shard"):
            await log.checkpoint()
        with pytest.raises(OSError, match="another broker has the shard"):
            Uploads(old.disk).upload_sealed()
        async with open_log(new, segment_bytes=SEGMENT) as other:
            assert other.partitions.get(topic_id()).high_watermark == 40
        assert new.shard.manifest.directory != named
        new.close()
    old.close()


@pytest.mark.parametrize("at", [50, 120, -50])
async def test_a_damaged_object_of_the_chain_is_not_taken_for_a_torn_write(
    tmp_path: Path, at: int
) -> None:
    store = RecordedStore()
    folder = CommittingFolder(store, tmp_path / "made")
    async with open_log(folder, segment_bytes=SEGMENT) as log:
        await fill(log, 3)
    folder.close()
    path = max(path for path in store.objects if path.startswith("log/"))
    data = bytearray(store.objects[path])
    data[at] ^= 1
    store.objects[path] = bytes(data)
    with pytest.raises((DamagedLogError, ValueError), match=r"."):
        CommittingFolder(store, tmp_path / "opened")


async def test_local_copies_may_vanish(tmp_path: Path) -> None:
    store = RecordedStore()
    folder = CommittingFolder(store, tmp_path, cache_bytes=0)
    async with open_log(folder, segment_bytes=SEGMENT) as log:
        await fill(log, 40)
        folder.uploads.upload_sealed()
        active = log_name(log.segments()[-1].number)
        assert folder.disk.files.place(log_name(0), 32, 100) is not None
        assert folder.disk.files.place(active, 32, 100) is None
        assert [path.name for path in tmp_path.rglob("*.log")] == [active]
        assert len(await values_of(log, "t")) == 40
    folder.close()
