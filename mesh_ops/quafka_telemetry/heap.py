"""Gives memory that was freed back to the system.

The C library keeps freed memory for later use: after a burst of large requests a process would
stay as large as it was at its peak.
"""

from __future__ import annotations

import asyncio
import ctypes
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from typing import Any

_WORTH_IT = 32 << 20
"""Bytes; less than so much is not looked for."""


class Heap:
    """Watches a figure of held bytes; gives back what was freed when it has fallen by much."""

    def __init__(self, trim: Callable[[], None] | None = None) -> None:
        self._trim = trim or trim_heap
        self._peak = 0

    def note(self, held: int) -> None:
        """So many bytes are held, or were since the last call."""
        self._peak = max(self._peak, held)

    async def give_back(self, held: int) -> bool:
        """Called every few seconds with what is held now; whether there was enough to give."""
        if self._peak - held < _WORTH_IT:
            return False
        self._peak = held
        await asyncio.to_thread(self._trim)
        return True


def trim_heap() -> None:
    """Give back what the C library holds and does not use. Takes milliseconds."""
    trim = _malloc_trim()
    if trim is not None:
        trim(0)


@cache
def _malloc_trim() -> Callable[[int], Any] | None:
    with suppress(OSError, AttributeError):  # not glibc
        found: Callable[[int], Any] = ctypes.CDLL(None).malloc_trim
        return found
    return None
