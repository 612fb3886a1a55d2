"""The power is cut at every operation of random transactions."""

from __future__ import annotations

import pytest

from tests.crash.transactional_workload import Recipe, explore
from tests.support.suites import more


@pytest.mark.parametrize(
    "recipe",
    [
        *more([Recipe(1, turns=3), Recipe(2, turns=4, fates=1)]),
        Recipe(3, turns=3, fates=1, full=0.05),
        *more([Recipe(4, turns=3, fates=1, sync=0.02)]),
    ],
    ids=lambda recipe: f"seed{recipe.seed}",
)
async def test_no_cut_tears_a_transaction(recipe: Recipe) -> None:
    assert await explore(recipe) > 20
