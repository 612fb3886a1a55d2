"""`python -m tests.sim.checkers FILE`: checks a history that a run has written."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from tests.sim.checkers import check_all
from tests.sim.history import loads


def main() -> int:
    """Print all violations; 1 if there are some."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "file", type=Path, help="JSON lines, as tests/sim/history.py describes them"
    )
    found = check_all(loads(parser.parse_args().file.read_text()))
    for violation in found:
        print(violation)
    return bool(found)


if __name__ == "__main__":
    sys.exit(main())
