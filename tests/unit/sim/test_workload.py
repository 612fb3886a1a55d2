"""Workloads that seeds draw."""

from __future__ import annotations

from random import Random

from tests.sim.recipe import recipe_of
from tests.sim.workload import Workload

_KINDS = {
    "administrator",
    "consumer",
    "copier",
    "live",
    "offsets",
    "plain",
    "producer",
    "reader",
    "rights",
    "sharer",
    "snapshots",
    "transactions",
}


def _workloads(seeds: int) -> list[Workload]:
    return [Workload(Random(f"{seed} workload"), recipe_of(seed)) for seed in range(seeds)]


def test_a_hundred_seeds_have_every_kind_of_client() -> None:
    kinds = {name.rpartition("-")[0] for each in _workloads(100) for name in each.programs}
    assert kinds == _KINDS


def test_what_programs_need_is_there() -> None:
    for each in _workloads(100):
        names = [topic.name for topic in each.plan.topics]
        assert len(set(names)) == len(names)
        assert all(0.05 < each.pace_of(name) < 10 for name in each.programs)
        passing = [topic for topic in each.plan.topics if not topic.lasts]
        assert not passing or "administrator-1" in each.programs
        assert {name for topics in each.plan.groups.values() for name in topics} <= set(names)


def test_each_topic_has_a_route() -> None:
    (workload,) = _workloads(1)
    addresses = ["10.0.0.1:7000", "10.0.0.2:7000"]
    table = workload.routes(addresses)
    assert [route.broker for route in table] == addresses
    assert table[-1].pattern == "*"
