"""Gives partitions to members one by one, and makes the target from that. Pure."""

from __future__ import annotations

from collections import deque
from collections.abc import Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from quafka_broker.groups.consumer.assignors.spec import MemberSpec
from quafka_broker.groups.consumer.topics import Target, TopicMetadata

Place = tuple[bytes, int]
"""Topic id and partition."""

_STEP = 64
"""Partitions between two yields."""


@dataclass(slots=True)
class Placement:
    """The partitions given to members so far.

    Attributes:
        owner: the member that has a partition.
        load: how many partitions each member has.
    """

    owner: dict[Place, str] = field(default_factory=dict[Place, str])
    load: dict[str, int] = field(default_factory=dict[str, int])

    def keep(
        self, members: Sequence[MemberSpec], topics: Mapping[bytes, TopicMetadata]
    ) -> Generator[None, None, None]:
        """Give the members their partitions that still exist and belong to their subscriptions."""
        for member in members:
            kept = 0
            for topic_id, numbers in member.target.items():
                topic = topics.get(topic_id)
                if topic is None or topic_id not in member.topics:
                    continue
                for number in numbers:
                    place = (topic_id, number)
                    if number < topic.partitions and place not in self.owner:
                        self.owner[place] = member.id
                        kept += 1
            self.load[member.id] = kept
            yield

    def give(self, place: Place, member_id: str) -> None:
        """Give a free partition to a member."""
        self.owner[place] = member_id
        self.load[member_id] += 1

    def take(self, place: Place) -> None:
        """Take a partition from its member."""
        self.load[self.owner.pop(place)] -= 1

    def targets(self, members: Sequence[MemberSpec]) -> Generator[None, None, dict[str, Target]]:
        """The target of each member."""
        found: dict[str, dict[bytes, list[int]]] = {member.id: {} for member in members}
        for done, ((topic_id, number), member_id) in enumerate(self.owner.items()):
            found[member_id].setdefault(topic_id, []).append(number)
            if done % _STEP == 0:
                yield
        targets: dict[str, Target] = {}
        for member_id, of_member in found.items():
            targets[member_id] = {
                topic_id: frozenset(numbers) for topic_id, numbers in of_member.items()
            }
            yield
        return targets


def racks_are_known(members: Iterable[MemberSpec], topics: Iterable[TopicMetadata]) -> bool:
    """Whether racks can matter: they are known for some members and some partitions."""
    return any(member.rack for member in members) and any(topic.racks for topic in topics)


def is_near(member: MemberSpec, topic: TopicMetadata, number: int) -> bool:
    """Whether a replica of the partition is in the member's rack."""
    return number < len(topic.racks) and member.rack in topic.racks[number]


def hand_out(
    placement: Placement,
    free: Sequence[tuple[TopicMetadata, int]],
    wants: dict[str, int],
    members: Sequence[MemberSpec],
    *,
    by_rack: bool,
) -> Generator[None, None, None]:
    """Give free partitions to members in turn, as many as each wants; first those of its rack.

    The sum of `wants` is the number of partitions. Taking turns spreads each topic over the
    members.
    """
    rest = free
    if by_rack:
        rest = yield from _hand_out_near(placement, free, wants, members)
    turns = deque(member.id for member in members if wants.get(member.id, 0))
    for done, (topic, number) in enumerate(rest):
        member_id = turns[0]
        placement.give((topic.id, number), member_id)
        wants[member_id] -= 1
        if wants[member_id]:
            turns.rotate(-1)
        else:
            turns.popleft()
        if done % _STEP == 0:
            yield


def _hand_out_near(
    placement: Placement,
    free: Sequence[tuple[TopicMetadata, int]],
    wants: dict[str, int],
    members: Sequence[MemberSpec],
) -> Generator[None, None, list[tuple[TopicMetadata, int]]]:
    """Give partitions to members in their racks; returns the remaining ones.

    Partitions with the fewest racks choose first.
    """
    turns: dict[str, deque[str]] = {}
    for member in members:
        if member.rack and wants.get(member.id, 0):
            turns.setdefault(member.rack, deque()).append(member.id)
    rest: list[tuple[TopicMetadata, int]] = []
    with_racks = [(len(topic.racks[number]) if number < len(topic.racks) else 0, at)
                  for at, (topic, number) in enumerate(free)]  # fmt: skip
    for done, (racks, at) in enumerate(sorted(with_racks)):
        topic, number = free[at]
        near = (
            [turns[rack] for rack in sorted(topic.racks[number]) if turns.get(rack)]
            if racks
            else []
        )
        if near:
            line = max(near, key=len)
            member_id = line[0]
            placement.give((topic.id, number), member_id)
            wants[member_id] -= 1
            if wants[member_id]:
                line.rotate(-1)
            else:
                line.popleft()
        else:
            rest.append((topic, number))
        if done % _STEP == 0:
            yield
    return rest
