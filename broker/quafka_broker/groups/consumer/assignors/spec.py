"""The input and the result of an assignor."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field

from quafka_broker.groups.consumer.topics import Target, TopicMetadata


@dataclass(frozen=True, slots=True)
class MemberSpec:
    """A member.

    Attributes:
        instance_id: of a static member, or "".
        rack: its rack, or "".
        topics: the ids of the existing topics that it is subscribed to.
        target: its present target.
    """

    id: str
    topics: frozenset[bytes]
    instance_id: str = ""
    rack: str = ""
    target: Target = field(default_factory=Target)


Assignor = Callable[
    [Sequence[MemberSpec], Mapping[bytes, TopicMetadata]],
    Generator[None, None, dict[str, Target]],
]
"""Computes the target of every member, by its id, from the members and the topics by their ids."""


def by_subscription(members: Sequence[MemberSpec]) -> dict[frozenset[bytes], list[MemberSpec]]:
    """The members by their subscriptions, in their order."""
    groups: dict[frozenset[bytes], list[MemberSpec]] = {}
    for member in members:
        groups.setdefault(member.topics, []).append(member)
    return groups


@dataclass(slots=True)
class Pool:
    """The topics that have the same subscribers.

    Attributes:
        subscribers: in the order of the members.
        topics: in the order of their ids.
        size: the number of partitions.
    """

    subscribers: list[MemberSpec]
    topics: list[TopicMetadata]
    size: int = 0


def pools(
    members: Sequence[MemberSpec], topics: Mapping[bytes, TopicMetadata]
) -> Generator[None, None, list[Pool]]:
    """The topics with subscribers by their subscribers, fewest subscribers first."""
    groups = by_subscription(members)
    subscribed: dict[bytes, list[int]] = {}
    for at, ids in enumerate(groups):
        for topic_id in ids:
            subscribed.setdefault(topic_id, []).append(at)
        yield
    listed = list(groups.values())
    rank = {member.id: at for at, member in enumerate(members)}
    found: dict[tuple[int, ...], Pool] = {}
    for topic_id in sorted(subscribed):
        topic = topics.get(topic_id)
        if topic is None:
            continue
        key = tuple(subscribed[topic_id])
        pool = found.get(key)
        if pool is None:
            subscribers = [member for at in key for member in listed[at]]
            subscribers.sort(key=lambda member: rank[member.id])
            pool = found[key] = Pool(subscribers, [])
        pool.topics.append(topic)
        pool.size += topic.partitions
        yield
    return sorted(found.values(), key=lambda pool: len(pool.subscribers))
