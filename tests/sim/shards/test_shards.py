"""Hundreds of simulated runs, and defects that the simulation must find; see `make sim`."""

from __future__ import annotations

import pytest

from quafka_proto.errors import Malformed
from tests.sim.shards.mutations import MUTATIONS
from tests.sim.shards.world import simulate
from tests.support.suites import more

SEEDS = 200
TRIES = 150
"""Most of the defects are found within ten seeds."""


@pytest.mark.parametrize("first", [0, *more(range(40, SEEDS, 40))])
def test_nothing_is_lost_doubled_or_reordered(first: int) -> None:
    results = [simulate(seed) for seed in range(first, first + 40)]
    assert [result for result in results if result.violations] == []
    assert sum(result.takeovers for result in results) > 40
    assert sum(result.acknowledged for result in results) > 400
    assert sum(result.transactions for result in results) > 200


def test_a_seed_is_the_same_run_each_time() -> None:
    assert simulate(3) == simulate(3)


@pytest.mark.parametrize("defect", MUTATIONS)
def test_a_defect_is_found(defect: str) -> None:
    with MUTATIONS[defect]():
        assert any(_finds(seed) for seed in range(TRIES))


def _finds(seed: int) -> bool:
    try:
        return bool(simulate(seed).violations)
    except (AssertionError, Malformed):  # the shard cannot be taken over any more
        return True
