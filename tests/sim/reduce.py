"""Reduces the schedule of a failing run to few faults that still find the same violation."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from tests.sim.faults import Fault
from tests.sim.processes import play
from tests.sim.world import Result

Fails = Callable[[Sequence[Fault]], bool]


def reduced(result: Result, most_runs: int = 120) -> list[Fault]:
    """A shorter schedule with a violation of the same name.

    Removing a fault changes all that follows, so another schedule may be reduced further than this.
    """
    name = name_of(result.violations[0])

    def fails(schedule: Sequence[Fault]) -> bool:
        again = play(result.seed, schedule)
        return any(name_of(violation) == name for violation in again.violations)

    return shrink(result.schedule, fails, most_runs)


def shrink(schedule: Sequence[Fault], fails: Fails, most_runs: int) -> list[Fault]:
    """Remove halves, quarters and so on of a schedule while it fails (delta debugging), and then
    shorten the faults that are left."""
    left, runs = list(schedule), 0
    size = max(1, len(left) // 2)
    while left and runs < most_runs:
        removed_any = False
        for start in range(0, len(left), size):
            without = left[:start] + left[start + size :]
            runs += 1
            if runs <= most_runs and fails(without):
                left, removed_any = without, True
                break
        if not removed_any:
            if size == 1:
                break
            size = max(1, size // 2)
    for at, fault in enumerate(left):
        shorter = replace(fault, seconds=round(fault.seconds / 4, 3))
        runs += 1
        if runs <= most_runs and fails([*left[:at], shorter, *left[at + 1 :]]):
            left[at] = shorter
    return left


def name_of(violation: str) -> str:
    """The kind of a violation: its text up to the first colon."""
    return violation.partition(":")[0]
