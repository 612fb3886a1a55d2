"""Streams over a growing series of snapshots: each trigger reads what the newest one has more.

A stream's offset is, for every partition, the offset up to which it has been read, and the snapshot
that this was read from. Spark writes it to the query's checkpoint before it reads, so a batch that
is repeated after a crash reads the same offsets, from the same snapshot if it is still there and
from a later one if not: offsets never change what is at them.

On PySpark 4.0 and 4.1 Spark asks `latestOffset()` without telling where the query is. The reader
remembers where it was; only after a restart it does not know until the first batch is planned,
which then holds all there is. From 4.2 on Spark says it, and `maxOffsetsPerTrigger` holds always.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from pyspark_quafka.errors import DataLossError, SnapshotNotFoundError
from pyspark_quafka.index_rows import Source
from pyspark_quafka.offsets import check_lost, end_of, resolved, source_of, subscribed
from pyspark_quafka.options import Options
from pyspark_quafka.planner import plan
from pyspark_quafka.snapshot import Snapshot, open_snapshot, snapshot_ids
from pyspark_quafka.spark_version import FIRST_WITH_LIMITS, SPARK_VERSION
from pyspark_quafka.store import open_store
from pyspark_quafka.task import Task, read_task

if TYPE_CHECKING:
    from pyspark.sql.streaming.datasource import ReadLimit

_SERIES = 1_000
"""So many snapshots back it is looked for one that still has what retention has since removed."""

Json = dict[str, Any]


@dataclass(frozen=True)
class Position:
    """Up to where a stream has read, by topic and partition; and of which snapshot."""

    snapshot: str
    offsets: dict[str, dict[int, int]]
    generations: dict[str, int]

    def to_json(self) -> Json:
        """As Spark keeps it."""
        offsets = {
            topic: {str(number): offset for number, offset in sorted(found.items())}
            for topic, found in sorted(self.offsets.items())
        }
        generations = dict(sorted(self.generations.items()))
        return {"snapshot": self.snapshot, "offsets": offsets, "generations": generations}

    @classmethod
    def from_json(cls, values: Json) -> Position:
        """As Spark gives it back."""
        offsets = cast("dict[str, dict[str, int]]", values["offsets"])
        numbered = {
            topic: {int(number): offset for number, offset in found.items()}
            for topic, found in offsets.items()
        }
        return cls(values["snapshot"], numbered, dict(values["generations"]))


class StreamPlanner:
    """What a stream reads next, without Spark."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._store = open_store(options.path, options.storage)

    def initial(self) -> Position:
        """Where a new stream begins: `startingOffsets` and its like, on the newest snapshot."""
        snapshot = open_snapshot(self._store, org=self._options.org)
        found = resolved(snapshot, self._options)
        return _position(snapshot, [(source, source.start) for source, _ in found])

    def latest(
        self, start: Position | None, limit: int | None = None, until: str | None = None
    ) -> Position:
        """The end of what is read next: all there is, or about `limit` offsets of it.

        `until` is the last snapshot to look at; a stream never goes back. Where the newest one has
        lost offsets to retention that an older one still has, the older one is read first.
        """
        snapshot = self._with_all(start, until or "latest")
        if start is not None and snapshot.id < start.snapshot:  # which somebody has dropped
            return start
        ends: list[tuple[Source, int]] = []
        for topic, partition in subscribed(snapshot, self._options):
            number, log_start = partition.partition, partition.log_start
            first = _begin(start, topic.name, number, topic.generation, log_start)
            end = end_of(partition, self._options)
            if not self._options.fail_on_data_loss:
                end = max(end, first)  # what is not there yet is waited for
            ends.append((source_of(topic, partition, first, end), end))
        if start is None:
            return _position(snapshot, ends)
        found = _position(snapshot, _limited(ends, limit) if limit is not None else ends)
        nothing_new = (found.offsets, found.generations) == (start.offsets, start.generations)
        return start if nothing_new else found

    def _with_all(self, start: Position | None, newest: str) -> Snapshot:
        """The newest snapshot that still has everything from `start` on; the newest if none has."""
        snapshot = open_snapshot(self._store, newest, self._options.org)
        if start is None or not self._lost(start, snapshot):
            return snapshot
        ids = [name for name in snapshot_ids(self._store) if start.snapshot <= name < snapshot.id]
        for snapshot_id in reversed(ids[-_SERIES:]):
            try:
                older = open_snapshot(self._store, snapshot_id)
            except SnapshotNotFoundError:
                continue
            if not self._lost(start, older) and self._has_more(start, older):
                return older
        return snapshot

    def _has_more(self, start: Position, snapshot: Snapshot) -> bool:
        return any(
            source.start < source.end
            for source in self._sources(start, None, snapshot, check=False)
        )

    def _lost(self, start: Position, snapshot: Snapshot) -> list[str]:
        """What was read in part and is gone from a snapshot, for people."""
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
                    lost.append(f"{name}-{number} was deleted and made again")
                elif not partition.log_start <= offset <= end_of(partition, self._options):
                    lost.append(
                        f"{name}-{number} is read up to {offset}; it has {partition.log_start} "
                        f"to {end_of(partition, self._options)}"
                    )
        return lost

    def _present(self, start: Position, snapshot: Snapshot) -> Iterator[Any]:
        for topic in snapshot.manifest.topics:
            if topic.org == self._options.org and topic.name in start.offsets:
                for partition in topic.partitions:
                    yield topic, partition

    def plan(self, start: Position, end: Position) -> Sequence[Task]:
        """The tasks that read from `start` up to `end`.

        What the snapshot of `end` has lost to retention is read from older ones that have it.

        Raises:
            DataLossError: not all of it is there, and `failOnDataLoss` is set; or the end is before
                the start: from there it would be read again.
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

    def _of(self, end: Position) -> Snapshot:
        """The snapshot that a position is of; was it dropped, then the next one that is there."""
        later = [name for name in snapshot_ids(self._store) if name > end.snapshot]
        for snapshot_id in (end.snapshot, *later):
            with suppress(SnapshotNotFoundError):
                found = open_snapshot(self._store, snapshot_id)
                if found.has(self._options.org):
                    return found
        return open_snapshot(self._store, org=self._options.org)

    def _until(self, end: Position, snapshot: Snapshot) -> Position:
        """As much of `end` as an older snapshot has."""
        ends: list[tuple[Source, int]] = []
        for topic, partition in subscribed(snapshot, self._options):
            until = end_of(partition, self._options)
            if end.generations.get(topic.name) == topic.generation:
                until = min(until, end.offsets[topic.name].get(partition.partition, until))
            ends.append((source_of(topic, partition, partition.log_start, until), until))
        return _position(snapshot, ends)

    def _tasks(self, start: Position, end: Position, snapshot: Snapshot) -> Sequence[Task]:
        if self._options.fail_on_data_loss:
            lost = self._lost(start, snapshot) or self._lost(end, snapshot)
            lost = lost or _left_out(start, end)
            if lost:
                raise DataLossError(
                    f"snapshot {snapshot.id}: {'; '.join(lost)}. With the option "
                    "failOnDataLoss=false the stream goes on with what is there."
                )
        sources = [s for s in self._sources(start, end, snapshot, check=True) if s.start < s.end]
        return [Task(scan) for scan in plan(snapshot, sources, self._options)]

    def _sources(
        self, start: Position, end: Position | None, snapshot: Snapshot, *, check: bool
    ) -> Iterator[Source]:
        for topic, partition in subscribed(snapshot, self._options):
            number, log_start = partition.partition, partition.log_start
            until = end_of(partition, self._options)
            if end is not None:
                if end.generations.get(topic.name) != topic.generation:
                    continue
                until = min(until, end.offsets[topic.name].get(number, log_start))
            first = _begin(start, topic.name, number, topic.generation, log_start)
            source = source_of(topic, partition, max(first, log_start), until)
            if check and source.start < source.end:
                check_lost(source, partition, self._options.mode)
            yield source


def _begin(start: Position | None, topic: str, partition: int, generation: int, new: int) -> int:
    """Where to go on in a partition; one that was not there before is read from its beginning."""
    if start is None or start.generations.get(topic) != generation:
        return new
    return start.offsets[topic].get(partition, new)


def _gone_back(start: Position, end: Position) -> list[str]:
    """What an end is before the start of, for people.

    PySpark 4.0 and 4.1 do not say after a restart where the query is: it may have been further.
    """
    return [
        f"{name}-{number} was read up to {offset}, and snapshot {end.snapshot} ends at {until}"
        for name, offsets in start.offsets.items()
        if start.generations[name] == end.generations.get(name)
        for number, offset in offsets.items()
        for until in [end.offsets[name].get(number, offset)]
        if until < offset
    ]


def _left_out(start: Position, end: Position) -> list[str]:
    """What a stream has read and reads no more; if it did again, it would from the beginning."""
    return [
        f"{name}-{number} was read up to {offset} and is not subscribed to any more"
        for name, offsets in start.offsets.items()
        for number, offset in offsets.items()
        if number not in end.offsets.get(name, {})
    ]


def _position(snapshot: Snapshot, ends: Sequence[tuple[Source, int]]) -> Position:
    offsets: dict[str, dict[int, int]] = {}
    generations: dict[str, int] = {}
    for source, end in ends:
        offsets.setdefault(source.topic, {})[source.partition] = end
        generations[source.topic] = source.generation
    return Position(snapshot.id, offsets, generations)


def _limited(ends: Sequence[tuple[Source, int]], limit: int) -> list[tuple[Source, int]]:
    """A share of the limit to each partition, by how much it has: as Kafka's source does it.

    A partition that has anything gets one offset at least, so that none starves.
    """
    total = sum(max(0, end - source.start) for source, end in ends)
    limited: list[tuple[Source, int]] = []
    for source, end in ends:
        there = max(0, end - source.start)
        share = limit * there / total if total else 0.0
        whole = math.ceil(share) if share < 1 else math.floor(share)
        limited.append((source, source.start + min(there, whole)))
    return limited


# --- Spark's readers ------------------------------------------------------------------------


class StreamReader(DataSourceStreamReader):
    """What PySpark 4.0 and 4.1 can do; `stream_limits` has what came with 4.2."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._planner: StreamPlanner | None = None
        self._at: Position | None = None

    @property
    def planner(self) -> StreamPlanner:
        """Made where it is used: the reader itself is sent to executors."""
        if self._planner is None:
            self._planner = StreamPlanner(self._options)
        return self._planner

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_planner": None}

    def initialOffset(self) -> Json:  # noqa: N802 - PySpark's
        self._at = self.planner.initial()
        return self._at.to_json()

    def latestOffset(  # noqa: N802 - PySpark's
        self, start: Json | None = None, limit: ReadLimit | None = None
    ) -> Json:
        self._at = self.planner.latest(self._at, self._options.max_offsets)
        return self._at.to_json()

    def partitions(self, start: Json, end: Json) -> Sequence[InputPartition]:
        self._at = Position.from_json(end)
        return self.planner.plan(Position.from_json(start), self._at)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read_task(partition)


def stream_reader(options: Options) -> DataSourceStreamReader:
    """The reader for the PySpark that is installed."""
    if SPARK_VERSION < FIRST_WITH_LIMITS:
        return StreamReader(options)
    from pyspark_quafka.stream_limits import LimitedStreamReader

    return LimitedStreamReader(options)
