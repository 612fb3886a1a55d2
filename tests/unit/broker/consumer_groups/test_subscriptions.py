"""What the members of a group are subscribed to: counted, shared, and forgotten."""

from __future__ import annotations

from quafka_broker.groups.consumer.subscriptions import Subscriptions
from tests.unit.broker.consumer_groups.clients import known, topic


def _names(*names: str) -> frozenset[str]:
    return frozenset(names)


def test_members_with_equal_names_share_them_and_different_ones_are_forgotten() -> None:
    subscriptions = Subscriptions()
    first = subscriptions.add(_names("a", "b"), "")
    assert subscriptions.add(_names("b", "a"), "") is first
    subscriptions.learn(known(topic("a", 1), topic("b", 2)))
    empty = subscriptions.cost
    for number in range(100):
        its = subscriptions.add(_names("a", f"b{number}"), "")
        assert subscriptions.listed == 4
        assert subscriptions.ids(its, "") == {topic("a", 1).id}
        subscriptions.remove(its, "")
    assert subscriptions.cost == empty
    assert subscriptions.partitions == 3
    subscriptions.remove(first, "")
    assert subscriptions.wanted() == {"a", "b"}
    subscriptions.remove(first, "")
    assert not subscriptions.wanted()
    assert not subscriptions.topics_by_id
    assert subscriptions.cost == 0


def test_patterns_that_match_the_same_names_have_one_list_of_them() -> None:
    subscriptions = Subscriptions()
    names = [f"t{number}" for number in range(1_000)]
    for number in range(100):
        subscriptions.add(frozenset(), f"t.*|{number}")
        assert subscriptions.resolve(f"t.*|{number}", frozenset(names))
        assert not subscriptions.resolve(f"t.*|{number}", frozenset(names))
    assert len(subscriptions.matched) == 1_000
    assert subscriptions.wants("t7")
    assert subscriptions.resolve("t.*|0", frozenset(["t8", "other"]))
    subscriptions.learn(known(topic("t8", 1), topic("other", 1), topic("nobody", 1)))
    assert set(subscriptions.topics) == {"t8", "other"}
    for number in range(1, 100):
        subscriptions.remove(frozenset(), f"t.*|{number}")
    assert subscriptions.wanted() == {"t8", "other"}
    assert subscriptions.resolve("t.*|0", frozenset(["new", "t8"]))
    assert set(subscriptions.topics) == {"t8"}
    assert not subscriptions.resolve("nobody has it", frozenset(["x"]))
    subscriptions.remove(frozenset(), "t.*|0")
    assert (subscriptions.topics, subscriptions.cost) == ({}, 0)
