"""One offset has one value, for ever; watermarks and what they allow."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator

from tests.sim.checkers.largest import Largest
from tests.sim.checkers.run import Run
from tests.sim.checkers.timeline import Call, Place, name_of
from tests.sim.checkers.violation import Violation


def check(run: Run) -> list[Violation]:
    """Disagreements of readers about offsets, and answers that contradict themselves."""
    return [*_disagreements(run), *_answers(run), *_deleted(run)]


def _disagreements(run: Run) -> Iterator[Violation]:
    for place, offset, (first, shown), (second, later) in run.logs.conflicts:
        message = f"{name_of(place)} has {first!r} and {second!r} at offset {offset}"
        yield Violation("offsets disagree", message, (shown, later))


def _answers(run: Run) -> Iterator[Violation]:
    for call in run.ok("read"):
        committed = call["isolation"] == "read_committed"
        answer = call.outcome
        records = answer["records"]
        first, high = call.get("position"), answer.get("high_watermark")
        stable, start = answer.get("last_stable"), answer.get("log_start")
        if (wrong := _watermarks(first, high, stable, start)) is not None:
            yield _of(run, call, "watermarks", wrong)
        if not records:
            continue
        low = max(0 if first is None else first, start or 0)
        last, end = records[-1][0], answer.get("next")
        if records[0][0] < low:
            message = f"offset {records[0][0]} is below the position or the log start, {low}"
            yield _of(run, call, "below the start", message)
        if end is not None and last >= end:
            yield _of(run, call, "order", f"offset {last} is not before the next position, {end}")
        if high is not None and last >= high:
            message = f"offset {last} is not below the high watermark {high}"
            yield _of(run, call, "above the high watermark", message)
        if committed and stable is not None and last >= stable:
            message = f"offset {last} is not below the last stable offset {stable}"
            yield _of(run, call, "above the last stable offset", message)
        yield from _steps(run, call)


def _steps(run: Run, call: Call) -> Iterator[Violation]:
    before = -1
    for record in call.outcome["records"]:
        if record[0] <= before:
            yield _of(run, call, "order", f"offset {record[0]} comes after {before}")
            return
        before = record[0]


def _watermarks(
    first: int | None, high: int | None, stable: int | None, start: int | None
) -> str | None:
    if high is not None and stable is not None and stable > high:
        return f"the last stable offset {stable} is above the high watermark {high}"
    if high is not None and start is not None and start > high:
        return f"the log start {start} is above the high watermark {high}"
    if first is not None and high is not None and first > high:
        return f"position {first} is above the high watermark {high} and was answered"
    return None


def _deleted(run: Run) -> Iterator[Violation]:
    """DeleteRecords alone moves the log start, at once, and for every reader."""
    deletes: dict[Place, _Deletes] = defaultdict(_Deletes)
    for call in run.calls["delete_records"]:
        deletes[run.place(call)].asked_for(call)
    for call in run.ok("delete_records"):
        deletes[run.place(call)].done(call)
    for call in run.ok("read", "share_read"):
        place = run.place(call)
        if place[:2] in run.deleted:
            continue
        of_place, start = deletes.get(place, _NO_DELETES), call.answer("log_start", 0)
        if start and start > of_place.asked.before(call.end) and not run.may_expire(place):
            message = f"the log start is {start}, and nobody has deleted so much"
            yield _of(run, call, "log start", message)
        records = call.outcome["records"]
        if records and call.get("reader", "consumer") == "consumer":  # the others stand on cuts
            first = records[0][0]
            if first < of_place.log_start.before(call.n):
                delete = next(d for d in of_place.calls if d.answer("log_start", 0) > first)
                message = f"{name_of(place)}: {first} was deleted before this was asked for"
                yield Violation("deleted", message, (*delete.events, *call.events))


class _Deletes:
    """The calls of DeleteRecords for a partition."""

    def __init__(self) -> None:
        self.asked = Largest()
        """Offsets that the log start may have, from the call on."""
        self.log_start = Largest()
        """Offsets that it has at least, from the outcome on."""
        self.calls: list[Call] = []

    def asked_for(self, call: Call) -> None:
        """Add a call; -1 is the high watermark, whatever it was."""
        if call.type != "fail":
            self.asked.add(call.n, math.inf if call["offset"] == -1 else call["offset"])

    def done(self, call: Call) -> None:
        """Add a call that was done."""
        self.log_start.add(call.end, call.answer("log_start", 0))
        self.calls.append(call)


_NO_DELETES = _Deletes()


def _of(run: Run, call: Call, name: str, message: str) -> Violation:
    return Violation(name, f"{name_of(run.place(call))}: {message}", call.events)
