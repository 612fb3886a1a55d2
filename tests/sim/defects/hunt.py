"""Plays seeds with a defect until one of them finds it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.sim.defects import DEFECTS
from tests.sim.processes import play
from tests.sim.recipe import recipe_of
from tests.sim.world import World


@dataclass(frozen=True)
class Found:
    """How a defect was found.

    Attributes:
        seed: the one that found it; None if none has.
        seeds: how many were looked at, with those that cannot show the defect and were not played.
        cpu: seconds of all of them.
        violation: what the run has reported.
    """

    seed: int | None
    seeds: int
    cpu: float
    violation: str = ""


@dataclass
class Hunt:
    """Looks for defects. A seed that fails without the defect does not count."""

    _worlds: dict[int, World] = field(default_factory=dict[int, World])
    _sound: dict[int, bool] = field(default_factory=dict[int, bool])

    def find(self, name: str, seeds: Iterable[int]) -> Found:
        """Play seeds until one finds the defect."""
        defect = DEFECTS[name]
        count, cpu = 0, 0.0
        for count, seed in enumerate(seeds, 1):
            if not defect.may_show_in(self._world(seed)):
                continue
            result = play(seed, setup=defect.plant)
            cpu += result.cpu
            if result.violations and self.is_sound(seed):
                return Found(seed, count, cpu, result.violations[0])
        return Found(None, count, cpu)

    def is_sound(self, seed: int) -> bool:
        """Whether a seed finds nothing without a defect; played once."""
        if seed not in self._sound:
            self._sound[seed] = not play(seed).violations
        return self._sound[seed]

    def _world(self, seed: int) -> World:
        """The shape of a run, which is not played here."""
        if seed not in self._worlds:
            with TemporaryDirectory() as folder:
                self._worlds[seed] = World(recipe_of(seed), Path(folder), None)
        return self._worlds[seed]
