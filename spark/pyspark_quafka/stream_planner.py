"""What a stream reads next from a growing series of snapshots; without Spark.

A stream's position is the offset up to which each partition has been read, and the snapshot that
it was read from. Spark writes the position to the query's checkpoint before it reads. So a batch
that is repeated after a crash reads the same offsets: from the same snapshot if it still exists,
else from a later one, which has the same records at those offsets.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, cast

from pyspark_quafka.errors import DataLossError, SnapshotNotFoundError
from pyspark_quafka.index_rows import PartitionRange
from pyspark_quafka.offsets import check_lost, end_of, partition_range, resolved, subscribed
from pyspark_quafka.options import Options
from pyspark_quafka.planner import plan
from pyspark_quafka.scan import Scan
from pyspark_quafka.series import series_in
from pyspark_quafka.snapshot import Snapshot
from pyspark_quafka.store import open_store
from quafka_proto.snapshot_format import SnapshotPartition, SnapshotTopic

_SERIES = 1_000
"""How many older snapshots are searched for records that retention has since removed."""

Json = dict[str, Any]


@dataclass(frozen=True)
class StreamPosition:
    """The offsets up to which a stream has read, by topic and partition, and the snapshot read."""

    snapshot: str
    offsets: dict[str, dict[int, int]]
    generations: dict[str, int]

    def to_json(self) -> Json:
        """The position as Spark keeps it."""
        offsets = {
            topic: {str(number): offset for number, offset in sorted(found.items())}
            for topic, found in sorted(self.offsets.items())
        }
        generations = dict(sorted(self.generations.items()))
        return {"snapshot": self.snapshot, "offsets": offsets, "generations": generations}

    @classmethod
    def from_json(cls, values: Json) -> StreamPosition:
        """The position that Spark has kept."""
        offsets = cast("dict[str, dict[str, int]]", values["offsets"])
        numbered = {
            topic: {int(number): offset for number, offset in found.items()}
            for topic, found in offsets.items()
        }
        return cls(values["snapshot"], numbered, dict(values["generations"]))


class StreamPlanner:
    """Plans the batches of one stream."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._series = series_in(open_store(options.path, options.storage))

    def initial(self, until: str | None = None) -> StreamPosition:
        """Where a new stream begins: `startingOffsets` and the like, on the newest snapshot.

        `until` is the newest snapshot to use.
        """
        snapshot = self._series.open(until or "latest", self._options.org)
        found = resolved(snapshot, self._options)
        return _position(snapshot, [(range_, range_.start) for range_, _ in found])

    def latest(
        self, start: StreamPosition | None, limit: int | None = None, until: str | None = None
    ) -> StreamPosition:
        """The end of the next batch: everything, or about `limit` offsets.

        `until` is the newest snapshot to use. A stream never goes back. If the newest snapshot
        has lost offsets to retention that an older one still has, the older one is read first.
        """
        snapshot = self._with_all(start, until or "latest")
        if start is not None and snapshot.id < start.snapshot:  # newer ones were dropped
            return start
        ends: list[tuple[PartitionRange, int]] = []
        for topic, partition in subscribed(snapshot, self._options):
            number, log_start = partition.partition, partition.log_start
            first = _begin(start, topic.name, number, topic.generation, log_start)
            end = end_of(partition, self._options)
            if not self._options.fail_on_data_loss:
                end = max(end, first)  # wait for offsets that do not exist yet
            ends.append((partition_range(topic, partition, first, end), end))
        if start is None:
            return _position(snapshot, ends)
        found = _position(snapshot, _limited(ends, limit) if limit is not None else ends)
        nothing_new = (found.offsets, found.generations) == (start.offsets, start.generations)
        return start if nothing_new else found

    def _with_all(self, start: StreamPosition | None, newest: str) -> Snapshot:
        """The newest snapshot that still has everything from `start` on; the newest if none has."""
        snapshot = self._series.open(newest, self._options.org)
        if start is None or not self._lost(start, snapshot):
            return snapshot
        ids = [name for name in self._series.ids() if start.snapshot <= name < snapshot.id]
        for snapshot_id in reversed(ids[-_SERIES:]):
            try:
                older = self._series.open(snapshot_id)
            except SnapshotNotFoundError:
                continue
            if not self._lost(start, older) and self._has_more(start, older):
                return older
        return snapshot

    def _has_more(self, start: StreamPosition, snapshot: Snapshot) -> bool:
        return any(
            range_.start < range_.end for range_ in self._ranges(start, None, snapshot, check=False)
        )

    def _lost(self, start: StreamPosition, snapshot: Snapshot) -> list[str]:
        """The partitions that a snapshot cannot continue from `start`, each with the reason."""
        lost: list[str] = []
        there = {
            (topic.name, partition.partition): (topic, partition)
            for topic, partition in self._present(start, snapshot)
        }
        for name, offsets in start.offsets.items():
            for number, offset in offsets.items():
                if (name, number) not in there:
                    lost.append(f"{name}-{number} is gone")
                    continue
                topic, partition = there[name, number]
                if topic.generation != start.generations[name]:
                    lost.append(f"{name}-{number} was deleted and re-created")
                elif not partition.log_start <= offset <= end_of(partition, self._options):
                    lost.append(
                        f"{name}-{number} is read up to {offset}; it has {partition.log_start} "
                        f"to {end_of(partition, self._options)}"
                    )
        return lost

    def _present(
        self, start: StreamPosition, snapshot: Snapshot
    ) -> Iterator[tuple[SnapshotTopic, SnapshotPartition]]:
        for topic in snapshot.manifest.topics:
            if topic.org == self._options.org and topic.name in start.offsets:
                for partition in topic.partitions:
                    yield topic, partition

    def plan(self, start: StreamPosition, end: StreamPosition) -> list[Scan]:
        """The scans that read from `start` up to `end`.

        Offsets that the snapshot of `end` has lost to retention are read from older ones.

        Raises:
            DataLossError: offsets are missing and `failOnDataLoss` is set, or the end is before
                the start, which would read records again.
        """
        back = _gone_back(start, end)
        if back:
            raise DataLossError(
                f"{'; '.join(back)}: newer snapshots were dropped. Make one, and remove this "
                "batch, the last file in the checkpoint's folder offsets: nothing of it was read"
            )
        if start.offsets == end.offsets and start.generations == end.generations:
            return []
        snapshot = self._of(end)
        older = self._with_all(start, snapshot.id)
        if older.id == snapshot.id:
            return self._tasks(start, end, snapshot)
        between = self._until(end, older)
        return [*self._tasks(start, between, older), *self.plan(between, end)]

    def _of(self, end: StreamPosition) -> Snapshot:
        """The snapshot of a position or, if it was dropped, the next one that exists."""
        later = [name for name in self._series.ids() if name > end.snapshot]
        for snapshot_id in (end.snapshot, *later):
            with suppress(SnapshotNotFoundError):
                found = self._series.open(snapshot_id)
                if found.has(self._options.org):
                    return found
        return self._series.open(org=self._options.org)

    def _until(self, end: StreamPosition, snapshot: Snapshot) -> StreamPosition:
        """`end`, limited to the offsets that an older snapshot has."""
        ends: list[tuple[PartitionRange, int]] = []
        for topic, partition in subscribed(snapshot, self._options):
            until = end_of(partition, self._options)
            if end.generations.get(topic.name) == topic.generation:
                until = min(until, end.offsets[topic.name].get(partition.partition, until))
            ends.append((partition_range(topic, partition, partition.log_start, until), until))
        return _position(snapshot, ends)

    def _tasks(self, start: StreamPosition, end: StreamPosition, snapshot: Snapshot) -> list[Scan]:
        if self._options.fail_on_data_loss:
            lost = self._lost(start, snapshot) or self._lost(end, snapshot)
            lost = lost or _left_out(start, end)
            if lost:
                raise DataLossError(
                    f"snapshot {snapshot.id}: {'; '.join(lost)}. With the option "
                    "failOnDataLoss=false the stream continues with the offsets that exist."
                )
        ranges = [s for s in self._ranges(start, end, snapshot, check=True) if s.start < s.end]
        return plan(snapshot, ranges, self._options)

    def _ranges(
        self, start: StreamPosition, end: StreamPosition | None, snapshot: Snapshot, *, check: bool
    ) -> Iterator[PartitionRange]:
        for topic, partition in subscribed(snapshot, self._options):
            number, log_start = partition.partition, partition.log_start
            until = end_of(partition, self._options)
            if end is not None:
                if end.generations.get(topic.name) != topic.generation:
                    continue
                until = min(until, end.offsets[topic.name].get(number, log_start))
            first = _begin(start, topic.name, number, topic.generation, log_start)
            range_ = partition_range(topic, partition, max(first, log_start), until)
            if check and range_.start < range_.end:
                check_lost(range_, partition, self._options.mode)
            yield range_


