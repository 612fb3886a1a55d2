"""What a program's tracer counts, as metrics."""

from __future__ import annotations

from collections.abc import Iterator

from quafka_telemetry.metrics import Family, counter, gauge
from quafka_telemetry.tracing import Tracer


def span_families(tracer: Tracer) -> Iterator[Family]:
    """Spans begun, lost and waiting."""
    yield counter("quafka_spans_started", "Spans that were begun", tracer.started)
    yield counter("quafka_spans_dropped", "Spans that no collector has taken", tracer.dropped)
    yield gauge("quafka_spans_queued", "Spans that wait to be sent", tracer.queued)
