"""Uploads of one folder: what is flushed before a shard is handed over."""

from __future__ import annotations

import asyncio
from pathlib import Path

from tests.support.store_folder import CommittingFolder, RecordedStore
from tests.unit.broker.chain.test_store_trouble import fill
from tests.unit.broker.tools import open_log


async def test_a_flush_leaves_nothing_to_the_chain_alone(tmp_path: Path) -> None:
    folder = CommittingFolder(RecordedStore(), tmp_path / "a")
    async with open_log(folder, segment_bytes=1 << 20) as log:
        folder.uploads.start()
        await fill(log, 20)
        assert folder.disk.chained.tail()[0] > 0
        await asyncio.to_thread(folder.uploads.flush, 20.0)
        assert folder.disk.chained.tail() == (0, 0)
        folder.uploads.close()
    folder.close()


async def test_a_flush_does_not_wait_for_a_store_that_is_silent(tmp_path: Path) -> None:
    store = RecordedStore()
    folder = CommittingFolder(store, tmp_path / "a")
    async with open_log(folder, segment_bytes=1 << 20) as log:
        folder.uploads.start()
        await fill(log, 20)
        store.down = True
        await asyncio.to_thread(folder.uploads.flush, 0.05)
        assert folder.disk.chained.tail()[0] > 0
        store.down = False
        folder.disk.patience.end_within(0.05)
        folder.uploads.close()
    folder.close()
