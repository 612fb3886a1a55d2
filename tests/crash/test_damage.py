"""A part of the damage sweep; `make crash` runs all of it."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.crash.damage import World, build, cases, kind_of, thinned

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    return asyncio.run(build(tmp_path_factory.mktemp("original")))


def test_the_folder_has_something_of_everything(world: World) -> None:
    names = {str(path.relative_to(world.folder)) for path in world.folder.rglob("*")}
    kinds = {kind_of(case.path).name for case in cases(world, flips=0)}
    assert len(kinds) == 10
    assert len([name for name in names if name.startswith("wal/checkpoint-")]) == 2
    assert len(world.places) > 3


@pytest.mark.parametrize("part", range(4))
def test_damage_costs_what_it_hits(world: World, tmp_path: Path, part: int) -> None:
    for case in thinned(world, 40)[part::4]:
        case.run(world, tmp_path)
