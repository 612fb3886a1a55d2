"""`python -m tests.sim.shards`: many seeds on all cores; prints those that fail."""

from __future__ import annotations

import argparse
import sys
import time
from concurrent.futures import ProcessPoolExecutor

from tests.sim.shards.world import Result, simulate


def main() -> int:
    """Run seeds; 1 if one of them has found a violation."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=10_000)
    parser.add_argument("--first", type=int, default=0)
    args = parser.parse_args()
    started = time.monotonic()
    records = takeovers = transactions = failed = 0
    with ProcessPoolExecutor() as pool:
        seeds = range(args.first, args.first + args.seeds)
        for result in pool.map(_simulated, seeds, chunksize=20):
            records += result.acknowledged
            takeovers += result.takeovers
            transactions += result.transactions
            if result.violations:
                failed += 1
                print(f"seed {result.seed}: {'; '.join(result.violations[:3])}")
    seconds = time.monotonic() - started
    print(
        f"{args.seeds} seeds in {seconds:.0f} s: {records} entries acknowledged, "
        f"{transactions} transactions, {takeovers} takeovers, {failed} seeds with violations"
    )
    return 1 if failed else 0


def _simulated(seed: int) -> Result:
    try:
        return simulate(seed)
    except Exception as e:
        return Result(seed, [f"{type(e).__name__}: {e}"], 0, 0, (0, 0, 0))


if __name__ == "__main__":
    sys.exit(main())
