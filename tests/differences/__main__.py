"""`python -m tests.differences [NAME]`: every difference between Quafka and Apache Kafka 4.4.

NAME: only plays whose names contain it; `sweep`: only every API in every version. `--table`: the
table of docs/compatibility.md.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from tests.differences.differences import differences
from tests.differences.known import table


def main(only: str = "") -> int:
    """Returns the exit code: 1 if a difference has no reason."""
    if only == "--table":
        print(table())
        return 0
    unexplained = 0
    with tempfile.TemporaryDirectory() as scratch:
        for where, path, quafka, kafka, why in differences(Path(scratch), only):
            unexplained += not why
            print(f"{where} | {path} | {quafka!r} | {kafka!r} | {why or '?'}")
    print(f"{unexplained} differences without a reason")
    return min(unexplained, 1)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:2]))
