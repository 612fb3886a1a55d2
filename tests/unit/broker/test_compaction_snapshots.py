"""Snapshots of compacted topics: verified, and restored as they were."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from quafka_broker.snapshots.folder_destination import FolderDestination
from quafka_broker.snapshots.restore import restore
from quafka_broker.state import BrokerState
from tests.unit.broker.compacting import COMPACT, FAST, Compacting, kept_in
from tests.unit.broker.snapshot_tools import faults, snapshot, state_in
from tests.unit.broker.tools import ORG


async def fill(state: BrokerState) -> None:
    broker = Compacting(state)
    topic = await broker.topic(configs=COMPACT)
    other = await broker.topic("other", {})
    rewriter = state.log.rewrite_task(FAST, lambda: state.journal.deletions)
    state.compaction.start(rewriter)
    for n in range(300):
        key = b"once %d" % n if n % 30 == 29 else b"k%d" % (n % 7)
        await broker.put(topic, (key, b"%d" % n), (b"often", b"%d" % n))
        await broker.put(other, (None, b"%d" % n))
        if n in (100, 250):
            await broker.compact(topic)
    await rewriter.close()


@pytest.mark.parametrize("org", [None, ORG])
async def test_a_restored_topic_has_the_same_records_and_gaps(
    tmp_path: Path, org: int | None
) -> None:
    (tmp_path / "dest").mkdir()
    store = FolderDestination(tmp_path / "dest")
    async with state_in(tmp_path / "data") as state:
        await fill(state)
        topic = state.registry.by_name(ORG, "t")
        assert topic is not None
        partition = state.log.partitions.get(topic.partition_id(0))
        before = await kept_in(state, partition)
        gaps = list(partition.gaps)
        assert len(gaps) > 1
        made = await snapshot(state, store, org=org)
        assert faults(store, made.manifest) == []
        assert made.manifest.topics[0].partitions[0].gone == partition.gaps.offsets
    found = await asyncio.to_thread(restore, store, made.manifest, tmp_path / "new", org=org)
    assert not found.faults
    async with state_in(tmp_path / "new") as state:
        topic = state.registry.by_name(ORG, "t")
        assert topic is not None
        partition = state.log.partitions.get(topic.partition_id(0))
        assert not state.log.damages
        assert await kept_in(state, partition) == before
        assert (partition.log_start, partition.high_watermark) == (0, 600)
        assert list(partition.gaps) == gaps
