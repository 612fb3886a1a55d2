"""Reads show what was acknowledged before them.

The rules are in docs/configuration.md, "Which writes a read sees".
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterator

from tests.sim.checkers.run import Run
from tests.sim.checkers.timeline import Call, Place, name_of
from tests.sim.checkers.violation import Violation


def check(run: Run) -> list[Violation]:
    """Stale reads of records and of the ends of partitions; watermarks that go back."""
    ends = _all_ends(run)
    return [*_fetches(run, ends), *_list_offsets(run, ends)]


class _Growing:
    """The largest of the values that were reported before a moment."""

    def __init__(self) -> None:
        self._moments: list[float] = []
        self._largest: list[tuple[int, int]] = []

    def add(self, moment: float, end: int, event: int) -> None:
        """Add a value; moments never go back."""
        if not self._largest or end > self._largest[-1][0]:
            self._moments.append(moment)
            self._largest.append((end, event))

    def before(self, moment: float) -> tuple[int, int]:
        """The value and the event that shows it; (0, -1) if there is none."""
        index = bisect_left(self._moments, moment)
        return self._largest[index - 1] if index else (0, -1)


class _Ends:
    """How far a partition goes at least, as clients were told."""

    def __init__(self) -> None:
        self.acknowledged = _Growing()
        """By events: produces through any gateway."""
        self.through: dict[str, _Growing] = defaultdict(_Growing)
        """By events: produces through one gateway."""
        self.told: dict[tuple[str, str | None], _Growing] = defaultdict(_Growing)
        """By events: the watermarks that one reader has had from one gateway."""
        self.known = _Growing()
        """By time: acknowledgements and watermarks."""


def _all_ends(run: Run) -> dict[Place, _Ends]:
    found: dict[Place, _Ends] = defaultdict(_Ends)
    for call in run.ok("produce", "read"):
        place = run.place(call)
        if place[:2] in run.deleted:
            continue
        ends, now = found[place], call.outcome["n"]
        if call.op == "produce":
            if (offset := call.answer("offset")) is None:
                continue
            end = offset + len(call["values"])
            ends.acknowledged.add(now, end, now)
            if call.gateway is not None:
                ends.through[call.gateway].add(now, end, now)
        elif (high := call.answer("high_watermark")) is not None:
            end = high
            ends.told[call.who, call.gateway].add(now, end, now)
        else:
            continue
        ends.known.add(call.end_t, end, now)
    return found


def _fetches(run: Run, all_ends: dict[Place, _Ends]) -> Iterator[Violation]:
    for call in run.ok("read"):
        place = run.place(call)
        if place not in all_ends:
            continue
        ends, reader = all_ends[place], call.get("reader", "consumer")
        if reader == "live" and call["isolation"] == "read_uncommitted":
            due, shown = ends.acknowledged.before(call.n)
            if (end := call.answer("next")) is not None and end < due:
                yield _stale(place, call, f"the live log ends at {end}", due, shown)
        high = call.answer("high_watermark")
        if reader != "consumer" or high is None or run.may_be_ousted(call.end_t):
            continue
        for due, shown in _due(ends, call, run.bounds.freshness_s):
            if high < due:
                yield _stale(place, call, f"the high watermark is {high}", due, shown)
                break


def _due(ends: _Ends, call: Call, freshness_s: float) -> Iterator[tuple[int, int]]:
    gateway = call.gateway
    if gateway is not None and gateway in ends.through:
        yield ends.through[gateway].before(call.n)
    if (call.who, gateway) in ends.told:
        yield ends.told[call.who, gateway].before(call.n)
    yield ends.known.before(call.t - freshness_s)


def _list_offsets(run: Run, all_ends: dict[Place, _Ends]) -> Iterator[Violation]:
    """ListOffsets sees each write that was answered, through whichever gateway."""
    for call in run.ok("list_offsets"):
        if run.may_be_ousted(call.end_t):
            continue
        if call["at"] == "latest" and (place := run.place(call)) in all_ends:
            due, shown = all_ends[place].acknowledged.before(call.n)
            if call.outcome["offset"] < due:
                yield _stale(place, call, f"ListOffsets finds {call.outcome['offset']}", due, shown)


def _stale(place: Place, call: Call, found: str, due: int, shown: int) -> Violation:
    message = f"{name_of(place)}: {found}, and event {shown} has shown {due} before"
    return Violation("stale", message, (shown, *call.events))
