"""Damaged pieces of the log, and their lost offsets.

Lost records keep their ids and offsets, so no other offset shifts. A fetch of a lost offset gets
CORRUPT_MESSAGE. `quafka wal repair` settles damage.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple

from quafka_broker.partitions.partition import Partition, PartitionId, partition_of
from quafka_proto.log_format import IndexRow


class Lost(NamedTuple):
    """Lost offsets [first, end) of one partition."""

    partition: PartitionId
    first: int
    end: int


class SegmentDamage(NamedTuple):
    """A piece [start, end) of a segment's log file, and the ids [first_id, end_id) in it.

    An empty piece means that records are missing before that position. `lost` is empty until the
    records in the piece are known, and if none of them is live.
    """

    segment: int
    start: int
    end: int
    reason: str
    first_id: int
    end_id: int
    lost: tuple[Lost, ...] = ()

    def __str__(self) -> str:
        whose = ", ".join(
            f"partition {lost.partition.key} offsets {lost.first} to {lost.end - 1}"
            for lost in self.lost
        )
        return (
            f"segment {self.segment}, positions {self.start} to {self.end}: {self.reason}; "
            f"lost: {whose or 'nothing that is live'}"
        )


class Quarantine:
    """All known damage. One thread changes it; other threads may call `first_lost`."""

    def __init__(self) -> None:
        self.damages: list[SegmentDamage] = []
        self._places: dict[tuple[object, ...], int] = {}  # positions in the list
        self._lost: dict[PartitionId, list[tuple[int, int]]] = {}

    def add(self, damage: SegmentDamage) -> None:
        """Stop serving the damaged offsets. A known place is not added again."""
        place = damage[:3] if damage.end > damage.start else damage[:3] + damage[4:6]
        at = self._places.setdefault(place, len(self.damages))
        if at == len(self.damages):
            self.damages.append(damage)
        elif not self.damages[at].lost:
            self.damages[at] = damage
        for lost in damage.lost:
            ranges = [*self._lost.get(lost.partition, ()), (lost.first, lost.end)]
            self._lost[lost.partition] = _merged(ranges)

    def is_in(self, segment: int) -> bool:
        """Whether a segment is damaged."""
        return any(damage.segment == segment for damage in self.damages)

    def first_lost(self, partition: PartitionId, offset: int) -> int | None:
        """The first lost offset at or above this one."""
        ranges = self._lost.get(partition)
        if ranges is None:
            return None
        at = bisect_right(ranges, offset, key=lambda lost: lost[1])
        return max(offset, ranges[at][0]) if at < len(ranges) else None

    def end_of_lost(self, partition: PartitionId, offset: int) -> int:
        """The first offset at or above this one that is not lost."""
        for first, end in self._lost.get(partition, ()):
            if first <= offset < end:
                return end
        return offset

    def lost(self) -> dict[PartitionId, list[tuple[int, int]]]:
        """All lost ranges [first, end) of offsets."""
        return {partition: list(ranges) for partition, ranges in self._lost.items()}

    def settle(self, partitions: Iterable[Partition]) -> None:
        """Determine the lost offsets; drop those of records that are no longer live.

        Damage without bytes and without lost offsets was freed long ago.
        """
        live = {partition.id: partition for partition in partitions}
        settled = Quarantine()
        for damage in sorted(self.damages):
            if damage.lost:
                found = (
                    _left_of(live[part.partition], part) for part in damage.lost if part[0] in live
                )
            else:
                found = (_lost_of(partition, damage) for partition in live.values())
            lost = tuple(part for part in found if part is not None)
            if lost or damage.end > damage.start:
                settled.add(damage._replace(lost=lost))
        # In one step, because other threads read.
        self._take(settled)

    def drop_dead(
        self, there: Collection[int], partitions: Mapping[PartitionId, Partition]
    ) -> None:
        """Drop damage without live records in segments that are no longer `there`."""
        left = Quarantine()
        for damage in self.damages:
            if damage.segment in there or any(_is_live(lost, partitions) for lost in damage.lost):
                left.add(damage)
        self._take(left)

    def _take(self, other: Quarantine) -> None:
        self.damages, self._places, self._lost = other.damages, other._places, other._lost


def _is_live(lost: Lost, partitions: Mapping[PartitionId, Partition]) -> bool:
    partition = partitions.get(lost.partition)
    return partition is not None and lost.end > partition.log_start


def damaged_entry(segment: int, row: IndexRow, reason: str) -> SegmentDamage:
    """The damage of one entry whose index row is known."""
    partition = partition_of(row)
    return SegmentDamage(
        segment,
        row.position,
        row.end,
        reason,
        row.global_id,
        row.global_id + row.record_count,
        (Lost(partition, row.base_offset, row.base_offset + row.record_count),),
    )


def lost_in(rows: Iterable[IndexRow]) -> tuple[Lost, ...]:
    """The offsets of entries, as merged ranges."""
    ranges: dict[PartitionId, list[tuple[int, int]]] = {}
    for row in rows:
        partition = partition_of(row)
        end = row.base_offset + row.record_count
        ranges.setdefault(partition, []).append((row.base_offset, end))
    return tuple(
        Lost(partition, first, end)
        for partition, some in ranges.items()
        for first, end in _merged(some)
    )


def _left_of(partition: Partition, lost: Lost) -> Lost | None:
    """The part of the lost offsets that has not been deleted."""
    first = max(lost.first, partition.log_start)
    end = min(lost.end, partition.high_watermark)
    return Lost(partition.id, first, end) if end > first else None


def _lost_of(partition: Partition, damage: SegmentDamage) -> Lost | None:
    first, end = partition.offsets_between(damage.first_id, damage.end_id)
    first = partition.gaps.end_of(first)
    return Lost(partition.id, first, end) if end > first else None


def _merged(ranges: list[tuple[int, int]]) -> list[tuple[int, int]]:
    merged: list[tuple[int, int]] = []
    for first, end in sorted(ranges):
        if merged and first <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((first, end))
    return merged
