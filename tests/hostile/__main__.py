"""`make hostile`: every attack of the catalogue beside a bystander, and a table of the results."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path

from tests.hostile.account import KINDS, PRODUCE, Account, Latencies
from tests.hostile.catalogue import Attack, load
from tests.hostile.logins import behind_login, can_log_in
from tests.hostile.runner import HERE, PROGRAMS, Options, Row, play_all

_HEAD = (
    "| item | attack | s | loop ms (by the clock), gateway | broker | errors | lost "
    "| slowest ack ms | gateway MiB before/peak/after | broker MiB | |"
)
_LATENCIES = "p50/p99/slowest ms of another org (errors) | " + " | ".join(KINDS)
_BEFORE = (
    "| before a login | connections | KiB | CPU ms of the gateway, each | loop ms | MiB kept |"
)


def main() -> int:
    """Exit code 1 where an attack got through."""
    parser = argparse.ArgumentParser(prog="python -m tests.hostile", description=__doc__)
    parser.add_argument("--only", action="append", help="attacks whose name contains this")
    parser.add_argument("--item", action="append", help="attacks of this item")
    parser.add_argument("--part", action="store_true", help="those that `make test-all` runs")
    parser.add_argument("--code", type=Path, help="attack the programs of this checkout")
    parser.add_argument(
        "--mode", choices=("open", "login", "all"), default="all",
        help="attackers connect to an open listener, or log in first (and then do not)",
    )  # fmt: skip
    parser.add_argument(
        "--control", type=float, default=5.0, metavar="SECONDS",
        help="how long the bystanders of each cluster are watched without an attack",
    )  # fmt: skip
    parser.add_argument(
        "--another-gateway", action="store_true", help="a second bystander is at another gateway"
    )
    parser.add_argument("--list", action="store_true", help="name the attacks and end")
    options = parser.parse_args()
    attacks = [
        one
        for one in load()
        if (not options.only or any(part in one.name for part in options.only))
        and (not options.item or one.item in options.item)
        and (not options.part or one.part_of_tests)
    ]
    if options.list:
        print("\n".join(f"{one.item or '-':4} {one.name}" for one in attacks))
        return 0
    rows: list[Row] = []
    playing = Options(options.code, options.control, options.another_gateway)
    if options.mode != "login":
        rows += _played(attacks, playing)
    if options.mode != "open":
        rows += _played([behind_login(one) for one in attacks if can_log_in(one)], playing)
        _print_before(rows)
    _print_latencies(rows)
    through = [row for row in rows if row.problems or row.slow_loops]
    for row in through:
        print(f"\n{_title(row)}:")
        print("\n".join(f"  {problem}" for problem in (*row.problems, *row.slow_loops)))
    print(f"\n{len(rows)} attacks, {len(through)} got through")
    return 1 if through else 0


def _played(attacks: list[Attack], options: Options) -> Iterator[Row]:
    """Play them and print a table."""
    print(f"\n{_HEAD}\n|{'---|' * (_HEAD.count('|') - 1)}", flush=True)
    for row in play_all(attacks, options):
        print(line(row), flush=True)
        yield row


def _print_before(rows: list[Row]) -> None:
    """What was sent behind logins, sent again without."""
    print(f"\n{_BEFORE}\n|{'---|' * (_BEFORE.count('|') - 1)}")
    for row in rows:
        if row.before is not None and row.before.connections:
            cells = [
                row.attack.name, row.before.connections, row.before.sent >> 10,
                f"{row.before.cpu_ms:.1f}", f"{row.before.turn * 1000:.0f}",
                f"{row.before.kept_mib:.1f}",
            ]  # fmt: skip
            print(f"| {' | '.join(map(str, cells))} |")


def _print_latencies(rows: list[Row]) -> None:
    """What the bystanders have seen of each kind of call, beside the same without an attack."""
    print(f"\n| {_LATENCIES} |\n|{'---|' * (len(KINDS) + 1)}")
    control: dict[str, Account] = {}
    for row in rows:
        for place, account in row.accounts.items():
            where = "" if place == HERE else f", seen from {place}"
            quiet = row.control.get(place)
            if quiet is not None and quiet is not control.get(place):
                control[place] = quiet
                print(_latencies(f"without an attack{where}", quiet))
            print(_latencies(f"{_title(row)}{where}", account), flush=True)


def _latencies(title: str, account: Account) -> str:
    cells = [_cell(account.kinds.get(kind, Latencies())) for kind in KINDS]
    return f"| {title} | {' | '.join(cells)} |"


def _cell(seen: Latencies) -> str:
    times = "/".join(f"{each * 1000:.0f}" for each in (seen.p50, seen.p99, seen.slowest))
    return times if not seen.errors else f"{times} ({seen.errors})"


def _title(row: Row) -> str:
    return f"{row.attack.name}{', behind a login' if row.attack.behind_login else ''}"


def line(row: Row) -> str:
    """A row of the table, in Markdown."""
    memory = [
        f"{one.before:.0f}/{one.peak:.0f}/{one.after:.0f}"
        for one in (row.memory[name] for name in PROGRAMS)
    ]
    gateway, broker = (
        f"{row.turns.get(name, 0) * 1000:.0f} ({row.walls.get(name, 0) * 1000:.0f})"
        for name in PROGRAMS
    )
    verdict = "got through" if row.problems else "slow" if row.slow_loops else "held"
    if row.slow_loops and row.starved > max(row.turns.values()):
        verdict += f" (no core for {row.starved:.1f} s)"
    account = row.account
    cells = [
        row.attack.item, _title(row), f"{row.seconds:.1f}", gateway, broker,
        len(account.errors) + len(account.retried), len(account.lost),
        f"{account.kinds.get(PRODUCE, Latencies()).slowest * 1000:.0f}", *memory,
        verdict,
    ]  # fmt: skip
    return f"| {' | '.join(map(str, cells))} |"


if __name__ == "__main__":
    sys.exit(main())
