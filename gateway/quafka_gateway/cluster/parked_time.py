"""How long the request that a task serves was parked at a broker.

Parked time is not latency: the request asked to wait for records, or for the other members of its
group. Each request is served by its own task, so the task's context identifies the request at any
depth below the handler.
"""

from __future__ import annotations

from contextvars import ContextVar

from quafka_loop import clock


class ParkedTime:
    """One request's parked time. Time parked at several brokers at once counts once."""

    __slots__ = ("_until", "seconds")

    def __init__(self) -> None:
        self.seconds = 0.0
        self._until = 0.0

    def add(self, seconds: float, now: float) -> None:
        """The request was parked for `seconds` until `now`."""
        if seconds > 0.0:
            self.seconds += max(0.0, now - max(now - seconds, self._until))
            self._until = now


NEVER_PARKED = ParkedTime()
"""The parked time of requests that are not long polls."""

_CURRENT: ContextVar[ParkedTime | None] = ContextVar("parked_time", default=None)


def begin_request() -> ParkedTime:
    """Measure for this task, and for the tasks that it starts."""
    current = ParkedTime()
    _CURRENT.set(current)
    return current


def add_parked(seconds: float) -> None:
    """The request of this task was parked for `seconds` until now."""
    current = _CURRENT.get()
    if current is not None:
        current.add(seconds, clock.perf_counter())
