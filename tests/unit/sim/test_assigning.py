"""What the leader of a classic group assigns."""

from __future__ import annotations

from quafka_proto.consumer_protocol import subscription_of
from tests.sim.clients.assigning import assign, claims, subscription
from tests.sim.clients.job import Place

_PLACES: list[Place] = [("a", 0), ("a", 1), ("a", 2), ("b", 0), ("b", 1)]
_NOTHING = (-1, list[Place]())


def test_an_eager_group_shares_everything_out() -> None:
    found = assign(_PLACES, {"x": _NOTHING, "y": _NOTHING}, cooperative=False)
    assert sorted(found["x"] + found["y"]) == _PLACES
    assert sorted(map(len, found.values())) == [2, 3]


def test_a_member_that_must_give_up_goes_first() -> None:
    alone = {"x": (1, _PLACES), "y": _NOTHING}
    first = assign(_PLACES, alone, cooperative=True)
    assert len(first["x"]) == 3
    assert first["y"] == []
    second = assign(_PLACES, {"x": (2, first["x"]), "y": _NOTHING}, cooperative=True)
    assert second["x"] == first["x"]
    assert sorted(second["x"] + second["y"]) == _PLACES


def test_the_latest_generation_has_a_partition_that_two_members_claim() -> None:
    both = {"x": (3, _PLACES[:1]), "y": (4, _PLACES[:1])}
    found = assign(_PLACES[:1], both, cooperative=True)
    assert found == {"x": [], "y": _PLACES[:1]}


def test_metadata_is_read_back_and_understood_by_others() -> None:
    metadata = subscription(["a", "b"], {("b", 1), ("a", 0), ("b", 0)}, 7)
    assert claims(metadata) == (7, [("a", 0), ("b", 0), ("b", 1)])
    known = subscription_of(metadata)
    assert known.topics == {"a", "b"}
    assert known.owned == {"a": [0], "b": [0, 1]}
