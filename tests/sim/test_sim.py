"""Seeds of the whole product under simulated trouble; see `make sim` and docs/reliability.md."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.sim.faults import Fault
from tests.sim.porcupine.check import check as porcupine
from tests.sim.processes import play, play_all
from tests.sim.recipe import SHORT_SEEDS
from tests.sim.reduce import shrink
from tests.support.go import go_porcupine
from tests.support.suites import more

_SEEDS = 80
_BLOCK = 2
_ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    "first", [*range(0, _SEEDS, _BLOCK), *more(range(_SEEDS, SHORT_SEEDS, _BLOCK))]
)
def test_no_promise_is_broken(first: int) -> None:
    results = play_all(range(first, first + _BLOCK), at_once=1)
    found = [each.summary() for each in results if each.violations]
    assert found == [], "each is reproduced by `make sim SEED=n`"


@pytest.mark.long
@pytest.mark.needs("go", fetch=go_porcupine)
@pytest.mark.parametrize("first", range(0, 40, _BLOCK))
def test_metadata_and_offsets_are_linearizable(first: int) -> None:
    for result in play_all(range(first, first + _BLOCK), at_once=1):
        assert porcupine(result.events) == [], f"make sim SEED={result.seed}"


def _last_line(seed: int, hash_seed: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "tests.sim", "--seed", str(seed)],
        env=os.environ | {"PYTHONHASHSEED": hash_seed},
        cwd=_ROOT, capture_output=True, text=True, check=True,
    )  # fmt: skip
    return done.stdout.splitlines()[-1]


@pytest.mark.parametrize("seed", [1, *more([2, 3, 4])])
def test_a_seed_is_the_same_run_in_every_process(seed: int) -> None:
    first = _last_line(seed, "1")
    assert first.startswith(f"seed {seed}: trace ")
    assert first.endswith(" faults, ok")
    assert _last_line(seed, "271828") == first


def test_another_schedule_is_another_run() -> None:
    calm, seed = play(1, []), play(1)
    assert calm.trace != seed.trace
    assert not calm.faults
    assert calm.violations == []


def test_a_schedule_is_reduced_to_the_faults_that_matter() -> None:
    schedule = [Fault(float(at), "kill", f"broker-{at}", 4.0) for at in range(20)]
    tries = 0

    def fails(left: object) -> bool:
        nonlocal tries
        tries += 1
        names = {fault.target for fault in left}  # type: ignore[attr-defined]
        return {"broker-3", "broker-17"} <= names

    left = shrink(schedule, fails, most_runs=200)
    assert [fault.target for fault in left] == ["broker-3", "broker-17"]
    assert [fault.seconds for fault in left] == [1.0, 1.0]
    assert tries < 60
