"""The request that a task serves: set when it starts; read when a line is logged, and for turns.

Every request is served in a task of its own, and a task has a context of its own, so nothing has
to be reset. The fields are computed only for a line that is written.
"""

from __future__ import annotations

from contextvars import ContextVar
from typing import Protocol


class LogSource(Protocol):
    """A request that is being served."""

    @property
    def party(self) -> int:
        """The client's org, as a party that takes turns on the event loop."""
        ...

    def log_fields(self) -> dict[str, str]:
        """Return the fields of a log line about it."""
        ...


CURRENT: ContextVar[LogSource | None] = ContextVar("served", default=None)


def current_party() -> int:
    """Return the party whose request the current task serves; 0 outside of requests."""
    source = CURRENT.get()
    return 0 if source is None else source.party


def log_fields() -> dict[str, str]:
    """Return the fields of the request that the current task serves."""
    source = CURRENT.get()
    return {} if source is None else source.log_fields()
