"""The partitions that the options name in a snapshot, with their first and end offsets."""

from __future__ import annotations

from pyspark_quafka.damage import BatchDamage, CorruptBatchError
from pyspark_quafka.errors import DataLossError, QuafkaOptionError
from pyspark_quafka.index_rows import PartitionRange
from pyspark_quafka.offsets_by_time import offset_at
from pyspark_quafka.options import (
    EARLIEST,
    ERROR,
    FAILFAST,
    NEWEST_OFFSET,
    OLDEST_OFFSET,
    READ_COMMITTED,
    OptionPosition,
    Options,
    PerPartition,
)
from pyspark_quafka.snapshot import Snapshot
from quafka_proto.snapshot_format import SnapshotPartition, SnapshotTopic


def ranges_to_read(snapshot: Snapshot, options: Options) -> list[PartitionRange]:
    """The partitions to read, without those that have nothing to read.

    Raises:
        QuafkaOptionError: a topic or partition is not in the snapshot, or has no position.
        DataLossError: offsets that the options name are gone, or do not exist yet.
        CorruptBatchError: damage has cost some of them, and the mode is FAILFAST.
    """
    found: list[PartitionRange] = []
    for range_, partition in resolved(snapshot, options):
        if range_.start < range_.end:
            found.append(range_)
            check_lost(range_, partition, options.mode)
    return found


def resolved(
    snapshot: Snapshot, options: Options
) -> list[tuple[PartitionRange, SnapshotPartition]]:
    """Each partition that the options name, with its first offset and its end.

    Raises:
        QuafkaOptionError: a topic or partition is not in the snapshot, has no position, or has one
            and is not read.
        DataLossError: offsets that the options name are gone, or do not exist yet.
    """
    named = subscribed(snapshot, options)
    read = {(topic.name, partition.partition) for topic, partition in named}
    for which, position in (("starting", options.starting), ("ending", options.ending)):
        given = position.offsets or position.timestamps or {}
        for topic, partition in {(t, p) for t, numbers in given.items() for p in numbers} - read:
            option = f"{which}Offsets" + ("ByTimestamp" if position.timestamps else "")
            raise QuafkaOptionError(f"{option} names {topic}-{partition}, which is not read")
    resolve = _Resolver(snapshot, options)
    return [(resolve.range_(topic, partition), partition) for topic, partition in named]


def subscribed(
    snapshot: Snapshot, options: Options
) -> list[tuple[SnapshotTopic, SnapshotPartition]]:
    """The partitions that the options name.

    Raises:
        QuafkaOptionError: one is not in the snapshot.
    """
    if not snapshot.has(options.org):
        raise QuafkaOptionError(
            f"snapshot {snapshot.id} has the topics of org {snapshot.manifest.org} only; "
            f"the option org is {options.org}"
        )
    topics = {t.name: t for t in snapshot.manifest.topics if t.org == options.org}
    if options.pattern is not None:
        names = [name for name in topics if options.pattern.search(name)]
    else:
        names = list(options.topics or options.assigned or ())
    return [
        (topic, partition)
        for name in names
        for topic in [_topic(topics, name, snapshot.id)]
        for partition in _partitions(topic, options)
    ]


def _topic(topics: dict[str, SnapshotTopic], name: str, snapshot_id: str) -> SnapshotTopic:
    if name not in topics:
        having = ", ".join(sorted(topics)[:20]) or "none"
        raise QuafkaOptionError(
            f"there is no topic {name} in snapshot {snapshot_id}; there are: {having}"
        )
    return topics[name]


def _partitions(topic: SnapshotTopic, options: Options) -> list[SnapshotPartition]:
    if options.assigned is None:
        return topic.partitions
    by_number = {partition.partition: partition for partition in topic.partitions}
    for number in options.assigned[topic.name]:
        if number not in by_number:
            raise QuafkaOptionError(
                f"assign names partition {number} of {topic.name}, which has 0 to "
                f"{len(by_number) - 1}"
            )
    return [by_number[number] for number in options.assigned[topic.name]]


