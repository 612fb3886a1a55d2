"""The heap is trimmed after enough memory was freed."""

from __future__ import annotations

import ctypes
from pathlib import Path

from quafka_telemetry.heap import Heap, trim_heap

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
    assert not await heap.trim(0)
    assert len(trimmed) == 1


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
