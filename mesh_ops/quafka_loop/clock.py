"""The clocks of a process, and the sleep of its threads.

On an event loop use `loop.time()` and `asyncio.sleep`: the loop's clock is `monotonic`.
"""

from __future__ import annotations

import time as _time
from collections.abc import Callable
from datetime import UTC, datetime

monotonic: Callable[[], float] = _time.monotonic
"""Seconds since an arbitrary moment; never goes back."""

time: Callable[[], float] = _time.time
"""Seconds since 1970 (UTC). May jump: nodes differ, and operators correct clocks."""

time_ns: Callable[[], int] = _time.time_ns
"""Nanoseconds since 1970 (UTC)."""

perf_counter: Callable[[], float] = _time.perf_counter
"""Seconds since an arbitrary moment, with the finest resolution: for short durations."""


def microseconds_since(moment: float) -> int:
    """Whole microseconds since a moment of `perf_counter`."""
    return round((perf_counter() - moment) * 1e6)


thread_time: Callable[[], float] = _time.thread_time
"""Seconds of CPU time of this thread."""

process_time: Callable[[], float] = _time.process_time
"""Seconds of CPU time of this process."""


def _since_boot() -> float:
    return _time.clock_gettime(_time.CLOCK_BOOTTIME)


since_boot: Callable[[], float] = _since_boot
"""Seconds since the machine started, including those for which it was suspended."""

sleep: Callable[[float], None] = _time.sleep
"""Block this thread for some seconds."""


def utc_now() -> datetime:
    """`time` as a datetime."""
    return datetime.fromtimestamp(time(), UTC)
