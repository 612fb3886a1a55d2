"""Thousands of power cuts, each at another operation or with another outcome: all promises hold."""

from __future__ import annotations

import random

import pytest

from tests.crash.explorer import Recipe, explore
from tests.crash.fates import KINDS, Fate, after_power_cut
from tests.crash.recorded_disk import Inode, RecordedDisk, moments
from tests.support.suites import more

RECIPES = [
    *more([Recipe(4, turns=16, fates=1), Recipe(10, full=0.1)]),
    Recipe(20, turns=14, fates=1, full=0.03, sync=0.03),
]


@pytest.mark.parametrize("recipe", RECIPES, ids=str)
async def test_every_promise_survives(recipe: Recipe) -> None:
    assert await explore(recipe) > 20


class ForgetsSyncs(RecordedDisk):
    """A disk that reports file syncs as done without doing them."""

    def sync(self, inode: Inode) -> None:
        pass


class ForgetsNames(RecordedDisk):
    """A disk that reports folder syncs as done without doing them."""

    def sync_names(self) -> None:
        pass


@pytest.mark.long
@pytest.mark.parametrize("disk", [ForgetsSyncs, ForgetsNames])
async def test_a_disk_that_lies_is_found_out(disk: type[RecordedDisk]) -> None:
    """The disk and the checks of the tests above find known faults."""
    with pytest.raises(Exception, match=r".") as found:
        await explore(Recipe(0, fates=len(KINDS)), disk())
    assert any("operations" in note for note in found.value.__notes__)


def left_by(disk: RecordedDisk, kind: str, operations: int | None = None) -> dict[str, bytes]:
    """The files after a cut after a number of operations, or after all."""
    for moment in moments(disk):
        if moment.operations == (len(disk.operations) if operations is None else operations):
            rng = random.Random(1)
            return after_power_cut(moment, Fate(kind, rng), rng).files()
    raise AssertionError("there were fewer operations")


def test_synced_data_stays_and_other_data_may_be_lost_or_wrong() -> None:
    disk = RecordedDisk()
    file = disk.create("a.log")
    file.append([b"synced"])
    file.sync()
    assert left_by(disk, "lost") == {}
    disk.sync_names()
    file.append([b"-later"])
    assert left_by(disk, "lost") == {"a.log": b"synced"}
    assert left_by(disk, "kept") == {"a.log": b"synced-later"}
    assert left_by(disk, "zeroed") == {"a.log": b"synced" + bytes(6)}
    for kind in KINDS:
        assert left_by(disk, kind)["a.log"].startswith(b"synced"), kind
    file.append([b"-last"])
    assert left_by(disk, "last change only") == {"a.log": b"synced" + bytes(6) + b"-last"}


def test_a_rename_is_one_step_and_durable_with_the_folder() -> None:
    disk = RecordedDisk({"x": b"old"})
    file = disk.create("x.part")
    file.append([b"new"])
    file.sync()
    disk.rename("x.part", "x")
    assert left_by(disk, "lost") == {"x": b"old"}
    assert left_by(disk, "kept") == {"x": b"new"}
    disk.sync_names()
    assert left_by(disk, "lost") == {"x": b"new"}
    disk.remove("x")
    assert left_by(disk, "names lost") == {"x": b"new"}
    assert left_by(disk, "kept") == {}
