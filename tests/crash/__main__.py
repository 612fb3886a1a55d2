"""`make crash`: hundreds of cuts, of processes and of power, and what came of them."""

from __future__ import annotations

import argparse
import logging
import sys
import tempfile
import time
from pathlib import Path

from tests.crash import kills
from tests.support.cluster import Cluster

SEGMENT_BYTES = "1048576"


def main() -> None:
    """Run, print the figures, and fail if any promise was broken."""
    parser = argparse.ArgumentParser(prog="python -m tests.crash", description=__doc__)
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--per-second", type=int, default=300, help="records, of each producer")
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--folder", type=Path, help="on the file system to test; default: /tmp")
    options = parser.parse_args()
    logging.getLogger("aiokafka").setLevel(logging.CRITICAL)  # it tells of every retry
    print(f"{options.kills} kills, seed {options.seed}", flush=True)
    with (
        tempfile.TemporaryDirectory(dir=options.folder) as scratch,
        Cluster(Path(scratch), broker_args=("--wal-segment-bytes", SEGMENT_BYTES)) as cluster,
    ):
        figures = kills.run(
            cluster,
            options.kills,
            per_second=options.per_second,
            seed=options.seed,
            said=lambda line: print(line, flush=True),
        )
    print(figures)
    sys.exit(bool(figures.problems))


if __name__ == "__main__":
    main()