def end_of(partition: SnapshotPartition, options: Options) -> int:
    """The offset up to which a partition may be read."""
    if options.isolation == READ_COMMITTED:
        return partition.last_stable_offset
    return partition.high_watermark


def partition_range(
    topic: SnapshotTopic, partition: SnapshotPartition, start: int, end: int
) -> PartitionRange:
    """A partition, with the offsets to read."""
    return PartitionRange(
        topic.name, partition.partition, topic.org, bytes.fromhex(topic.topic_hash),
        topic.generation, start, end,
    )  # fmt: skip


def check_lost(range_: PartitionRange, partition: SnapshotPartition, mode: str) -> None:
    """Refuse to read over offsets that damage has cost, in FAILFAST.

    Raises:
        CorruptBatchError: some of the lost offsets are to be read.
    """
    damages = [
        BatchDamage(range_.topic, range_.partition, max(first, range_.start), f"lost up to {end}")
        for first, end in partition.lost
        if first < range_.end and end > range_.start
    ]
    if damages and mode == FAILFAST:
        raise CorruptBatchError(damages)


class _Resolver:
    """From the positions in the options to offsets."""

    def __init__(self, snapshot: Snapshot, options: Options) -> None:
        self._snapshot = snapshot
        self._options = options

    def range_(self, topic: SnapshotTopic, partition: SnapshotPartition) -> PartitionRange:
        """A partition with its first offset and its end."""
        options = self._options
        log_start, end = partition.log_start, end_of(partition, options)
        whole = partition_range(topic, partition, log_start, end)
        first = self.resolve(whole, options.starting, "starting")
        last = self.resolve(whole, options.ending, "ending")
        chosen = options.starting.bound is None and options.ending.bound is None
        if chosen and first > last:
            raise QuafkaOptionError(
                f"{topic.name}-{partition.partition} would be read from {first} to {last}: "
                "the start is after the end"
            )
        not_there = min(first, last) < log_start or max(first, last) > end
        if options.fail_on_data_loss and not_there and (first != last or first > end):
            raise DataLossError(
                f"{topic.name}-{partition.partition} has offsets {log_start} to {end} in snapshot "
                f"{self._snapshot.id}; the options name {first} to {last}. With the "
                "option failOnDataLoss=false the offsets that exist are read."
            )
        return partition_range(topic, partition, max(first, log_start), min(last, end))

    def resolve(self, whole: PartitionRange, position: OptionPosition, which: str) -> int:
        """The offset that a position means in a partition."""
        if position.bound is not None:
            return whole.start if position.bound == EARLIEST else whole.end
        if position.offsets is not None:
            offset = _chosen(whole, position.offsets, f"{which}Offsets")
            return {OLDEST_OFFSET: whole.start, NEWEST_OFFSET: whole.end}.get(offset, offset)
        timestamp = position.timestamp
        if timestamp is None:
            timestamp = _chosen(whole, position.timestamps or {}, f"{which}OffsetsByTimestamp")
        # Damage must not be skipped unnoticed: a scan that begins there reports it.
        at_damage = which == "starting" and self._options.mode == FAILFAST
        found = offset_at(self._snapshot, whole, timestamp, at_damage=at_damage)
        if found is not None:
            return found
        if which == "starting" and self._options.no_such_time == ERROR:
            raise QuafkaOptionError(
                f"no record of {whole.topic}-{whole.partition} has a timestamp of {timestamp} or "
                "later. With the option startingOffsetsByTimestampStrategy=latest the "
                "partition is not read."
            )
        return whole.end


def _chosen(whole: PartitionRange, given: PerPartition, option: str) -> int:
    try:
        return given[whole.topic][whole.partition]
    except KeyError as e:
        bounds = {"startingOffsets": ", -2 is its beginning", "endingOffsets": ", -1 is its end"}
        raise QuafkaOptionError(
            f"{option} has nothing for {whole.topic}-{whole.partition}: it must name every "
            f"partition that is read{bounds.get(option, '')}"
        ) from e
