"""Returns freed memory to the system.

The C library keeps freed memory for later use: after a burst of large requests a process would
keep the size of its peak.
"""

from __future__ import annotations

import asyncio
import ctypes
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from typing import Any

_WORTH_IT = 32 << 20
"""Bytes freed since the peak from which on a trim is worth its time."""


class Heap:
    """Follows the number of held bytes; trims the heap after it has fallen by much."""

    def __init__(self, trim: Callable[[], None] | None = None) -> None:
        self._trim_heap = trim or trim_heap
        self._peak = 0

    def record(self, held: int) -> None:
        """Record the bytes held now, or at most since the last call."""
        self._peak = max(self._peak, held)

    async def trim(self, held: int) -> bool:
        """Trim the heap if it is worth it; returns whether it was. Called every few seconds."""
        if self._peak - held < _WORTH_IT:
            return False
        self._peak = held
        await asyncio.to_thread(self._trim_heap)
        return True


def trim_heap() -> None:
    """Return the memory that the C library holds unused to the system. Takes milliseconds."""
    trim = _malloc_trim()
    if trim is not None:
        trim(0)


@cache
def _malloc_trim() -> Callable[[int], Any] | None:
    with suppress(OSError, AttributeError):  # not glibc
        found: Callable[[int], Any] = ctypes.CDLL(None).malloc_trim
        return found
    return None
