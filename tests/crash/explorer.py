"""Cuts the power at every operation of a random workload, and checks the recovered state."""

from __future__ import annotations

import random
from dataclasses import dataclass

from tests.crash.fates import KINDS, Fate, after_power_cut
from tests.crash.recorded_disk import Faults, Moment, RecordedDisk, moments
from tests.crash.verify import verify
from tests.crash.workload import History, Workload
from tests.support.no_threads import no_threads
from tests.unit.broker.tools import running_state

SEGMENT_BYTES = 3_000
CHECKPOINT_BYTES = 2_000
EVENTS_KEPT = 5


@dataclass(frozen=True)
class Recipe:
    """The parameters of one exploration; the same recipe explores (nearly) the same states again.

    Attributes:
        turns: the steps of the workload.
        fates: the outcomes tried at each moment.
        full: one in this number of writes finds the disk full.
        sync: one in this number of syncs fails, which ends the log.
        second_cuts: one in this number of states has its recovery cut, too.
    """

    seed: int
    turns: int = 8
    fates: int = 2
    full: float = 0.0
    sync: float = 0.0
    second_cuts: float = 0.1


async def record(recipe: Recipe, disk: RecordedDisk) -> History:
    """Run the workload."""
    rng = random.Random(recipe.seed)
    workload = Workload(rng, disk)
    async with running_state(
        disk, segment_bytes=SEGMENT_BYTES, checkpoint_bytes=CHECKPOINT_BYTES
    ) as state:
        state.journal.events_kept = EVENTS_KEPT
        disk.faults = Faults(rng, recipe.full, recipe.sync)
        await workload.run(state, recipe.turns)
    return workload.history


async def explore(recipe: Recipe, disk: RecordedDisk | None = None) -> int:
    """Run the workload on a disk, check the state after every cut; returns the number of states.

    Raises:
        AssertionError: a promise was broken; the notes have the cut.
    """
    disk = disk or RecordedDisk()
    history = await record(recipe, disk)
    rng = random.Random(recipe.seed + 1)
    checked = 0
    for moment in moments(disk):
        # The last cut with every fate: a failed log gives no answers after its last ones.
        last = moment.operations == len(disk.operations)
        for turn in range(len(KINDS) if last else recipe.fates):
            kind = KINDS[(moment.operations * recipe.fates + turn) % len(KINDS)]
            try:
                with no_threads():
                    checked += await _cut(moment, kind, rng, history, recipe)
            except BaseException as e:
                before = disk.operations[max(0, moment.operations - 3) : moment.operations]
                done = [str(operation)[:200] for operation in before]
                e.add_note(f"{recipe}, {moment.operations} operations, {kind}; the last: {done}")
                raise
    return checked


async def _cut(
    moment: Moment, kind: str, rng: random.Random, history: History, recipe: Recipe
) -> int:
    left = after_power_cut(moment, Fate(kind, rng), rng)
    async with running_state(left, segment_bytes=SEGMENT_BYTES) as state:
        recovered = len(left.operations)
        await verify(state, history, moment.operations)
    checked = 1
    if rng.random() < recipe.second_cuts:
        for second in moments(left):
            if second.operations > recovered:
                break
            twice = after_power_cut(second, Fate(rng.choice(KINDS), rng), rng)
            async with running_state(twice, segment_bytes=SEGMENT_BYTES) as state:
                await verify(state, history, moment.operations)
            checked += 1
    return checked
