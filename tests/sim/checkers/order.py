"""The records of a producer are in a partition in the order in which it has written them."""

from __future__ import annotations

from tests.sim.checkers.run import Run
from tests.sim.checkers.timeline import Call, Place, name_of
from tests.sim.checkers.violation import Violation


def check(run: Run) -> list[Violation]:
    """Reordered records, within one producer, epoch and partition."""
    found: list[Violation] = []
    last: dict[tuple[str, str, int, Place], tuple[int, str, Call]] = {}
    where, calls_of = run.logs.where, run.calls_of
    for call in run.calls["produce"]:
        for value in call["values"]:
            sightings = where.get(value, ())
            if len(sightings) != 1 or len(calls_of[value]) != 1:
                continue  # not there, or copies whose calls cannot be told apart
            place, offset, seen = sightings[0]
            key = call.org, call["producer"], call.get("epoch", 0), place
            before = last.get(key)
            if before is not None and before[0] >= offset:
                message = (
                    f"{name_of(place)} has {value!r} at {offset}, after {before[1]!r} "
                    f"at {before[0]}, by the producer {call['producer']}"
                )
                found.append(Violation("reordered", message, (before[2].n, call.n, seen)))
            last[key] = offset, value, call
    return found
