"""The assignor `simple` of share groups (KIP-932): a partition may have several members. Pure.

Every partition has a member, and every member a partition, wherever subscriptions allow. First each
partition goes to one member, as with `uniform`. Then members without a partition share partitions,
so that those of a topic have equally many members, as far as possible. Members keep their
partitions, unless that is uneven.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from heapq import heapify, heappop, heappush

from quafka_broker.groups.consumer.assignors import uniform
from quafka_broker.groups.consumer.assignors.placement import Place
from quafka_broker.groups.consumer.assignors.spec import MemberSpec, by_subscription
from quafka_broker.groups.consumer.topics import Target, TopicMetadata


def assign(
    members: Sequence[MemberSpec], topics: Mapping[bytes, TopicMetadata]
) -> Generator[None, None, dict[str, Target]]:
    """The target of every member; see the module."""
    placement = yield from uniform.place(members, topics)
    targets = yield from placement.targets(members)
    sharers = dict.fromkeys(placement.owner, 1)
    idle = [member for member in members if member.topics and not placement.load[member.id]]
    for ids, alike in by_subscription(idle).items():
        places = [place for place in sharers if place[0] in ids]
        yield
        if places:
            yield from _share(alike, places, sharers, targets)
    return targets


def _share(
    members: Sequence[MemberSpec],
    places: list[Place],
    sharers: dict[Place, int],
    targets: dict[str, Target],
) -> Generator[None, None, None]:
    """Give each of the members one of the places, starting with those that have fewest members."""
    everybody = sum(sharers[place] for place in places) + len(members)
    least, more = divmod(everybody, len(places))
    homeless: list[MemberSpec] = []
    for member in members:
        place = _kept(member, sharers, least + bool(more), set(members[0].topics))
        if place is None:
            homeless.append(member)
            continue
        if sharers[place] == least:
            if not more:
                homeless.append(member)
                continue
            more -= 1
        sharers[place] += 1
        targets[member.id] = {place[0]: frozenset([place[1]])}
        yield
    heap = [(sharers[place], place) for place in places]
    heapify(heap)
    for member in homeless:
        members_there, place = heappop(heap)
        sharers[place] = members_there + 1
        heappush(heap, (members_there + 1, place))
        targets[member.id] = {place[0]: frozenset([place[1]])}
        yield


def _kept(
    member: MemberSpec, sharers: dict[Place, int], most: int, topics: set[bytes]
) -> Place | None:
    """The partition that a member already shares and may keep."""
    for topic_id, numbers in member.target.items():
        if topic_id not in topics:
            continue
        for number in numbers:
            if sharers.get((topic_id, number), most) < most:
                return topic_id, number
    return None
