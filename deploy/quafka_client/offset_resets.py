"""Moves of a group's offsets: planned first, with their consequences, then committed.

Consumer groups and share groups keep their offsets behind different APIs (`GroupOffsets`).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from quafka_client import group_offsets, groups, offsets, share_offsets
from quafka_client.cluster import ClientCluster
from quafka_client.errors import ClientError
from quafka_client.group_offsets import Place
from quafka_client.positions import RequestedPosition


class UnknownPartitionError(ClientError):
    """A topic does not have a partition of this number."""


# --- the offsets of a kind of groups ------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class GroupOffsets:
    """How the offsets of a kind of groups are read and changed. Each function raises ClientError.

    `commit` and `delete` return each partition's error, or None.
    """

    fetch: Callable[[ClientCluster, str], Awaitable[Mapping[Place, int]]]
    commit: Callable[
        [ClientCluster, str, Mapping[Place, int]], Awaitable[Mapping[Place, str | None]]
    ]
    delete: Callable[[ClientCluster, str, Sequence[Place]], Awaitable[Mapping[Place, str | None]]]


async def _delete_shares(
    cluster: ClientCluster, name: str, places: Sequence[Place]
) -> dict[Place, str | None]:
    errors = await share_offsets.delete(cluster, name, dict.fromkeys(topic for topic, _ in places))
    return {place: errors.get(place[0]) for place in places}


OF_CONSUMERS = GroupOffsets(
    group_offsets.committed_offsets, group_offsets.commit, group_offsets.delete_offsets
)
OF_SHARES = GroupOffsets(share_offsets.start_offsets, share_offsets.alter, _delete_shares)


async def offsets_of(cluster: ClientCluster, group: str) -> GroupOffsets:
    """The offsets of a group, by its kind. Raises ClientError."""
    return OF_SHARES if await groups.is_share_group(cluster, group) else OF_CONSUMERS


# --- plans --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class OffsetMove:
    """A partition's offset `before` (None: none is committed) and after a move.

    `log_start`, `end`: the partition's bounds when the move was planned.
    """

    topic: str
    partition: int
    before: int | None
    after: int
    log_start: int
    end: int

    @property
    def skipped(self) -> int:
        """Offsets that the group has not consumed and will not consume."""
        return 0 if self.before is None else max(0, self.after - self._from(self.before))

    @property
    def repeated(self) -> int:
        """Offsets that the group has consumed and will consume again."""
        return 0 if self.before is None else max(0, self._from(self.before) - self.after)

    def _from(self, offset: int) -> int:
        """Where a group with this offset continues: within the partition."""
        return min(max(offset, self.log_start), self.end)


async def plan(
    cluster: ClientCluster,
    named: Sequence[tuple[str, Sequence[int] | None]],
    position: RequestedPosition,
    before: Mapping[Place, int],
) -> list[OffsetMove]:
    """Where a group would continue, by topic and partition; each offset is within its partition.

    Args:
        named: topics with some of their partitions (None: all); empty: all topics of `before`.
        before: the group's offsets.

    Raises:
        UnknownPartitionError, ClientError: see these.
    """
    chosen = named or _partitions(before)
    found: list[OffsetMove] = []
    for name, numbers in chosen:
        topic = await cluster.topic(name)
        every = {each.partition_index for each in topic.partitions}
        unknown = sorted(set(numbers or ()) - every)
        if unknown:
            raise UnknownPartitionError(f"topic {name!r} has no partition {unknown[0]}")
        starts = await offsets.list_offsets(cluster, topic, offsets.START)
        ends = await offsets.list_offsets(cluster, topic, offsets.END)
        if position.kind == "shift":
            places = {n: before[name, n] + position.value for n in every if (name, n) in before}
        else:
            places = await offsets.resolve(cluster, topic, position)
        for number in numbers if numbers is not None else sorted(every):
            if number in places:
                start, end = starts[number], ends[number]
                after = min(max(places[number], start), end)
                found.append(
                    OffsetMove(name, number, before.get((name, number)), after, start, end)
                )
    return sorted(found, key=lambda move: (move.topic, move.partition))


async def plan_places(
    cluster: ClientCluster, wanted: Mapping[Place, int], before: Mapping[Place, int]
) -> list[OffsetMove]:
    """Moves to these offsets, each of which is put within its partition.

    Raises:
        UnknownPartitionError, ClientError: see these.
    """
    found: list[OffsetMove] = []
    for name, numbers in _partitions(wanted):
        topic = await cluster.topic(name)
        unknown = sorted(set(numbers) - {each.partition_index for each in topic.partitions})
        if unknown:
            raise UnknownPartitionError(f"topic {name!r} has no partition {unknown[0]}")
        starts = await offsets.list_offsets(cluster, topic, offsets.START)
        ends = await offsets.list_offsets(cluster, topic, offsets.END)
        for number in numbers:
            start, end = starts[number], ends[number]
            after = min(max(wanted[name, number], start), end)
            found.append(OffsetMove(name, number, before.get((name, number)), after, start, end))
    return found


def _partitions(places: Iterable[Place]) -> list[tuple[str, list[int]]]:
    by_topic: dict[str, list[int]] = {}
    for name, number in sorted(places):
        by_topic.setdefault(name, []).append(number)
    return list(by_topic.items())
