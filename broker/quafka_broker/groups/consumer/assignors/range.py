"""The assignor `range`: every member gets a range of each topic's partitions. Pure.

Topics with the same subscribers have them in the same order. So those with equally many partitions
are co-partitioned: a member gets the same partition numbers of each. Kafka orders members by
instance id or else by member id, so that a new member shifts the ranges of many. Here members keep
the order of their present ranges; a new one fills a gap, or goes to the end. Where racks are known,
a gap goes to the new member whose rack has most of its replicas.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence

from quafka_broker.groups.consumer.assignors.placement import is_near, racks_are_known
from quafka_broker.groups.consumer.assignors.spec import MemberSpec, Pool, pools
from quafka_broker.groups.consumer.topics import Target, TopicMetadata

_STEP = 64
_NOTHING: frozenset[int] = frozenset()


def assign(
    members: Sequence[MemberSpec], topics: Mapping[bytes, TopicMetadata]
) -> Generator[None, None, dict[str, Target]]:
    """The target of every member; see the module."""
    members = sorted(members, key=lambda m: (not m.instance_id, m.instance_id or m.id, m.id))
    every = yield from pools(members, topics)
    targets: dict[str, Target] = {member.id: {} for member in members}
    for pool in every:
        ordered = _in_order(pool)
        yield
        for topic in pool.topics:
            for at, numbers in enumerate(_ranges(topic.partitions, len(ordered))):
                targets[ordered[at].id][topic.id] = frozenset(numbers)
                if at % _STEP == 0:
                    yield
    return targets


def _ranges(partitions: int, members: int) -> list[range]:
    """The ranges of a topic, longer ones first; none is empty."""
    quota, longer = divmod(partitions, members)
    found: list[range] = []
    end = 0
    for at in range(min(members, partitions)):
        first, end = end, end + quota + (at < longer)
        found.append(range(first, end))
    return found


def _in_order(pool: Pool) -> list[MemberSpec]:
    """The subscribers in the order of their ranges in the longest topic, new ones in gaps."""
    known = {topic_id for member in pool.subscribers for topic_id in member.target}
    topics = [topic for topic in pool.topics if topic.id in known]
    if not topics:
        return pool.subscribers
    topic = max(topics, key=lambda each: (each.partitions, each.id))
    placed: list[tuple[int, MemberSpec]] = []
    others: list[MemberSpec] = []
    for member in pool.subscribers:
        numbers = member.target.get(topic.id, _NOTHING)
        if numbers:
            placed.append((min(numbers), member))
        else:
            others.append(member)
    if others:
        gaps = _gaps(topic, [member for _, member in placed])[: len(others)]
        others = _nearest(others, gaps, topic)
        placed += zip([gap.start for gap in gaps], others, strict=False)
        others = others[len(gaps) :]
    placed.sort(key=lambda each: each[0])
    return [*(member for _, member in placed), *others]


def _gaps(topic: TopicMetadata, members: Sequence[MemberSpec]) -> list[range]:
    """The ranges of a topic without a member, none longer than the longest range of a member."""
    taken = {number for member in members for number in member.target[topic.id]}
    longest = max((len(member.target[topic.id]) for member in members), default=topic.partitions)
    found: list[range] = []
    start: int | None = None
    for number in range(topic.partitions + 1):
        is_free = number < topic.partitions and number not in taken
        if start is not None and (not is_free or number - start == longest):
            found.append(range(start, number))
            start = None
        if is_free and start is None:
            start = number
    return found


def _nearest(
    members: list[MemberSpec], gaps: list[range], topic: TopicMetadata
) -> list[MemberSpec]:
    """The members in the order of the gaps: for each gap, the member that is near most of it."""
    if not gaps or not racks_are_known(members, [topic]):
        return members
    left = list(members)
    ordered: list[MemberSpec] = []
    for numbers in gaps:
        best = max(left, key=lambda m: sum(is_near(m, topic, number) for number in numbers))
        left.remove(best)
        ordered.append(best)
    return [*ordered, *left]
