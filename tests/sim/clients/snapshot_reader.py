"""Makes snapshots of a log in the object store, and reads all of each with Spark's code."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

from pyspark_quafka.offsets import end_of, ranges_to_read
from pyspark_quafka.planner import plan
from pyspark_quafka.snapshot import Snapshot
from quafka_broker.snapshots.create import SnapshotError
from quafka_broker.snapshots.destination import Destination, Lock
from quafka_broker.snapshots.stored_log_snapshot import snapshot_in_store
from quafka_objects.passing import PassingStore
from quafka_proto.snapshot_format import SnapshotManifest
from tests.sim.clients.fetching import ISOLATIONS
from tests.sim.clients.job import Job
from tests.sim.clients.lake import RETRIED, open_log, options_of, rows_of

_ORG = 1
_LEASE_S = 20.0
"""A later command removes a snapshot that is older."""

T = TypeVar("T")


class _Bucket(PassingStore, Destination):
    """The store as the destination of one command; no other has it at the same time."""

    def _call(self, kind: str, path: str, call: Callable[[], T]) -> T:
        return call()

    def write(self, path: str, chunks: Iterable[bytes]) -> None:
        self.put(path, b"".join(chunks))

    def link(self, source: Path, path: str) -> bool:
        return False

    def publish(self, path: str, data: bytes) -> None:
        self.create(path, data)

    @contextmanager
    def locked(self) -> Generator[Lock]:
        yield _Held()


class _Held:
    """The lock of the only command."""

    def check(self) -> None:
        """Nobody else has it."""


class SnapshotReader:
    """A run has one: snapshots of one log are made one after the other."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self._topics = [topic.name for topic in job.plan.topics if topic.lasts]
        self._made = 0

    async def run(self) -> None:
        """Work until cancelled.

        Without notes of a client: a snapshot waits for a view of the log, of which there may be one
        in half a minute.
        """
        while True:
            await asyncio.sleep(self._job.pause())
            await self._step()

    async def _step(self) -> None:
        self._made += 1
        name = f"{self._job.name}-{self._made}"
        call = self._job.call("snapshot", snapshot=name)
        try:
            manifest = await asyncio.to_thread(self._make)
        except (*RETRIED, SnapshotError) as e:
            self._job.history.unknown(call, type(e).__name__)
            return
        if manifest.shards > 1:  # each shard has an instant of its own
            self._job.history.unknown(call, "several instants")
        else:
            self._job.history.ok(call, ends=self._ends(manifest), offsets=_offsets(manifest))
        for isolation in ISOLATIONS:
            await self._read(name, manifest, isolation)

    def _make(self) -> SnapshotManifest:
        bucket = _Bucket(open_log())
        with bucket.locked() as lock:
            return snapshot_in_store(bucket, lock, lease_seconds=_LEASE_S).manifest

    async def _read(self, name: str, manifest: SnapshotManifest, isolation: str) -> None:
        names = [topic for topic in self._topics if manifest.topic(_ORG, topic) is not None]
        options = options_of(names, isolation=isolation, failOnDataLoss="false")
        calls = {
            (topic.name, partition.partition): (
                self._call(name, topic.name, partition.partition, isolation),
                end_of(partition, options),
                partition,
            )
            for topic in manifest.topics
            if topic.name in names
            for partition in topic.partitions
        }

        def read() -> dict[tuple[str, int], list[tuple[int, str]]]:
            snapshot = Snapshot(open_log(), manifest)
            return rows_of(plan(snapshot, ranges_to_read(snapshot, options), options))

        try:
            found = await asyncio.to_thread(read)
        except RETRIED as e:
            for call, _, _ in calls.values():
                self._job.history.unknown(call, type(e).__name__)
            return
        for place, (call, end, partition) in calls.items():
            self._job.history.ok(
                call,
                records=found.get(place, []),
                next=end,
                high_watermark=partition.high_watermark,
                last_stable=partition.last_stable_offset,
                log_start=partition.log_start,
            )

    def _call(self, name: str, topic: str, partition: int, isolation: str) -> int:
        return self._job.call(
            "read",
            topic=topic,
            partition=partition,
            position=None,
            isolation=isolation,
            reader="snapshot",
            snapshot=name,
        )

    def _ends(self, manifest: SnapshotManifest) -> list[list[str | int]]:
        return [
            [topic.name, partition.partition, partition.high_watermark]
            for topic in manifest.topics
            if topic.name in self._topics
            for partition in topic.partitions
        ]


def _offsets(manifest: SnapshotManifest) -> list[list[str | int]]:
    return [
        [group.group, each.topic, each.partition, each.offset]
        for group in manifest.groups
        for each in group.offsets
    ]
