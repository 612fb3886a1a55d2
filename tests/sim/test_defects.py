"""The simulation finds deliberate defects; `python -m tests.sim.defects` says after how many seeds.

Each is played with a seed that is known to find it. A change of the product or of the simulation
may change what happens in that seed: then others are tried.
"""

from __future__ import annotations

import pytest

from tests.sim.defects import DEFECTS
from tests.sim.defects.found import FIRST_SEEDS
from tests.sim.defects.hunt import Hunt
from tests.support.suites import more

_QUICK = (
    "a revoked right is kept",
    "aborted transactions are not listed",
    "a gateway does not notice its own produces",
)
_OTHER_SEEDS = 400

pytestmark = pytest.mark.timeout(1_200)


@pytest.fixture(scope="module")
def hunt() -> Hunt:
    return Hunt()


def test_the_known_seeds_are_of_defects() -> None:
    assert FIRST_SEEDS.keys() <= DEFECTS.keys()


@pytest.mark.parametrize(
    "name", [*_QUICK, *more(name for name in FIRST_SEEDS if name not in _QUICK)]
)
def test_a_defect_is_found(hunt: Hunt, name: str) -> None:
    known = FIRST_SEEDS[name]
    others = (seed for seed in range(_OTHER_SEEDS) if seed != known)
    found = hunt.find(name, [known])
    if found.seed is None:
        found = hunt.find(name, others)
    assert found.seed is not None
    assert found.violation