def _begin(
    start: StreamPosition | None, topic: str, partition: int, generation: int, new: int
) -> int:
    """The first offset to read. A partition that is new to the stream is read from `new` on."""
    if start is None or start.generations.get(topic) != generation:
        return new
    return start.offsets[topic].get(partition, new)


def _gone_back(start: StreamPosition, end: StreamPosition) -> list[str]:
    """The partitions whose end is before their start, each in a sentence.

    PySpark 4.0 and 4.1 do not pass the query's position after a restart: it may be further on.
    """
    return [
        f"{name}-{number} was read up to {offset}, and snapshot {end.snapshot} ends at {until}"
        for name, offsets in start.offsets.items()
        if start.generations[name] == end.generations.get(name)
        for number, offset in offsets.items()
        for until in [end.offsets[name].get(number, offset)]
        if until < offset
    ]


def _left_out(start: StreamPosition, end: StreamPosition) -> list[str]:
    """The partitions that a stream no longer reads. It would read them again from the beginning."""
    return [
        f"{name}-{number} was read up to {offset} and is not subscribed to any more"
        for name, offsets in start.offsets.items()
        for number, offset in offsets.items()
        if number not in end.offsets.get(name, {})
    ]


def _position(snapshot: Snapshot, ends: Sequence[tuple[PartitionRange, int]]) -> StreamPosition:
    offsets: dict[str, dict[int, int]] = {}
    generations: dict[str, int] = {}
    for range_, end in ends:
        offsets.setdefault(range_.topic, {})[range_.partition] = end
        generations[range_.topic] = range_.generation
    return StreamPosition(snapshot.id, offsets, generations)


def _limited(
    ends: Sequence[tuple[PartitionRange, int]], limit: int
) -> list[tuple[PartitionRange, int]]:
    """A share of the limit for each partition, in proportion to its offsets, as Kafka's source.

    A partition with any offsets gets at least one, so that none starves.
    """
    total = sum(max(0, end - range_.start) for range_, end in ends)
    limited: list[tuple[PartitionRange, int]] = []
    for range_, end in ends:
        there = max(0, end - range_.start)
        share = limit * there / total if total else 0.0
        whole = math.ceil(share) if share < 1 else math.floor(share)
        limited.append((range_, range_.start + min(there, whole)))
    return limited
