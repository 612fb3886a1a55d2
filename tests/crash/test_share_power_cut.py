"""The power is cut at every operation of random share groups."""

from __future__ import annotations

import pytest

from tests.crash.share_workload import Recipe, explore
from tests.support.suites import more


@pytest.mark.parametrize(
    "recipe",
    [Recipe(1), *more([Recipe(2, turns=14), Recipe(3, full=0.05), Recipe(4, sync=0.02)])],
    ids=lambda recipe: f"seed{recipe.seed}",
)
async def test_no_cut_delivers_an_ended_record_or_loses_one(recipe: Recipe) -> None:
    assert await explore(recipe) > 20
