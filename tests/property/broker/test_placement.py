"""Placement of shards: even, the same everywhere, and still when brokers come and go."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from quafka_broker.cluster.placement import NOBODY, placement, ranked

NODES = st.sets(st.text("abcdef0123456789", min_size=4, max_size=8), min_size=1, max_size=8)
SHARDS = st.integers(1, 64)
PINNED = "bacbcbac"


@given(SHARDS, NODES)
def test_no_broker_has_more_than_its_share(shards: int, nodes: set[str]) -> None:
    found = placement(shards, nodes)
    assert set(found) <= nodes
    assert max(Counter(found).values()) <= -(-shards // len(nodes))
    assert found == placement(shards, sorted(nodes, reverse=True))


@given(SHARDS, NODES)
def test_a_broker_that_goes_moves_few_shards_of_others(shards: int, nodes: set[str]) -> None:
    if len(nodes) < 2:
        return
    gone = min(nodes)
    before, after = placement(shards, nodes), placement(shards, nodes - {gone})
    moved = sum(b not in (a, gone) for b, a in zip(before, after, strict=True))
    assert moved <= shards - before.count(gone)
    assert gone not in after


@given(SHARDS, NODES)
def test_a_shard_that_was_declined_goes_to_another_broker(shards: int, nodes: set[str]) -> None:
    first = placement(shards, nodes)[0]
    found = placement(shards, nodes, {(0, first)})
    assert found[0] != first
    assert (found[0] == NOBODY) == (len(nodes) == 1)


def test_without_brokers_nobody_has_a_shard() -> None:
    assert placement(3, ()) == [NOBODY] * 3


def test_the_order_never_changes() -> None:
    """Brokers of several versions must agree."""
    assert placement(8, ["a" * 64, "b" * 64, "c" * 64]) == [node * 64 for node in PINNED]
    assert ranked(0, ["x", "y", "z"])[0] == ranked(0, ["z", "y", "x"])[0]
