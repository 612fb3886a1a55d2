"""Maps of shards that arrive in any order, and routes over shards."""

from __future__ import annotations

import pytest

from quafka_gateway.cluster.routes import OrgRoutes, are_shards, parse
from quafka_gateway.cluster.shard_places import ShardPlaces
from quafka_mesh_ops.ops.cluster import ClusterBroker, ClusterMapResp, ShardOwner
from quafka_mesh_ops.shards import Hashed, shard_name, shard_number, shard_of

NOBODY = ("", "")
A, B = ("a" * 64, "a:1"), ("b" * 64, "b:1")


def a_map(*shards: tuple[int, tuple[str, str]], brokers: tuple[str, ...] = ()) -> ClusterMapResp:
    owners = [ShardOwner(epoch, *owner) for epoch, owner in shards]
    there = [ClusterBroker(each * 64, f"{each}:1") for each in brokers]
    return ClusterMapResp("cluster", 1, owners, there)


def test_a_later_owner_wins_whatever_comes_first() -> None:
    places = ShardPlaces(a_map((1, A), (1, A)))
    assert places.learn(a_map((2, B), (1, A))) == [0]
    assert places.learn(a_map((1, A), (1, A))) == []
    assert [owner.address for owner in places] == ["b:1", "a:1"]
    assert places.moves == 1


def test_a_release_is_later_than_the_ownership_that_it_ends() -> None:
    places = ShardPlaces(a_map((1, A)))
    assert places.learn(a_map((1, NOBODY))) == [0]
    assert places.learn(a_map((1, A))) == []
    assert places.learn(a_map((2, A))) == [0]


def test_a_map_of_another_cluster_is_refused() -> None:
    places = ShardPlaces(a_map((1, A)))
    with pytest.raises(ValueError, match="is not 'cluster' with 1"):
        places.learn(a_map((1, A), (1, A)))


def test_all_brokers_of_a_map_are_known() -> None:
    places = ShardPlaces(a_map((1, A), (1, A), brokers=("b",)))
    assert places.nodes() == {"a" * 64, "b" * 64}
    assert list(places.addresses()) == ["b:1", "a:1"]


def test_topics_are_hashed_and_rules_pin_them() -> None:
    routes = OrgRoutes(parse("7/pinned=shard:3,logs.*=shard:1"), 7, 8)
    assert routes.brokers == tuple(map(shard_name, range(8)))
    assert routes.broker_of("pinned") == 3
    assert routes.broker_of("logs.web") == 1
    names = [f"t{number}" for number in range(10)]
    assert [OrgRoutes((), 1, 8).broker_of(name) for name in names] == [4, 7, 1, 2, 0, 4, 4, 5, 0, 4]
    assert OrgRoutes((), 7, 8).broker_of("\ud800") in range(8)


def test_the_hash_never_changes() -> None:
    """It says where topics are, of any age."""
    homes = [shard_of(Hashed.HOME, org, "", 8) for org in range(1, 10)]
    assert homes == [3, 4, 1, 3, 5, 0, 0, 5, 4]
    assert [OrgRoutes((), org, 8).home for org in range(1, 10)] == homes


def test_groups_and_transactional_ids_are_hashed_or_at_home() -> None:
    at_home, by_name = OrgRoutes((), 1, 8), OrgRoutes((), 1, 8, by_name=True)
    names = [f"n{number}" for number in range(10)]
    assert {at_home.coordinator_of_group(name) for name in names} == {at_home.home}
    assert {at_home.coordinator_of_transaction(name) for name in names} == {at_home.home}
    assert at_home.coordinators(Hashed.GROUP) == [at_home.home]
    groups = [by_name.coordinator_of_group(name) for name in names]
    assert groups == [3, 4, 1, 3, 4, 6, 0, 0, 7, 7]
    ids = [by_name.coordinator_of_transaction(name) for name in names]
    assert ids == [2, 2, 0, 0, 3, 0, 3, 2, 6, 7]
    assert by_name.coordinators(Hashed.TRANSACTION) == range(8)


def test_rules_pin_groups_and_transactional_ids() -> None:
    rules = parse("group:a*=shard:1,7/transaction:a=shard:2,a=shard:3")
    assert parse(",".join(map(str, rules))) == rules
    for by_name in (False, True):
        routes = OrgRoutes(rules, 7, 8, by_name=by_name)
        found = routes.coordinator_of_group("a"), routes.coordinator_of_transaction("a")
        assert (*found, routes.broker_of("a")) == (1, 2, 3)
    assert OrgRoutes(rules, 7, 8).coordinators(Hashed.GROUP) == sorted(
        {1, shard_of(Hashed.HOME, 7, "", 8)}
    )
    with pytest.raises(ValueError, match="group"):
        parse("group:a=b:1,*=a:1")


def test_rules_for_shards_need_no_last_one_and_are_not_mixed() -> None:
    assert are_shards(parse("a=shard:0,b=shard:12"))
    assert not are_shards(parse("a=shard:0,*=b:1"))
    for text in ("shard:", "shard:01", "shard:99999", "shard:-1", "x:1", "0" * 64):
        assert shard_number(text) is None
