"""A tracer that samples everything, and the spans that it has recorded."""

from __future__ import annotations

from collections.abc import Sequence

from quafka_telemetry.otlp import OtlpTracer, RecordedSpan, SpanQueue
from quafka_telemetry.sampling import EdgeSampling, Sampler


class RecordedSpans:
    """Use `tracer`, then `close`."""

    def __init__(self, ratio: float = 1.0) -> None:
        self._ended: list[RecordedSpan] = []
        self._queue = SpanQueue(self._take, limit=1_000, batch=1_000, delay=60)
        self.tracer = OtlpTracer(Sampler(ratio, True, EdgeSampling()), self._queue)

    def _take(self, spans: Sequence[RecordedSpan]) -> bool:
        self._ended += spans
        return True

    def close(self) -> list[RecordedSpan]:
        """The ended spans, in the order of their starts. No more are taken."""
        self._queue.close(5.0)
        return sorted(self._ended, key=lambda span: span.start)
