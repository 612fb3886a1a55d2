"""The log of each partition, as everybody together has seen it."""

from __future__ import annotations

from collections import defaultdict
from typing import Any, NamedTuple

from tests.sim.checkers.timeline import Call, Place, Timeline


class Conflict(NamedTuple):
    """Two values of one offset."""

    place: Place
    offset: int
    first: tuple[str, int]
    """The value that was seen first, and the event."""
    second: tuple[str, int]


class Log:
    """The values of a partition by offset, and the first event that shows each."""

    __slots__ = ("place", "seen", "values")

    def __init__(self, place: Place) -> None:
        """Begin with nothing."""
        self.place = place
        self.values: dict[int, str] = {}
        self.seen: dict[int, int] = {}


class Sighting(NamedTuple):
    """Where a value is."""

    place: Place
    offset: int
    event: int
    """The first one that shows it."""


class Logs:
    """All partitions: what acknowledgements and readers have shown."""

    def __init__(self, timeline: Timeline) -> None:
        """Gather the records of acknowledgements and answers."""
        self.of: dict[Place, Log] = {}
        self.conflicts: list[Conflict] = []
        for call in timeline.ok("produce", "read", "share_read"):
            records = _acknowledged(call) if call.op == "produce" else call.outcome["records"]
            if records:
                self._add(timeline.place(call), records, call.outcome["n"])
        self.where: dict[str, list[Sighting]] = defaultdict(list)
        """By value."""
        for place, log in self.of.items():
            for offset, value in log.values.items():
                self.where[value].append(Sighting(place, offset, log.seen[offset]))

    def _add(self, place: Place, records: list[Any], event: int) -> None:
        log = self.of.get(place)
        if log is None:
            log = self.of[place] = Log(place)
        values, seen = log.values, log.seen
        for record in records:
            offset, value = record[0], record[1]
            known = values.get(offset)
            if known is None:
                values[offset] = value
                seen[offset] = event
            elif known != value:
                first = known, seen[offset]
                self.conflicts.append(Conflict(place, offset, first, (value, event)))


def _acknowledged(call: Call) -> list[tuple[int, str]]:
    offset = call.answer("offset")
    return [] if offset is None else list(enumerate(call["values"], offset))
