"""In a quiet period every client makes progress."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from tests.sim.checkers.run import Run
from tests.sim.checkers.violation import Violation
from tests.sim.history import Event


def check(run: Run) -> list[Violation]:
    """Clients that wait longer than the bound for a success while there is no fault."""
    succeeded: dict[str, list[float]] = defaultdict(list)
    for call in run.ended:
        if call.type == "ok":
            succeeded[call.who].append(call.end_t)
    found: list[Violation] = []
    for start, end in _periods(run):
        for client, (first, last) in _clients(run).items():
            begun, stopped = max(first["t"], start["t"]), min(last["t"], end["t"])
            found.extend(_gaps(run, client, succeeded[client], begun, stopped, (start, end)))
    return found


def _gaps(
    run: Run,
    client: str,
    successes: list[float],
    begun: float,
    stopped: float,
    period: tuple[Event, Event],
) -> Iterator[Violation]:
    bound, before = run.bounds.progress_s, begun
    for now in [*(t for t in successes if begun < t < stopped), stopped]:
        if now - before > bound:
            message = f"{client} had no success from {before:.3f} to {now:.3f}, more than {bound} s"
            yield Violation("no progress", message, (period[0]["n"], period[1]["n"]))
            return
        before = now


def _periods(run: Run) -> Iterator[tuple[Event, Event]]:
    start: Event | None = None
    for event in run.notes["quiet"]:
        if event["phase"] == "start":
            start = event
        elif start is not None:
            yield start, event
            start = None
    if start is not None:
        yield start, run.events[-1]


def _clients(run: Run) -> dict[str, tuple[Event, Event]]:
    """When each client has started and stopped."""
    found: dict[str, tuple[Event, Event]] = {}
    for event in run.notes["client"]:
        if event["phase"] == "start":
            found[event["who"]] = event, run.events[-1]
        elif event["who"] in found:
            found[event["who"]] = found[event["who"]][0], event
    return found
