"""Keeps freed memory for the next requests, and returns it to the system after a peak.

A produce of 1 MB passes through several buffers of its size. By default the C library returns such
memory as soon as it is freed and gets zeroed pages for the next request: up to 200 page faults for
each MB, which cost a broker as much as writing the log.

After a burst of large requests a process would keep the size of its peak: freed memory below
something that is held stays until it is trimmed.
"""

from __future__ import annotations

import asyncio
import ctypes
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from typing import Any

WORTH_IT = 32 << 20
"""Bytes freed since the peak from which on a trim is worth its time."""


_KEPT = 32 << 20
"""Bytes of freed memory at the end of a heap that are kept. Threads may have heaps of their own."""
_LARGE = 4 << 20
"""Bytes from which on a buffer has pages of its own, which are returned when it is freed."""
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3  # from malloc.h of glibc


def keep_freed_memory() -> None:
    """Let this process keep freed memory. Without glibc it does nothing."""
    set_option = _c_function("mallopt")
    if set_option is not None:
        set_option(_M_TRIM_THRESHOLD, _KEPT)
        set_option(_M_MMAP_THRESHOLD, _LARGE)


class Heap:
    """Follows the number of held bytes; trims the heap after it has fallen by much."""

    def __init__(self, trim: Callable[[], None] | None = None) -> None:
        self._trim_heap = trim or trim_heap
        self._peak = 0
        self._trims_again = False

    def record(self, held: int) -> None:
        """Record the bytes held now, or at most since the last call."""
        self._peak = max(self._peak, held)

    async def trim(self, held: int) -> bool:
        """Trim the heap if it is worth it; returns whether it was. Called every few seconds.

        It is trimmed again at the next call: what has just been answered may still be in use.
        """
        is_worth_it = self._peak - held >= WORTH_IT
        if not is_worth_it and not self._trims_again:
            return False
        self._trims_again = is_worth_it
        self._peak = held
        await asyncio.to_thread(self._trim_heap)
        return True


def trim_heap() -> None:
    """Return the memory that the C library holds unused to the system. Takes milliseconds."""
    trim = _c_function("malloc_trim")
    if trim is not None:
        trim(0)


@cache
def _c_function(name: str) -> Callable[..., Any] | None:
    with suppress(OSError, AttributeError):  # not glibc
        found: Callable[..., Any] = getattr(ctypes.CDLL(None), name)
        return found
    return None
