"""Assignors: valid and even targets, and no move that evenness does not need."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from random import Random

from hypothesis import given
from hypothesis import strategies as st

from quafka_broker.groups.consumer.assignors import ASSIGNORS, RANGE, SIMPLE, UNIFORM
from quafka_broker.groups.consumer.assignors.spec import MemberSpec
from quafka_broker.groups.consumer.topics import Target, TopicMetadata, count, each
from quafka_loop.slices import at_once
from tests.support.suites import examples

RACKS = ("east", "north", "west")
SEEDS = st.integers(0, 2**32)
Topics = dict[bytes, TopicMetadata]


def topic_id(number: int) -> bytes:
    return bytes([number]) * 16


def some_topics(draw: Random) -> Topics:
    found: Topics = {}
    for number in range(draw.randint(1, 4)):
        size = draw.randint(1, 12)
        racks = tuple(frozenset(draw.sample(RACKS, draw.randint(1, 3))) for _ in range(size))
        found[topic_id(number)] = TopicMetadata(
            topic_id(number), f"t{number}", size, racks if draw.random() < 0.5 else ()
        )
    return found


def some_members(draw: Random, topics: Topics, *, alike: bool) -> list[MemberSpec]:
    def subset() -> frozenset[bytes]:
        return frozenset(topic for topic in topics if draw.random() < 0.6)

    common = subset()
    return [
        MemberSpec(
            f"m{number}",
            common if alike else subset(),
            f"i{number}" if draw.random() < 0.3 else "",
            draw.choice(("", *RACKS)),
        )
        for number in range(draw.randint(1, 8))
    ]


def assigned(name: str, members: list[MemberSpec], topics: Topics) -> list[MemberSpec]:
    """The members with the targets that an assignor gives them."""
    targets = at_once(ASSIGNORS[name](members, topics))
    assert targets.keys() == {member.id for member in members}
    return [replace(member, target=targets[member.id]) for member in members]


def owners(members: list[MemberSpec]) -> dict[tuple[bytes, int], list[MemberSpec]]:
    found: dict[tuple[bytes, int], list[MemberSpec]] = {}
    for member in members:
        for place in each(member.target):
            found.setdefault(place, []).append(member)
    return found


def check(members: list[MemberSpec], topics: Topics, *, shared: bool = False) -> None:
    """Every partition with subscribers has one member (or several), who is subscribed to it."""
    found = owners(members)
    wanted = {
        (topic.id, number)
        for topic in topics.values()
        if any(topic.id in member.topics for member in members)
        for number in range(topic.partitions)
    }
    assert found.keys() == wanted
    for place, holders in found.items():
        assert shared or len(holders) == 1
        assert all(place[0] in holder.topics for holder in holders)
    assert all(numbers for member in members for numbers in member.target.values())


def check_even(members: list[MemberSpec]) -> None:
    """No partition could go to another subscriber that has at least two fewer."""
    for member in members:
        for topic in member.target:
            for other in members:
                if topic in other.topics:
                    assert count(member.target) <= count(other.target) + 1


Change = tuple[Topics, list[MemberSpec], Topics, set[int], int]


def change(seed: int, *, alike: bool) -> Change:
    """Topics and members; and what becomes of them: topics, members that go, new members."""
    draw = Random(seed)
    topics = some_topics(draw)
    members = some_members(draw, topics, alike=alike)
    later = {
        topic_id: replace(topic, partitions=topic.partitions + draw.choice((0, 3)))
        for topic_id, topic in topics.items()
    }
    return (
        topics,
        members,
        later,
        set(draw.sample(range(8), draw.randint(0, 8))),
        draw.randint(0, 3),
    )


def after(
    members: list[MemberSpec], gone: set[int], new: int, common: frozenset[bytes]
) -> list[MemberSpec]:
    left = [member for number, member in enumerate(members) if number not in gone]
    return [*left, *(MemberSpec(f"n{number}", common) for number in range(new))]


@examples(300)
@given(SEEDS)
def test_uniform_is_even_over_all_subscriptions(
    seed: int,
) -> None:
    topics, members, later, gone, new = change(seed, alike=False)
    members = assigned(UNIFORM, members, topics)
    check(members, topics)
    check_even(members)
    assert assigned(UNIFORM, members, topics) == members  # nothing moves without a reason
    members = assigned(UNIFORM, after(members, gone, new, frozenset(topics)), later)
    check(members, later)
    check_even(members)


@examples(300)
@given(SEEDS)
def test_uniform_moves_no_partition_that_could_stay(
    seed: int,
) -> None:
    topics, members, later, gone, new = change(seed, alike=True)
    common = members[0].topics
    before = after(assigned(UNIFORM, members, topics), gone, new, common)
    if not before:
        return
    now = assigned(UNIFORM, before, later)
    check(now, later)
    sizes = [count(member.target) for member in now]
    assert max(sizes) - min(sizes) <= 1
    quota, longer = divmod(sum(sizes), len(now))
    had = [count(member.target) for member in before]
    allowed = sum(min(size, quota) for size in had)
    allowed += min(longer, sum(size > quota for size in had))
    kept = sum(
        len(numbers & later_member.target.get(topic, frozenset()))
        for member, later_member in zip(before, now, strict=True)
        for topic, numbers in member.target.items()
    )
    assert kept == allowed


def test_uniform_gives_free_partitions_to_members_in_their_racks() -> None:
    racks = tuple(frozenset([RACKS[number % 3]]) for number in range(9))
    topics = {topic_id(0): TopicMetadata(topic_id(0), "t", 9, racks)}
    members = [MemberSpec(f"m{rack}", frozenset(topics), rack=rack) for rack in RACKS]
    members = assigned(UNIFORM, members, topics)
    for member in members:
        assert all(member.rack in racks[number] for _, number in each(member.target))
    two = assigned(UNIFORM, members[:2], topics)
    assert all(
        new.target[topic_id(0)] > old.target[topic_id(0)]
        for new, old in zip(two, members, strict=False)
    )
    back = [*two, MemberSpec("new", frozenset(topics), rack=RACKS[2])]
    assert owners(assigned(UNIFORM, back, topics)) == {
        place: [replace(holders[0], id="new" if holders[0].rack == RACKS[2] else holders[0].id)]
        for place, holders in owners(members).items()
    }


@examples(300)
@given(SEEDS)
def test_ranges_are_ranges_of_even_length(
    seed: int,
) -> None:
    topics, members, later, gone, new = change(seed, alike=False)
    members = assigned(RANGE, members, topics)
    check(members, topics)
    assert assigned(RANGE, members, topics) == members
    members = assigned(RANGE, after(members, gone, new, frozenset(topics)), later)
    check(members, later)
    for topic in later:
        subscribers = [member for member in members if topic in member.topics]
        ranges = [sorted(member.target.get(topic, ())) for member in subscribers]
        for numbers in ranges:
            assert numbers == list(range(numbers[0], numbers[-1] + 1)) if numbers else True
        sizes = list(map(len, ranges)) or [0]
        assert max(sizes) - min(sizes) <= 1


@given(st.integers(1, 9), st.integers(9, 20), st.integers(0, 8), st.sampled_from(["", "i"]))
def test_range_assigns_like_topics_alike_and_a_successor_what_its_predecessor_had(
    size: int, partitions: int, gone: int, instance: str
) -> None:
    topics = {topic_id(n): TopicMetadata(topic_id(n), f"t{n}", partitions) for n in range(2)}
    members = [MemberSpec(f"m{n}", frozenset(topics), instance and f"i{n}") for n in range(size)]
    members = assigned(RANGE, members, topics)
    for member in members:
        assert member.target.get(topic_id(0)) == member.target.get(topic_id(1))
    before = members.pop(gone % size)
    if not members:
        return
    members.append(MemberSpec("a-new-one", frozenset(topics)))
    assert assigned(RANGE, members, topics)[-1].target == before.target


@examples(300)
@given(SEEDS)
def test_simple_gives_everybody_something(
    seed: int,
) -> None:
    topics, members, later, gone, new = change(seed, alike=False)
    members = assigned(SIMPLE, members, topics)
    check(members, topics, shared=True)
    assert all(member.target or not member.topics for member in members)
    assert assigned(SIMPLE, members, topics) == members
    members = assigned(SIMPLE, after(members, gone, new, frozenset(topics)), later)
    check(members, later, shared=True)
    assert all(member.target or not member.topics for member in members)


@given(st.integers(1, 40), st.integers(1, 12), st.sets(st.integers(0, 39)), st.integers(0, 9))
def test_simple_shares_partitions_evenly(
    size: int, partitions: int, gone: set[int], new: int
) -> None:
    topics = {topic_id(0): TopicMetadata(topic_id(0), "t", partitions)}
    members = [MemberSpec(f"m{number:02}", frozenset(topics)) for number in range(size)]
    for _ in range(2):
        members = assigned(SIMPLE, members, topics)
        shares = Counter(place for member in members for place in each(member.target))
        assert max(shares.values()) - min(shares.values()) <= 1
        sizes = [count(member.target) for member in members]
        assert max(sizes) - min(sizes) <= 1
        before: dict[str, Target] = {member.id: member.target for member in members}
        assert {m.id: m.target for m in assigned(SIMPLE, members, topics)} == before
        members = after(members, gone, new, frozenset(topics)) or members
