"""`make crash`: hundreds of kills and power cuts, and damage to each kind of file, with results."""

from __future__ import annotations

import argparse
import asyncio
import logging
import sys
import tempfile
import time
from pathlib import Path

from tests.crash import compaction_workload as compaction
from tests.crash import damage, kills
from tests.crash import share_workload as shares
from tests.crash.explorer import Recipe, explore
from tests.crash.kills import Figures
from tests.support.cluster import Cluster
from tests.support.figures import record
from tests.support.mounts import CannotMountError, LoopFilesystem

SEGMENT_BYTES = "1048576"
ARGS = ("--wal-segment-bytes", SEGMENT_BYTES)


def say(line: object) -> None:
    print(line, flush=True)


def kill_processes(folder: Path, options: argparse.Namespace) -> Figures:
    """kill -9 of broker and gateway on an ordinary file system."""
    with Cluster(folder, broker_args=ARGS) as cluster:
        return kills.run(
            cluster, options.kills, per_second=options.per_second, seed=options.seed, said=say
        )


def cut_power(folder: Path, kind: str, options: argparse.Namespace) -> Figures:
    """Power cuts of a separate file system.

    Raises:
        CannotMountError: this machine cannot mount it, or lacks mkfs.
    """
    with (
        LoopFilesystem(folder, kind) as disk,
        Cluster(folder, broker_args=ARGS, data=disk.path / "data") as cluster,
    ):
        cuts = (kills.power_cut(disk),)
        return kills.run(
            cluster,
            options.power_cuts,
            nemeses=cuts,
            per_second=options.per_second,
            seed=options.seed,
            said=say,
        )


def explore_new_states(seconds: float, seed: int) -> int:
    """Simulated power cuts that the normal suite does not make; the number of states."""
    logging.disable(logging.WARNING)
    states, until = 0, time.monotonic() + seconds
    while time.monotonic() < until:
        for recipe in (Recipe(seed), Recipe(seed, full=0.1), Recipe(seed, sync=0.03, turns=14)):
            states += asyncio.run(explore(recipe))
        states += asyncio.run(compaction.explore(compaction.Recipe(seed, turns=12, full=0.03)))
        states += asyncio.run(shares.explore(shares.Recipe(seed, turns=12, full=0.03)))
        seed += 1
    logging.disable(logging.NOTSET)
    return states


def counted(what: str, figures: Figures) -> dict[str, int]:
    """The figures of a run for the page."""
    return {
        what: figures.cuts,
        f"{what}: records acknowledged": figures.acked,
        f"{what}: lost or duplicated": figures.lost + figures.duplicated,
    }


def main() -> None:
    """Run, print the figures, and fail if any promise was broken."""
    parser = argparse.ArgumentParser(prog="python -m tests.crash", description=__doc__)
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--power-cuts", type=int, default=40, help="of each of ext4 and xfs")
    parser.add_argument("--explore-seconds", type=float, default=60.0)
    parser.add_argument("--flips", type=int, default=8, help="bytes of each file, damage sweep")
    parser.add_argument("--per-second", type=int, default=300, help="records, of each producer")
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--folder", type=Path, help="on the file system to test; default: /tmp")
    parser.add_argument("--record", action="store_true", help="put the figures on the page of docs")
    options = parser.parse_args()
    logging.getLogger("aiokafka").setLevel(logging.CRITICAL)  # it logs every retry
    say(f"seed {options.seed}")
    broken = False
    counts: dict[str, int] = {}
    with tempfile.TemporaryDirectory(dir=options.folder) as scratch:
        folder = Path(scratch)
        if options.kills:
            figures = kill_processes(folder, options)
            say(f"kill -9 of processes\n{figures}\n")
            broken |= bool(figures.problems)
            counts |= counted("`kill -9` of a broker or gateway under load", figures)
        for kind in ("ext4", "xfs") if options.power_cuts else ():
            (folder / f"power-{kind}").mkdir()
            try:
                figures = cut_power(folder / f"power-{kind}", kind, options)
            except CannotMountError as e:
                say(f"power cuts of {kind}: not here: {e}\n")
            else:
                say(f"power cuts of {kind}\n{figures}\n")
                broken |= bool(figures.problems)
                counts |= counted(f"power cuts of a real {kind}", figures)
    if options.flips:
        with tempfile.TemporaryDirectory(dir=options.folder) as scratch:
            say("damage to each kind of file")
            broken |= bool(damage.sweep(Path(scratch), options.flips, options.seed, say))
    states = explore_new_states(options.explore_seconds, options.seed)
    say(f"simulated power cuts      {states:10,}   all promises kept")
    if options.record:
        counts["states of a disk after a simulated power cut"] = states
        record("crash", {"counts": counts})
    sys.exit(broken)


if __name__ == "__main__":
    main()
