"""`make hostile`: every attack of the catalogue beside a bystander, and a table of the results."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from tests.hostile.catalogue import load
from tests.hostile.runner import PROGRAMS, Row, play_all

_HEAD = (
    "| item | attack | s | loop ms, gateway | broker | errors | lost | slowest ack ms "
    "| gateway MiB before/peak/after | broker MiB | |"
)


def main() -> int:
    """Exit code 1 where an attack got through."""
    parser = argparse.ArgumentParser(prog="python -m tests.hostile", description=__doc__)
    parser.add_argument("--only", action="append", help="attacks whose name contains this")
    parser.add_argument("--item", action="append", help="attacks of this item")
    parser.add_argument("--part", action="store_true", help="those that `make test` runs")
    parser.add_argument("--code", type=Path, help="attack the programs of this checkout")
    parser.add_argument("--list", action="store_true", help="name the attacks and end")
    options = parser.parse_args()
    attacks = [
        one
        for one in load()
        if (not options.only or any(part in one.name for part in options.only))
        and (not options.item or one.item in options.item)
        and (not options.part or one.part_of_make_test)
    ]
    if options.list:
        print("\n".join(f"{one.item or '-':4} {one.name}" for one in attacks))
        return 0
    print(f"{_HEAD}\n|{'---|' * (_HEAD.count('|') - 1)}", flush=True)
    through: list[Row] = []
    for row in play_all(attacks, options.code):
        print(line(row), flush=True)
        if row.problems or row.slow_loops:
            through.append(row)
    for row in through:
        print(f"\n{row.attack.name}:")
        print("\n".join(f"  {problem}" for problem in (*row.problems, *row.slow_loops)))
    print(f"\n{len(attacks)} attacks, {len(through)} got through")
    return 1 if through else 0


def line(row: Row) -> str:
    """A row of the table, in Markdown."""
    memory = [
        f"{one.before:.0f}/{one.peak:.0f}/{one.after:.0f}"
        for one in (row.memory[name] for name in PROGRAMS)
    ]
    gateway, broker = (f"{row.turns.get(name, 0) * 1000:.0f}" for name in PROGRAMS)
    verdict = "got through" if row.problems else "slow" if row.slow_loops else "held"
    if row.slow_loops and row.starved > max(row.turns.values()):
        verdict += f" (no core for {row.starved:.1f} s)"
    account = row.account
    cells = [
        row.attack.item, row.attack.name, f"{row.seconds:.1f}", gateway, broker,
        len(account.errors), len(account.lost), f"{account.slowest_ack * 1000:.0f}", *memory,
        verdict,
    ]  # fmt: skip
    return f"| {' | '.join(map(str, cells))} |"


if __name__ == "__main__":
    sys.exit(main())
