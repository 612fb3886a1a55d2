"""Brokers on an object store are killed at every change of it: all promises hold."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.crash.store_explorer import Explorer, Recipe
from tests.support.store_folder import RecordedStore
from tests.support.suites import more

RECIPES = [
    *more([Recipe(1), Recipe(2, turns=16, skip=3)]),
    Recipe(3, trouble=0.2, skip=2),
]


@pytest.mark.parametrize("recipe", RECIPES, ids=str)
async def test_every_promise_survives(recipe: Recipe, tmp_path: Path) -> None:
    assert await Explorer(recipe, tmp_path).run() > 20


class ForgetsFiles(RecordedStore):
    """A store that loses some of the files that it has reported as written."""

    def left_after(self, operations: int) -> dict[str, bytes]:
        left = super().left_after(operations)
        return {path: data for path, data in left.items() if ".log-" not in path}


@pytest.mark.long
async def test_a_store_that_lies_is_found_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tests.crash.store_explorer.RecordedStore", ForgetsFiles)
    with pytest.raises(Exception, match=r".") as found:
        await Explorer(Recipe(1), tmp_path).run()
    assert any("operations" in note for note in found.value.__notes__)
