"""Plays seeds with each deliberate defect until it is found, and prints a table."""

from __future__ import annotations

import argparse
import statistics
import sys

from tests.sim.defects import DEFECTS
from tests.sim.defects.hunt import Found, Hunt
from tests.support import figures

_WIDTH = max(map(len, DEFECTS))


def main() -> int:
    """Hunt for defects; 1 if one was not found."""
    parser = argparse.ArgumentParser(prog="python -m tests.sim.defects", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help="defects (default: all)")
    parser.add_argument("--seeds", type=int, default=2000, help="at most, for each of them")
    parser.add_argument("--first", type=int, default=0, help="the first seed (default: 0)")
    parser.add_argument("--record", action="store_true", help="put the table on the page of docs")
    options = parser.parse_args()
    if unknown := set(options.names) - DEFECTS.keys():
        parser.error(f"there is no defect {', '.join(unknown)}; there are: {', '.join(DEFECTS)}")
    hunt, counts = Hunt(), list[int]()
    print(f"{'defect':{_WIDTH}}  seeds  seed   CPU s  violation")
    for name in options.names or DEFECTS:
        found = hunt.find(name, range(options.first, options.first + options.seeds))
        if found.seed is not None:
            counts.append(found.seeds)
            if options.record:
                record(name, found)
        seed = "-" if found.seed is None else found.seed
        what = found.violation[:100] or "not found"
        print(f"{name:{_WIDTH}}  {found.seeds:5}  {seed:>4}  {found.cpu:6.1f}  {what}", flush=True)
    asked = len(options.names or DEFECTS)
    if counts:
        print(f"{len(counts)} of {asked} found, after {statistics.median(counts):g} seeds (median)")
    return 0 if len(counts) == asked else 1


def record(name: str, found: Found) -> None:
    """Put a defect that was found into the table on the page."""
    known = figures.read().get("defects", {"defects": []})["defects"]
    rows = {each["name"]: each for each in known if each["name"] in DEFECTS}
    kind = found.violation.partition(":")[0]
    rows[name] = {"name": name, "seeds": found.seeds, "found": kind}
    figures.record("defects", {"defects": [rows[each] for each in DEFECTS if each in rows]})


if __name__ == "__main__":
    sys.exit(main())
