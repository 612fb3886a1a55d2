"""The figures in docs/reliability.md: each command writes its own, and the page shows them.

`docs/reliability.json` has the last run of each command; `python -m tests.support.figures` writes
the page's tables from it, and so does every command that is run with `--record`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

DOCS = Path(__file__).parents[2] / "docs"
FILE, PAGE = DOCS / "reliability.json", DOCS / "reliability.md"

Figures = Mapping[str, Any]


def record(command: str, figures: Figures) -> None:
    """Replace the figures of a command, and write the page again."""
    known = read()
    known[command] = dict(figures)
    FILE.write_text(json.dumps(known, indent=1, sort_keys=True) + "\n")
    write_page()


def read() -> dict[str, Any]:
    """The figures of all commands."""
    found: dict[str, Any] = json.loads(FILE.read_text()) if FILE.exists() else {}
    return found


def write_page() -> None:
    """Put the tables into the page."""
    PAGE.write_text(rendered(PAGE.read_text()))


def rendered(page: str) -> str:
    """A page with its tables made from the figures. A table stands between two comments."""
    figures = read()
    for name, table in TABLES.items():
        if name in figures:
            begin, end = f"<!-- {name} -->", f"<!-- end of {name} -->"
            pattern = re.escape(begin) + ".*?" + re.escape(end)
            text = "\n".join([begin, *table(figures[name]), end])
            page = re.sub(pattern, lambda _, text=text: text, page, flags=re.DOTALL)  # type: ignore[misc]
    return page


def _simulation(figures: Figures) -> Sequence[str]:
    counts = figures["seeds"], figures["ops"], sum(figures["faults"].values()), figures["failed"]
    seeds, ops, faults, failed = (f"{count:,}" for count in counts)
    totals = seeds, f"{figures['hours']:.1f}", ops, faults, failed
    rows = [
        "| simulated runs | virtual hours | client operations | faults | seeds with violations |",
        "| --- | --- | --- | --- | --- |",
        f"| {' | '.join(totals)} |",
        "",
        "| fault | times |",
        "| --- | --- |",
    ]
    return rows + [f"| {kind} | {count:,} |" for kind, count in sorted(figures["faults"].items())]


def _defects(figures: Figures) -> Sequence[str]:
    rows = ["| planted defect | found after seeds | as |", "| --- | --- | --- |"]
    return rows + [
        f"| {each['name']} | {each['seeds']:,} | {each['found']} |" for each in figures["defects"]
    ]


def _crash(figures: Figures) -> Sequence[str]:
    return [
        "| | |",
        "| --- | --- |",
        *(f"| {name} | {count:,} |" for name, count in figures["counts"].items()),
    ]


TABLES = {"simulation": _simulation, "defects": _defects, "crash": _crash}

if __name__ == "__main__":
    write_page()
