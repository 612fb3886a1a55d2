"""What the tests of snapshots share: a broker's state in a real folder, and making a snapshot."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from quafka_broker.config.settings import BrokerConfig
from quafka_broker.snapshots.create import Created, Creation
from quafka_broker.snapshots.cut_files import PinnedFiles
from quafka_broker.snapshots.destination import Destination
from quafka_broker.snapshots.folder_destination import FolderDestination
from quafka_broker.snapshots.pins import held, pin, pinned_cut
from quafka_broker.snapshots.verify import SnapshotVerification
from quafka_broker.state import BrokerState
from quafka_broker.topics.topic import Topic
from quafka_broker.wal.disk import RealDisk
from quafka_broker.wal.rewrite_task import RewritePolicy
from quafka_proto.snapshot_format import SnapshotManifest
from tests.unit.broker.tools import checked, running_state

SEGMENT = 4_000
ORG, OTHER_ORG = 1, 2
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
    grown = state.log.partitions.get(topic.partition_id(partition))
    await asyncio.gather(*[state.log.queue.append(grown, checked(value)) for value in values])


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
    data = state.configs.broker.folder
    name = await pin(state, data, local=True)
    with held(data, name) as folder, store.locked() as lock:
        if between is not None:
            await between()
        cut = pinned_cut(data, name)
        creation = Creation(store, PinnedFiles(folder), cut, org=org, lease_seconds=lease_seconds)
        return await asyncio.to_thread(creation.run, lock)


def named(name: str, numbers: range) -> list[bytes]:
    return [b"%s %d " % (name.encode(), n) * 8 for n in numbers]


def faults(store: Destination, manifest: SnapshotManifest) -> list[str]:
    """All that `quafka snapshot verify` would complain of."""
    verification = SnapshotVerification(store, manifest)
    found = [fault for report in verification.pieces() for fault in report.faults]
    return [*found, *verification.missing()]


def contents(dest: Path) -> set[str]:
    found = (path for path in dest.rglob("*") if path.is_file() and path.name != "lock")
    return {path.relative_to(dest).as_posix() for path in found}


class Busy:
    """Changes a log and knows what is in it; each incarnation of a topic has values of its own."""

    def __init__(self, state: BrokerState) -> None:
        self.stop = False
        self._state = state
        self._turns = 0
        self._rewriting = asyncio.Lock()
        self._every: dict[bytes, list[bytes]] = {}  # by the topic's id

    async def run(self) -> None:
        while not self.stop:
            await self.another_turn()
            await asyncio.sleep(0.001)  # of simulated time: work for the disk takes none

    async def another_turn(self) -> None:
        self._turns += 1
        name = random.choice("abcdef")
        topic, _ = await self._state.topics.create(ORG, name, 1)
        known = self._every.setdefault(topic.uuid, [])
        some = [b"%s %d " % (topic.uuid.hex().encode(), len(known) + n) * 3 for n in range(5)]
        known += some
        await put(self._state, topic, *some)
        if not self._turns % 7:
            await delete_below(self._state, topic, random.randrange(len(known)))
        if not self._turns % 31:
            await self._state.topics.delete(topic)
        if not self._turns % 23:
            async with self._rewriting:  # a log has one rewrite task
                await rewrite(self._state)

    def at(self, manifest: SnapshotManifest) -> dict[str, tuple[int, list[bytes]]]:
        """Log start, and all values up to the high watermark, of each topic at a cut."""
        return {
            topic.name: (
                topic.partitions[0].log_start,
                self._every[bytes.fromhex(topic.uuid)][: topic.partitions[0].high_watermark],
            )
            for topic in manifest.topics
        }
