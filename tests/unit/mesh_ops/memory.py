"""A bound on the memory that a part of a test may allocate."""

from __future__ import annotations

import tracemalloc
from collections.abc import Generator
from contextlib import contextmanager

MB = 1 << 20


@contextmanager
def at_most(limit: int) -> Generator[None]:
    """Fails if Python's memory grows by more than `limit` bytes inside."""
    tracemalloc.start(1)
    try:
        yield
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < limit, f"{peak / MB:.0f} MiB"
