"""A queue in which orgs take turns."""

from __future__ import annotations

import pytest

from quafka_loop.org_queue import OrgQueue


def test_an_org_with_many_items_delays_another_ones_first_by_one() -> None:
    queue: OrgQueue[str] = OrgQueue()
    for number in range(5):
        queue.add(1, f"a{number}")
    queue.add(2, "b0")
    queue.add(2, "b1")
    assert [queue.pop() for _ in range(7)] == ["a0", "b0", "a1", "b1", "a2", "a3", "a4"]
    assert not queue
    with pytest.raises(KeyError):
        queue.pop()


def test_a_turn_may_end_before_its_item_does() -> None:
    queue: OrgQueue[str] = OrgQueue()
    with pytest.raises(KeyError):
        queue.rotate()
    for org, item in ((1, "a0"), (1, "a1"), (2, "b0")):
        queue.add(org, item)
    assert [queue.rotate() for _ in range(3)] == ["a0", "b0", "a0"]
    queue.remove(1, "a0")
    assert [queue.rotate() for _ in range(3)] == ["b0", "a1", "b0"]


def test_what_is_removed_leaves_nothing() -> None:
    queue: OrgQueue[str] = OrgQueue()
    queue.add(1, "a")
    queue.add(1, "b")
    queue.remove(1, "a")
    queue.remove(1, "a")
    queue.remove(3, "a")
    assert queue
    queue.remove(1, "b")
    assert not queue
    queue.add(1, "c")
    queue.clear()
    assert not queue
