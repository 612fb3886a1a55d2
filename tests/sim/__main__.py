"""`make sim`: the whole product under simulated trouble; see docs/reliability.md.

With one seed: its timeline, and what it has come to. With many: those that found a violation, and
the totals.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import Counter
from pathlib import Path

from tests.sim.faults import Fault, loads
from tests.sim.history import dumps
from tests.sim.processes import play, play_all
from tests.sim.reduce import reduced
from tests.sim.world import Result
from tests.support import figures


def main() -> int:
    """Play seeds; 1 if one of them has found a violation."""
    parser = argparse.ArgumentParser(prog="make sim", description=__doc__)
    parser.add_argument("--seed", type=int, help="play one seed and print its timeline")
    parser.add_argument("--seeds", type=int, default=100, help="how many seeds (default: 100)")
    parser.add_argument("--first", type=int, default=0, help="the first of them (default: 0)")
    parser.add_argument("--schedule", type=Path, help="a file of faults, in place of the seed's")
    parser.add_argument("--history", type=Path, help="write the history of the seed to this file")
    parser.add_argument("--trace", type=Path, help="write all events of the seed to this file")
    parser.add_argument("--verbose", action="store_true", help="print the line of each seed")
    parser.add_argument("--record", action="store_true", help="put the totals on the page of docs")
    parser.add_argument("--no-reduce", action="store_true", help="do not reduce a failing seed")
    options = parser.parse_args()
    return one(options) if options.seed is not None else many(options)


def one(options: argparse.Namespace) -> int:
    """Play one seed and print its timeline."""
    schedule = None if options.schedule is None else loads(json.loads(options.schedule.read_text()))
    result = play(options.seed, schedule, keep_lines=options.trace is not None)
    if options.history is not None:
        options.history.write_text(dumps(result.events))
    if options.trace is not None:
        options.trace.write_text("\n".join(result.lines))
    print_timeline(result)
    if result.violations and not options.no_reduce:
        print_reduced(result)
    print(
        f"{result.cpu:.1f} s of CPU: {result.seconds / result.cpu:.0f} virtual seconds per second"
    )
    print(result.summary())
    return 1 if result.violations else 0


def many(options: argparse.Namespace) -> int:
    """Play many seeds on all cores."""
    began = time.monotonic()
    seconds = cpu = 0.0
    ops = failed = played = 0
    faults: Counter[str] = Counter()
    seeds = range(options.first, options.first + options.seeds)
    for result in play_all(seeds):
        played += 1
        seconds, cpu, ops = seconds + result.seconds, cpu + result.cpu, ops + result.ops
        faults += result.faults
        failed += bool(result.violations)
        if result.violations or options.verbose:
            print(result.summary(), flush=True)
    kinds = ", ".join(f"{count} {kind}" for kind, count in sorted(faults.items()))
    print(f"faults: {kinds}")
    print(
        f"{played} seeds, {seconds / 3600:.1f} virtual hours, {ops} ops, {faults.total()} faults, "
        f"{failed} seeds with violations; {time.monotonic() - began:.0f} s, "
        f"{seconds / cpu:.0f} virtual seconds per CPU second"
    )
    if options.record:
        totals = {"seeds": played, "hours": seconds / 3600, "ops": ops, "faults": dict(faults)}
        figures.record("simulation", totals | {"failed": failed})
    return 1 if failed else 0


def print_timeline(result: Result) -> None:
    """Print the faults, and when clients of what kind were busy."""
    print("    time  event")
    ops: Counter[str] = Counter()
    for event in result.events:
        if event["type"] in ("ok", "fail"):
            ops[event["op"]] += 1
        elif event["op"] in ("fault", "quiet", "run"):
            print_ops(ops)
            what = {
                key: value
                for key, value in event.items()
                if key not in ("n", "t", "who", "type", "op") and value
            }
            words = " ".join(f"{key}={value}" for key, value in what.items())
            print(f"{event['t']:8.3f}  {event['op']} {words}")
    print_ops(ops)
    for violation in result.violations:
        print(f"VIOLATION {violation}")


def print_ops(ops: Counter[str]) -> None:
    """Print what clients did since the last event, and begin anew."""
    if ops:
        print("          " + ", ".join(f"{count} {op}" for op, count in ops.most_common(6)))
    ops.clear()


def print_reduced(result: Result) -> None:
    """Print the shortest schedule that still finds the violation."""
    print("reducing the schedule ...", flush=True)
    faults = reduced(result)
    print(f"{len(faults)} of {len(result.schedule)} faults are enough:")
    for fault in faults:
        print(f"  {fault}")
    print(json.dumps([_as_json(fault) for fault in faults]))


def _as_json(fault: Fault) -> dict[str, object]:
    return {
        "at": fault.at, "kind": fault.kind, "target": fault.target, "seconds": fault.seconds,
        "details": fault.details,
    }  # fmt: skip


if __name__ == "__main__":
    sys.exit(main())
