"""The counters of a program's tracer, as metrics."""

from __future__ import annotations

from collections.abc import Iterator

from quafka_telemetry.metrics import Family, counter, gauge
from quafka_telemetry.tracing import Tracer


def span_families(tracer: Tracer) -> Iterator[Family]:
    """Yield the numbers of started, dropped and queued spans."""
    yield counter("quafka_spans_started", "Spans started", tracer.started)
    yield counter("quafka_spans_dropped", "Spans not delivered to a collector", tracer.dropped)
    yield gauge("quafka_spans_queued", "Spans waiting to be sent", tracer.queued)
