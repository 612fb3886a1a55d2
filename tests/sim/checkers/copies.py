"""What is read was written: there, before, and no more often."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tests.sim.checkers.logs import Sighting
from tests.sim.checkers.run import Run
from tests.sim.checkers.timeline import Call, name_of
from tests.sim.checkers.violation import Violation


def check(run: Run) -> list[Violation]:
    """Invented and doubled records, and those whose produce has failed."""
    found: list[Violation] = []
    calls_of = run.calls_of
    for value, sightings in run.logs.where.items():
        calls = calls_of.get(value, [])
        if not (len(calls) == len(sightings) == 1 and _is_right(calls[0], sightings[0])):
            found.extend(_value(value, sightings, calls))
    return found


def _is_right(call: Call, sighting: Sighting) -> bool:
    """The usual case, fast: one call and one record where it belongs."""
    org, topic, partition, _ = sighting.place
    asked = call.asked
    return (
        call.type != "fail"
        and call.n < sighting.event
        and (asked["topic"], asked["partition"], call.org) == (topic, partition, org)
    )


def _value(value: str, sightings: Sequence[Sighting], calls: Sequence[Call]) -> Iterator[Violation]:
    events = tuple(sighting.event for sighting in sightings)
    place = sightings[0].place
    where = f"{value!r} is in {name_of(place)} at {sightings[0].offset}"
    if not calls:
        yield Violation("invented", f"{where}, and nobody has written it", events)
        return
    if any(not _written_to(sighting, calls) for sighting in sightings):
        yield Violation("invented", f"{where}, and was written elsewhere", (calls[0].n, *events))
    if events[0] < calls[0].n:
        yield Violation("invented", f"{where} before it was written", (*events, calls[0].n))
    applied = sum(call.type != "fail" for call in calls)
    if not applied:
        message = f"{where}, and its produce has failed"
        yield Violation("failed and there", message, (*calls[0].events, *events))
    elif len(sightings) > applied:
        others = ", ".join(str(sighting.offset) for sighting in sightings[1:])
        message = f"{where} and again at {others}; it was written {_times(applied)}"
        yield Violation("doubled", message, (*calls[0].events, *events))


def _written_to(sighting: Sighting, calls: Sequence[Call]) -> bool:
    return any((call.org, call["topic"], call["partition"]) == sighting.place[:3] for call in calls)


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count} times"
