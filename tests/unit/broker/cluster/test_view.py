"""The moves that a broker decides on, from manifests and registrations alone."""

from __future__ import annotations

import pytest

from quafka_broker.chain.lease import LEASE_MS
from quafka_broker.chain.manifest import StoredManifest
from quafka_broker.cluster.placement import placement
from quafka_broker.cluster.view import SETTLED_SECONDS, Action, ClusterView, Move
from quafka_proto.chain_format import Owner, ShardManifest
from quafka_proto.cluster_format import Registration

ME, OTHER, GONE = Owner("a" * 64, "a:1"), Owner("c" * 64, "c:1"), Owner("d" * 64, "d:1")
SHARDS = 4
MINE = {shard for shard, to in enumerate(placement(SHARDS, [ME.node, OTHER.node])) if to == ME.node}
LEASE_SECONDS = LEASE_MS / 1000


def view_of(owner: Owner | None) -> ClusterView:
    """All shards have this owner."""
    view = ClusterView(ME, SHARDS)
    for shard in range(SHARDS):
        view.note(shard, StoredManifest(ShardManifest(shard, 1, owner, nonce="n"), "etag"))
    return view


def alive(view: ClusterView, now: float, *owners: Owner) -> None:
    wall_ms = round(now * 1000)
    found = [Registration(each.node, each.address, wall_ms, wall_ms) for each in owners]
    view.members.observe(found, now, wall_ms)


def test_shards_without_an_owner_are_taken_by_the_broker_that_they_are_placed_at() -> None:
    view = view_of(None)
    alive(view, 0.0, ME, OTHER)
    assert view.decide(0.0, {}, ()) == [Move(shard, Action.TAKE) for shard in sorted(MINE)]
    assert view.free == set(range(SHARDS))
    assert view.decide(1.0, {}, MINE) == [], "they move already"


def test_a_lease_that_is_not_renewed_ends() -> None:
    view = view_of(GONE)
    alive(view, 0.0, ME)
    assert view.decide(0.0, {}, ()) == []
    assert view.decide(LEASE_SECONDS - 0.1, {}, ()) == []
    assert view.until_lease_ends(LEASE_SECONDS - 0.1) == pytest.approx([0.1] * SHARDS)
    assert len(view.decide(LEASE_SECONDS, {}, ())) == SHARDS


def test_a_shard_moves_when_it_has_been_placed_elsewhere_for_a_while_one_at_a_time() -> None:
    view = view_of(ME)
    hosted = dict.fromkeys(range(SHARDS))
    alive(view, 0.0, ME)
    assert view.decide(0.0, hosted, ()) == []
    alive(view, 10.0, ME, OTHER)
    assert view.decide(10.0, hosted, ()) == []
    alive(view, 12.0, ME, OTHER)
    assert view.decide(10.0 + SETTLED_SECONDS - 0.1, hosted, ()) == []
    now = 10.0 + SETTLED_SECONDS
    first = min(set(range(SHARDS)) - MINE)
    assert view.decide(now, hosted, ()) == [Move(first, Action.HAND_OVER, OTHER.node)]
    assert view.decide(now, hosted, {first}) == []


def test_a_shard_that_cannot_be_served_is_given_up_at_once() -> None:
    view = view_of(ME)
    alive(view, 0.0, ME, OTHER)
    hosted = {0: "the disk is lost", 1: None}
    assert Move(0, Action.ABANDON, "the disk is lost") in view.decide(0.0, hosted, {2})


def test_a_broker_that_does_not_take_its_shards_loses_them_to_another() -> None:
    view = view_of(None)
    alive(view, 0.0, ME, OTHER)
    view.decide(0.0, {}, MINE)
    taken: list[Move] = []
    for second in range(1, 13):
        alive(view, float(second), ME, OTHER)
        taken += view.decide(float(second), {}, MINE)
    assert {move.shard for move in taken} == set(range(SHARDS)) - MINE


def test_a_shard_that_cannot_be_opened_is_left_to_others_for_a_minute() -> None:
    view = view_of(None)
    shard = min(MINE)
    view.decline(shard, "the folder is damaged", 0.0)
    assert not view.may_take(shard)
    assert view.problems == {shard: "the folder is damaged"}
    alive(view, 59.0, ME, OTHER)
    assert shard not in {move.shard for move in view.decide(59.0, {}, ())}
    alive(view, 61.0, ME, OTHER)
    assert shard in {move.shard for move in view.decide(61.0, {}, ())}


def test_after_a_pause_leases_are_observed_anew() -> None:
    view = view_of(GONE)
    view.decide(0.0, {}, ())
    view.forget()
    assert view.decide(100.0, {}, ()) == []
