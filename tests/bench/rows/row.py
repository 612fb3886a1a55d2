"""A row of the table that compares servers, and how it is measured and printed."""

from __future__ import annotations

import statistics
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tests.bench.peers import Server, UnavailableError

OURS = ("quafka-fsynced", "quafka")
"""Quafka's columns. The first that is measured is the one that ratios are of."""
THEIRS = "kafka"
MISSING = "–"

Figures = tuple[float, ...]


@dataclass(frozen=True)
class Row:
    """One comparison: several figures of each server, each measured in turns."""

    group: str
    label: str
    units: tuple[str, ...]
    measure: Callable[[Server, float, int], Figures]
    """Takes a server, the length of a timed run in seconds, and the number of the round."""
    prepare: Callable[[Server], None] | None = None
    """Runs once per server, before the first round."""
    fsync_matters: bool = True
    """Whether both of Quafka's columns are measured, or only the first."""
    servers: tuple[str, ...] = (*OURS, THEIRS)

    @property
    def name(self) -> str:
        """What `--only` selects by."""
        return f"{self.group}: {self.label}"


def table(rows: Sequence[Row], servers: Sequence[Server], seconds: float, rounds: int) -> None:
    """Measure the rows, and print each as a line of a Markdown table as soon as it is measured."""
    names = [server.name for server in servers]
    print(f"\n| medians of {rounds} | {' | '.join(names)} | ratio to {THEIRS} |")
    print(f"| --- |{' ---: |' * (len(names) + 1)}", flush=True)
    for row in rows:
        found = _medians(row, servers, seconds, rounds)
        cells = [_cell(found.get(name)) for name in names]
        label = f"{row.label}: {' / '.join(row.units)}"
        print(f"| {label} | {' | '.join(cells)} | {_ratio(found)} |", flush=True)


def _medians(
    row: Row, servers: Sequence[Server], seconds: float, rounds: int
) -> dict[str, Figures]:
    measured = _measured_by(row, servers)
    found: dict[str, list[Figures]] = {}
    for number in range(rounds):
        for server in list(measured):
            try:
                if row.prepare is not None and not number:
                    row.prepare(server)
                found.setdefault(server.name, []).append(row.measure(server, seconds, number))
            except (AssertionError, OSError, RuntimeError, ValueError, UnavailableError) as e:
                print(f"{row.name} of {server.name} is not measured: {e}", file=sys.stderr)
                measured.remove(server)
                found.pop(server.name, None)
    return {
        name: tuple(statistics.median(column) for column in zip(*figures, strict=True))
        for name, figures in found.items()
    }


def _measured_by(row: Row, servers: Sequence[Server]) -> list[Server]:
    measured = [server for server in servers if server.name in row.servers]
    if row.fsync_matters:
        return measured
    ours = [server for server in measured if server.name in OURS]
    return [server for server in measured if server not in ours[1:]]


def _cell(figures: Figures | None) -> str:
    return MISSING if figures is None else " / ".join(map(number, figures))


def _ratio(found: dict[str, Figures]) -> str:
    ours = next((found[name] for name in OURS if name in found), None)
    theirs = found.get(THEIRS)
    if ours is None or theirs is None:
        return MISSING
    return " / ".join(
        number(own / other) if other else MISSING for own, other in zip(ours, theirs, strict=True)
    )


def number(value: float) -> str:
    """Three significant digits, and no digit of a whole number lost."""
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"
