"""The table of parked fetches: what a change or a drain returns, and what remains afterwards."""

from __future__ import annotations

from collections.abc import Collection

from quafka_broker.partitions.partition import PartitionId
from quafka_broker.partitions.purgatory import ParkedFetch, Purgatory
from tests.unit.broker.tools import topic_id

A, B, C = topic_id("a"), topic_id("b"), topic_id("c")


def parked(
    purgatory: Purgatory[ParkedFetch],
    partitions: Collection[PartitionId],
    deadline: float = 10.0,
) -> ParkedFetch:
    fetch = ParkedFetch(partitions, deadline)
    purgatory.add(fetch)
    return fetch


def remove(purgatory: Purgatory[ParkedFetch], fetch: ParkedFetch) -> None:
    for step in purgatory.removal(fetch):
        step()


def test_a_change_concerns_the_fetches_of_its_partition() -> None:
    purgatory = Purgatory[ParkedFetch]()
    first, second = parked(purgatory, [A, B]), parked(purgatory, [B, C])
    assert purgatory.mark_changed([A]) == [first]
    assert not first.must_wait(0.0)
    assert second.must_wait(0.0)
    assert purgatory.mark_changed([B, A]) == [second], "the first has not yet collected A"
    assert first.collect_changed() == {A, B}
    assert second.collect_changed() == {B}
    assert not first.is_over(0.0)
    remove(purgatory, first)
    remove(purgatory, second)
    assert len(purgatory) == 0


def test_no_change_is_missed_between_two_waits() -> None:
    purgatory = Purgatory[ParkedFetch]()
    fetch = parked(purgatory, [A])
    assert purgatory.mark_changed([A]) == [fetch]
    for _ in range(3):
        assert purgatory.mark_changed([A]) == [], "it is woken already"
    assert fetch.collect_changed() == {A}
    assert fetch.must_wait(0.0)
    purgatory.mark_changed([A])
    assert fetch.collect_changed() == {A}
    assert fetch.collect_changed() == set()


def test_one_change_of_many_partitions_wakes_a_fetch_once() -> None:
    purgatory = Purgatory[ParkedFetch]()
    fetch = parked(purgatory, [A, B, C])
    assert purgatory.mark_changed([A, B, C]) == [fetch]
    assert fetch.collect_changed() == {A, B, C}


def test_the_deadline_ends_a_wait_and_keeps_what_changed() -> None:
    purgatory = Purgatory[ParkedFetch]()
    fetch = parked(purgatory, [A], deadline=10.0)
    assert fetch.must_wait(9.9)
    assert not fetch.must_wait(10.0)
    assert fetch.is_over(10.0)
    purgatory.mark_changed([A])
    assert fetch.collect_changed() == {A}


def test_draining_ends_all_waits_and_those_to_come() -> None:
    purgatory = Purgatory[ParkedFetch]()
    fetches = {parked(purgatory, [A, B]) for _ in range(3)}
    assert purgatory.drain() == fetches
    late = parked(purgatory, [C])
    assert all(fetch.is_over(0.0) for fetch in {*fetches, late})


def test_a_removed_fetch_leaves_nothing() -> None:
    purgatory = Purgatory[ParkedFetch]()
    gone, stays = parked(purgatory, [A, B]), parked(purgatory, [A, B])
    assert (len(purgatory), purgatory.fetches) == (2, 2)
    remove(purgatory, gone)
    assert (len(purgatory), purgatory.fetches) == (2, 1)
    assert purgatory.mark_changed([A]) == [stays]
    assert purgatory.mark_changed([C]) == []
    remove(purgatory, stays)
    assert (len(purgatory), purgatory.fetches) == (0, 0)


def test_a_fetch_of_many_partitions_is_removed_in_steps() -> None:
    purgatory = Purgatory[ParkedFetch]()
    many = [PartitionId(1, bytes(16), number, 0) for number in range(1_000)]
    gone, stays = parked(purgatory, many), parked(purgatory, many[:1])
    steps = list(purgatory.removal(gone))
    assert purgatory.fetches == 1
    assert len(steps) == 5
    for number, step in enumerate(steps):
        assert len(purgatory) == 1_000 - max(0, 200 * number - 1)
        step()
    assert purgatory.mark_changed(many) == [stays]
