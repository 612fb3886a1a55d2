"""Freed memory is kept for the next requests; the heap is trimmed after much was freed."""

from __future__ import annotations

import ctypes
import subprocess
import sys
from pathlib import Path

import pytest

from quafka_loop.heap import Heap, trim_heap

MIB = 1 << 20


def resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


async def test_only_after_a_peak() -> None:
    trimmed: list[int] = []
    heap = Heap(lambda: trimmed.append(1))
    heap.record(20 * MIB)
    assert not await heap.trim(0)
    heap.record(100 * MIB)
    assert not await heap.trim(90 * MIB)
    assert await heap.trim(10 * MIB)
    assert await heap.trim(0), "what was answered is freed by now"
    assert not await heap.trim(0)
    assert len(trimmed) == 2


def test_what_was_freed_below_something_that_is_held_goes_back() -> None:
    if not hasattr(ctypes.CDLL(None), "malloc_trim"):
        return trim_heap()  # does nothing
    chunks = [bytes(100_000) for _ in range(1_500)]
    held = [bytes(600) for _ in range(1_000)]
    before = resident()
    chunks.clear()
    trim_heap()
    assert resident() < before - 80 * MIB
    assert len(held) == 1_000
    return None


PROGRAM = """
import resource, sys
from quafka_loop.heap import keep_freed_memory
if sys.argv[1] == "kept":
    keep_freed_memory()

def request(size):
    parts = [bytes(60_000) for _ in range(size // 60_000)]
    frame = b"".join(parts)
    return frame, frame[21:]

for _ in range(10):
    request(2_000_000)
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for size in (1_000_000, 400_000, 1_900_000) * 20:
    request(size)
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def page_faults(how: str) -> int:
    command = [sys.executable, "-c", PROGRAM, how]
    return int(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "mallopt"), reason="needs glibc")
def test_freed_memory_is_kept() -> None:
    assert page_faults("kept") < 1_000 < page_faults("returned")
