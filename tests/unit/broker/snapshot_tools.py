"""What the tests of snapshots share: a broker's state in a real folder, and making a snapshot."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from quafka_broker.config import BrokerConfig
from quafka_broker.snapshots.create import Created, Creation
from quafka_broker.snapshots.cut_files import PinnedFiles
from quafka_broker.snapshots.destination import Destination
from quafka_broker.snapshots.folder_destination import FolderDestination
from quafka_broker.snapshots.pins import held, pin, pinned_cut
from quafka_broker.state import BrokerState
from quafka_broker.topics.topic import Topic
from quafka_broker.wal.disk import RealDisk
from quafka_broker.wal.rewrite_task import RewritePolicy
from tests.unit.broker.tools import checked, running_state

SEGMENT = 4_000
FAST = RewritePolicy(bytes_per_second=1 << 40)


class CopyingDestination(FolderDestination):
    """A folder on a file system of its own: nothing can be linked to."""

    def link(self, source: Path, path: str) -> bool:
        return False


@asynccontextmanager
async def state_in(data: Path) -> AsyncIterator[BrokerState]:
    """A broker's state in a folder, with small segments."""
    (data / "wal").mkdir(parents=True, exist_ok=True)
    config = BrokerConfig(data=data)
    disk = RealDisk(data / "wal")
    async with running_state(disk, config, segment_bytes=SEGMENT, lease_seconds=0) as state:
        yield state


async def put(state: BrokerState, topic: Topic, *values: bytes, partition: int = 0) -> None:
    """Append a batch for each value."""
    grown = state.log.partition(topic.partition_id(partition))
    await asyncio.gather(*[state.log.append(grown, checked(value)) for value in values])


async def delete_below(state: BrokerState, topic: Topic, offset: int) -> None:
    await state.topics.delete_records({topic: {0: offset}})


async def rewrite(state: BrokerState) -> int:
    """One run of the log's rewrite task; returns the bytes that it freed."""
    work = state.log.rewrite_task(FAST, lambda: state.journal.deletions)
    try:
        return await work.run_once()
    finally:
        await work.close()


async def snapshot(
    state: BrokerState,
    store: Destination,
    *,
    between: Callable[[], Any] | None = None,
    org: int | None = None,
    lease_seconds: float | None = None,
) -> Created:
    """Take a cut and make a snapshot of it; `between` is awaited when the cut has been taken."""
    data = state.configs.broker.data
    name = await pin(state, data, local=True)
    with held(data, name) as folder, store.locked() as lock:
        if between is not None:
            await between()
        cut = pinned_cut(data, name)
        creation = Creation(store, PinnedFiles(folder), cut, org=org, lease_seconds=lease_seconds)
        return await asyncio.to_thread(creation.run, lock)
