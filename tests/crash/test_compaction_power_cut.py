"""The power is cut at every operation of random compactions."""

from __future__ import annotations

import pytest

from tests.crash.compaction_workload import Recipe, explore
from tests.support.suites import more


@pytest.mark.parametrize(
    "recipe",
    [
        Recipe(1, turns=8),
        *more([Recipe(2, turns=7, second_cuts=0.1), Recipe(3, turns=9, full=0.05)]),
    ],
    ids=lambda recipe: f"seed{recipe.seed}",
)
async def test_no_cut_loses_the_last_value_of_a_key(recipe: Recipe) -> None:
    assert await explore(recipe) > 20
