"""The assignor `uniform`: members get equally many partitions, and keep theirs. Pure.

With equal subscriptions, the members' numbers of partitions differ by at most one. With different
subscriptions, no subscriber of a partition's topic has at least two partitions fewer than the
partition's member. A partition moves only if this requires it. Where racks are known, free
partitions go first to members in a rack of their replicas; racks alone never move a partition.

Topics with the same subscribers are one pool. Each pool is levelled separately, with fixed loads
from other pools, until no pool changes. Every change reduces the sum of the squared loads, so this
ends.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence

from quafka_broker.groups.consumer.assignors.placement import (
    Placement,
    hand_out,
    is_near,
    racks_are_known,
)
from quafka_broker.groups.consumer.assignors.spec import MemberSpec, Pool, pools
from quafka_broker.groups.consumer.topics import Target, TopicMetadata

_STEP = 64


def assign(
    members: Sequence[MemberSpec], topics: Mapping[bytes, TopicMetadata]
) -> Generator[None, None, dict[str, Target]]:
    """The target of every member; see the module."""
    placement = yield from place(members, topics)
    return (yield from placement.targets(members))


def place(
    members: Sequence[MemberSpec], topics: Mapping[bytes, TopicMetadata]
) -> Generator[None, None, Placement]:
    """The same, as a placement."""
    members = sorted(members, key=lambda member: (member.instance_id or member.id, member.id))
    placement = Placement()
    yield from placement.keep(members, topics)
    every = yield from pools(members, topics)
    by_rack = racks_are_known(members, topics.values())
    changed = True
    while changed:
        changed = False
        for pool in every:
            changed = (yield from _level(placement, pool, by_rack=by_rack)) or changed
        changed = changed and len(every) > 1
    return placement


def _level(placement: Placement, pool: Pool, *, by_rack: bool) -> Generator[None, None, bool]:
    """Distribute a pool's partitions as evenly as other loads allow; returns whether any moved."""
    held: dict[str, list[tuple[TopicMetadata, int]]] = {m.id: [] for m in pool.subscribers}
    free: list[tuple[TopicMetadata, int]] = []
    for topic in pool.topics:
        for number in range(topic.partitions):
            owner = placement.owner.get((topic.id, number))
            (free if owner is None else held[owner]).append((topic, number))
            if number % _STEP == 0:
                yield
    counts = {member_id: len(has) for member_id, has in held.items()}
    fair = yield from _fair_counts(placement, pool, counts)
    wants: dict[str, int] = {}
    for member in pool.subscribers:
        has = held[member.id]
        too_many = len(has) - fair[member.id]
        if too_many > 0:
            for topic, number in _to_give_up(member, has, too_many, by_rack=by_rack):
                placement.take((topic.id, number))
                free.append((topic, number))
        elif too_many < 0:
            wants[member.id] = -too_many
        yield
    if free:
        yield from hand_out(placement, free, wants, pool.subscribers, by_rack=by_rack)
    return bool(free)


def _to_give_up(
    member: MemberSpec, has: list[tuple[TopicMetadata, int]], count: int, *, by_rack: bool
) -> list[tuple[TopicMetadata, int]]:
    """The partitions that a member gives up: first those of other racks, then the last ones."""
    if by_rack and member.rack:
        far_last = sorted(has, key=lambda each: not is_near(member, *each))
        return far_last[-count:]
    return has[-count:]


def _fair_counts(
    placement: Placement, pool: Pool, held: dict[str, int]
) -> Generator[None, None, dict[str, int]]:
    """The number of partitions of the pool that each subscriber should have.

    Partitions of other pools are fixed, like the bottom of a vessel into which the pool's are
    poured. Of subscribers that are equally entitled to one more, those that have it keep it.
    """
    bottoms = {
        member.id: placement.load[member.id] - held[member.id] for member in pool.subscribers
    }
    yield
    level, rest = _pour(sorted(bottoms.values()), pool.size)
    yield
    fair = {member_id: max(0, level - bottom) for member_id, bottom in bottoms.items()}
    yield
    entitled = [member_id for member_id, bottom in bottoms.items() if bottom <= level]
    entitled.sort(key=lambda member_id: held[member_id] <= fair[member_id])
    for member_id in entitled[:rest]:
        fair[member_id] += 1
    yield
    return fair


def _pour(bottoms: list[int], amount: int) -> tuple[int, int]:
    """The level of `amount` poured on sorted bottoms, and the remainder to give out one by one."""
    total = 0
    for at, bottom in enumerate(bottoms, 1):
        total += bottom
        level = (total + amount) // at
        if at == len(bottoms) or level < bottoms[at]:
            return level, total + amount - level * at
    return 0, 0
