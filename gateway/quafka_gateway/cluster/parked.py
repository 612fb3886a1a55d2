"""How long the request that is being served was parked at a broker.

Waiting for records, or for the other members of a group, is what such a request asks for: it is
no latency. Requests are served in tasks of their own, so the context of the task says whose wait
it was, however deep below the handler it is noticed.
"""

from __future__ import annotations

from contextvars import ContextVar
from time import perf_counter


class Parked:
    """One request's waits. Those at several brokers at a time count once."""

    __slots__ = ("_until", "seconds")

    def __init__(self) -> None:
        self.seconds = 0.0
        self._until = 0.0

    def add(self, seconds: float, now: float) -> None:
        """It was parked for so long until now."""
        if seconds > 0.0:
            self.seconds += max(0.0, now - max(now - seconds, self._until))
            self._until = now


_CURRENT: ContextVar[Parked | None] = ContextVar("parked", default=None)


def begin() -> Parked:
    """A request is served by this task, and by those that it starts."""
    parked = Parked()
    _CURRENT.set(parked)
    return parked


def note(seconds: float) -> None:
    """The request of this task was parked for so long until now."""
    parked = _CURRENT.get()
    if parked is not None:
        parked.add(seconds, perf_counter())
