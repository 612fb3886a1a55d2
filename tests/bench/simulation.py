"""How much virtual time the simulation of the product plays in a second of CPU.

Two brokers, two gateways and eight clients without faults, with each storage. The baseline is the
goal: 20 virtual seconds at 50 operations a second.
"""

from __future__ import annotations

import argparse
import gc
import logging
import multiprocessing
from collections.abc import Sequence
from dataclasses import replace

from tests.sim.recipe import recipe_of
from tests.sim.world import simulate

GOAL = 20.0 * 50


def _play(seed: int, in_store: bool) -> tuple[float, int, float]:
    gc.disable()
    logging.disable()
    recipe = replace(
        recipe_of(seed), in_store=in_store, brokers=2, gateways=2, clients=8, broker={}, shards=2,
        calm_seconds=0.0, fault_seconds=0.0, quiet_seconds=40.0, ends_early=False,
    )  # fmt: skip
    found = simulate(seed, [], recipe=recipe)
    return found.seconds, found.ops, found.cpu


def main(arguments: Sequence[str]) -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench simulation", description=__doc__)
    parser.add_argument("--seeds", type=int, default=3)
    options = parser.parse_args(arguments)
    print("storage  virtual s  ops/s  virtual s per CPU s  at 50 ops/s  of the goal")
    for in_store in (False, True):
        for seed in range(1_000, 1_000 + options.seeds):
            with multiprocessing.get_context("fork").Pool(1) as one:
                seconds, ops, cpu = one.apply(_play, (seed, in_store))
            rate, speed = ops / seconds, seconds / cpu
            print(
                f"{'store' if in_store else 'folder':7}  {seconds:9.0f}  {rate:5.0f}  {speed:19.1f}"
                f"  {speed * rate / 50:11.1f}  {speed * rate / GOAL:11.2f}"
            )
