"""Half a million damaged frames and batches: each is accepted or refused, soon, in little memory.

The mutations are the same in every run; `SEED` makes others. `make test` plays a quarter of them,
`make fuzz` looks further.
"""

from __future__ import annotations

import os
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.fuzz.corpus import seeds
from tests.fuzz.mutator import Mutator
from tests.fuzz.targets import LIMIT, TARGETS
from tests.support.suites import share

SEED = os.environ.get("QUAFKA_FUZZ_SEED", "3")
RUNS = {
    "header": 81_000,
    "request": 135_000,
    "response": 70_000,
    "batches": 35_000,
    "sealed_batch": 22_500,
    "message_set": 25_000,
    "sealed_message_set": 25_000,
    "fetched": 15_000,
    "decompression": 15_000,
    "mesh_stream": 10_000,
    "mesh_envelope": 15_000,
    "kafka_metadata": 10_000,
    "kafka_groups": 10_000,
    "kafka_indexes": 5_000,
    "kafka_segment": 1_500,
    "sasl": 10_000,
    "chain": 7_500,
    "group_facts": 7_500,
}
"""How many mutations of each target: half a million in all."""
MEASURED = 1_000
"""How many of each target are measured in memory."""
MS_PER_KB = 1.0
SMALL_CHANGE_MS = 4.0
"""What any frame may cost: opening five files, or the try of one op after the other."""
BYTES_PER_BYTE = 200
"""What a byte of a frame may cost in memory: a struct with one field of one byte, in an array."""
SMALL_CHANGE = 64 << 10


def test_half_a_million_in_all() -> None:
    assert sum(RUNS.values()) == 500_000
    assert RUNS.keys() == TARGETS.keys()


@pytest.mark.parametrize("target", TARGETS)
def test_every_seed_is_accepted(target: str) -> None:
    """Or the mutations would be of garbage."""
    for data in seeds(target):
        accepted = TARGETS[target](data)
        assert accepted or target in _REFUSING, data


_MESSAGES = {
    "header", "request", "response", "mesh_stream", "mesh_envelope", "kafka_metadata",
    "kafka_groups", "kafka_indexes", "sasl", "group_facts",
}  # fmt: skip
_REFUSING = {"batches", "sealed_batch", "fetched", "sasl"}
"""Control and zstd batches are among the seeds, and a token with a forged signature."""


@pytest.mark.parametrize("target", TARGETS)
def test_mutations(target: str) -> None:
    run, mutated = TARGETS[target], Mutator(seeds(target), f"{SEED} {target}").next
    clock = time.perf_counter
    before = resident()
    accepted = 0
    runs = share(RUNS[target])
    for _ in range(runs):
        data = mutated()
        started = clock()
        try:
            accepted += run(data)
        except Exception as e:
            raise AssertionError(f"{target}({data!r}) raised {e!r}") from e
        if clock() - started > allowed(data):
            assert_quick(run, data)
    assert resident() - before < 32 << 20
    assert 0 < accepted < runs


@pytest.mark.parametrize("target", TARGETS)
def test_memory_of_mutations(target: str) -> None:
    run, mutated = TARGETS[target], Mutator(seeds(target), f"{SEED} {target} memory").next
    for data in seeds(target):
        run(data)  # compiles what is compiled on first use
    unpacks = target not in _MESSAGES
    tracemalloc.start()
    try:
        for _ in range(MEASURED):
            data = mutated()
            most = BYTES_PER_BYTE * len(data) + SMALL_CHANGE + (2 * LIMIT if unpacks else 0)
            # Twice: the first use of something takes memory for good, as do other threads.
            assert _peak(run, data) < most or _peak(run, data) < most, (target, data)
    finally:
        tracemalloc.stop()


def _peak(run: Callable[[bytes], bool], data: bytes) -> int:
    tracemalloc.reset_peak()
    before = tracemalloc.get_traced_memory()[0]
    run(data)
    return tracemalloc.get_traced_memory()[1] - before


def allowed(data: bytes) -> float:
    """Seconds."""
    return (SMALL_CHANGE_MS + MS_PER_KB * len(data) / 1024) / 1000


def assert_quick(run: Callable[[bytes], bool], data: bytes) -> None:
    """The machine may have been busy, or the first use compiled something: the best of some.

    A core that is shared with another process stays slow for longer than a few runs take.
    """
    best = 1e9
    until = time.monotonic() + 5
    while best > allowed(data) and time.monotonic() < until:
        for _ in range(20):
            started = time.thread_time()
            run(data)
            best = min(best, time.thread_time() - started)
        time.sleep(0.05)
    assert best <= allowed(data), (best, data)


def resident() -> int:
    """Resident memory of this process, bytes."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
