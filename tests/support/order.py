"""An option for runs that look for tests which depend on others: another order."""

from __future__ import annotations

import random

import pytest


def add_options(parser: pytest.Parser) -> None:
    """`--shuffle SEED`."""
    parser.addoption("--shuffle", type=int, metavar="SEED", help="run the tests in another order")


def reorder(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Apply the option. All parameters of a function stay together."""
    seed = config.getoption("--shuffle")
    if seed is not None:
        groups: dict[str, list[pytest.Item]] = {}
        for item in items:
            groups.setdefault(item.nodeid.partition("[")[0], []).append(item)
        order = list(groups.values())
        random.Random(seed).shuffle(order)
        items[:] = [item for group in order for item in group]
