"""Whose work a log line is about: set where a request begins, read where a line is written.

Every request is served in a task of its own, and a task has a context of its own: nothing has to
be reset. Fields are made only for a line that is really written.
"""

from __future__ import annotations

from contextvars import ContextVar
from typing import Protocol

from quafka_telemetry.tracing import TraceContext


class LogSource(Protocol):
    """What is being served."""

    def log_fields(self) -> dict[str, str]:
        """`request_id`, and what `trace_fields` gives."""
        ...


CURRENT: ContextVar[LogSource | None] = ContextVar("served", default=None)


def trace_fields(trace: TraceContext | None) -> dict[str, str]:
    """`trace_id` and `span_id`, as tracing UIs write them; nothing where it is not sampled."""
    if trace is None:
        return {}
    return {"trace_id": trace.trace_hex, "span_id": trace.span_hex}


def log_fields() -> dict[str, str]:
    """Those of what is being served here and now."""
    source = CURRENT.get()
    return {} if source is None else source.log_fields()
