"""Recorded spans and their export: a bounded queue, a thread, OpenTelemetry's exporters.

On the event loop a span is a small object of our own. The exporting thread makes the SDK's objects,
chooses the exported names and encodes (otlp_export.py). When the collector is unavailable, slow or
refuses, the queue fills up and further spans are dropped and counted; no request waits.
"""

from __future__ import annotations

import logging
import random
from asyncio import CancelledError
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from types import TracebackType

from quafka_loop import clock, threads
from quafka_telemetry import semconv
from quafka_telemetry.sampling import ALWAYS, Sampler
from quafka_telemetry.tracing import (
    INTERNAL,
    MAX_LINKS,
    NO_SPAN,
    SERVER,
    Attributes,
    AttributeValue,
    ClientContext,
    Span,
    TraceContext,
    Tracer,
)

logger = logging.getLogger("quafka.tracing")

_SHUTDOWN_SECONDS = 3.0
_LOOKED_AT = 4 * MAX_LINKS


class RecordedSpan:
    """A sampled span, as it is recorded on the event loop."""

    __slots__ = (
        "_out", "attributes", "context", "ended", "error", "events", "kind", "links", "name",
        "parent", "start",
    )  # fmt: skip

    def __init__(
        self,
        out: SpanQueue,
        name: str,
        context: TraceContext,
        parent: TraceContext | None,
        kind: str,
        attributes: Attributes | None,
        begun: int | None,
    ) -> None:
        self._out = out
        self.name = name
        self.context: TraceContext | None = context
        self.parent = parent
        self.kind = kind
        self.attributes: dict[str, AttributeValue] = dict(attributes) if attributes else {}
        self.events: list[tuple[str, int, Attributes | None]] = []
        self.links: list[TraceContext] = []
        self.error: str | None = None
        self.ended = 0
        self.start = begun or clock.time_ns()

    def set(self, attributes: Attributes) -> None:
        """See Span."""
        self.attributes.update(attributes)

    def event(self, name: str, attributes: Attributes | None = None) -> None:
        """See Span."""
        self.events.append((name, clock.time_ns(), attributes))

    def fail(self, error: str) -> None:
        """See Span."""
        if self.error is None:
            self.event(semconv.KAFKA_ERROR, {semconv.ERROR_TYPE: error})
            self.error = error
            self.attributes[semconv.ERROR_TYPE] = error

    def link(self, contexts: Iterable[TraceContext]) -> None:
        """See Span. Looks at a few times as many contexts as it links: batches of one produce have
        the same."""
        for context in islice(contexts, _LOOKED_AT):
            if len(self.links) == MAX_LINKS:
                return
            if context not in self.links:
                self.links.append(context)

    def end(self, at: int | None = None) -> None:
        """See Span."""
        if self.ended:
            return
        # The wall clock may be set back: a span does not end before it began.
        self.ended = max(self.start, at or clock.time_ns())
        self._out.put(self)

    def __enter__(self) -> RecordedSpan:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        if kind is CancelledError:  # the caller gave up, which is no failure
            self.event(semconv.CANCELLED)
        elif kind is not None:
            self.fail(kind.__name__)
        self.end()


class SpanQueue:
    """Ended spans that wait for export; spans that do not fit are dropped and counted."""

    def __init__(
        self,
        export: Callable[[Sequence[RecordedSpan]], bool],
        limit: int,
        batch: int,
        delay: float,
    ) -> None:
        """`export` blocks, in the queue's thread; it returns whether the spans were accepted."""
        self._export = export
        self._limit = limit
        self._batch = min(batch, limit)
        self._delay = delay
        self._spans: deque[RecordedSpan] = deque()
        self._wake = threads.Event()
        self._closing = threads.Event()
        self.full = 0
        """Spans that did not fit."""
        self.refused = 0
        """Spans that the collector did not take."""
        self._thread = threads.Thread(target=self._run, name="spans", daemon=True)
        self._thread.start()

    def __len__(self) -> int:
        return len(self._spans)

    def put(self, span: RecordedSpan) -> None:
        """Queue a span, or drop it. Never waits."""
        if len(self._spans) >= self._limit or self._closing.is_set():
            self.full += 1
            return
        self._spans.append(span)
        if len(self._spans) == self._batch:
            self._wake.set()

    def close(self, timeout: float) -> bool:
        """Send the queued spans; returns whether that ended in time. The others are dropped."""
        self._closing.set()
        self._wake.set()
        self._thread.join(timeout)
        self.full += len(self._spans)
        self._spans.clear()
        return not self._thread.is_alive()

    def _run(self) -> None:
        while self._spans or not self._closing.is_set():
            self._wake.wait(self._delay)
            self._wake.clear()
            while self._spans:
                some = [self._spans.popleft() for _ in range(min(self._batch, len(self._spans)))]
                if not self._send(some):
                    self.refused += len(some)
                    if self._closing.is_set():
                        return  # the other batches would fail, too

    def _send(self, some: Sequence[RecordedSpan]) -> bool:
        try:
            return self._export(some)
        except Exception:  # an exporter's bug must not keep the next batch from being tried
            logger.exception("%d spans could not be sent", len(some))
            return False


class OtlpTracer(Tracer):
    """Records spans and hands them to a queue."""

    on = True

    def __init__(self, sampler: Sampler, out: SpanQueue) -> None:
        self._sampler = sampler
        self._out = out
        self.follows_clients = sampler.follows_clients
        self.slow_after = sampler.slow_after
        self.traces_failed = sampler.failed
        self.started = 0

    @property
    def dropped(self) -> int:
        """See Tracer."""
        return self._out.full + self._out.refused

    @property
    def queued(self) -> int:
        """See Tracer."""
        return len(self._out)

    def root(
        self,
        name: str,
        org: int,
        client: ClientContext | None = None,
        attributes: Attributes | None = None,
        begun: int | None = None,
    ) -> Span:
        """See Tracer."""
        reason = self._sampler.decide(org, None if client is None else client.sampled)
        if not reason:
            return NO_SPAN
        parent = None if client is None else client.context
        span = self._begin(name, parent, SERVER, attributes, begun)
        span.attributes[semconv.SAMPLED_BY] = reason
        return span

    def late_root(self, name: str, reason: str, attributes: Attributes, begun: int) -> Span:
        """See Tracer."""
        if not self._sampler.decide_late():
            return NO_SPAN
        span = self._begin(name, None, SERVER, attributes, begun)
        span.attributes[semconv.SAMPLED_BY] = reason
        return span

    def own_root(self, name: str, attributes: Attributes, begun: int | None = None) -> Span:
        """See Tracer."""
        if not self._sampler.decide_late():
            return NO_SPAN
        span = self._begin(name, None, INTERNAL, attributes, begun)
        span.attributes[semconv.SAMPLED_BY] = ALWAYS
        return span

    def start(
        self,
        name: str,
        parent: TraceContext | None,
        attributes: Attributes | None = None,
        kind: str = INTERNAL,
        begun: int | None = None,
    ) -> Span:
        """See Tracer."""
        if parent is None:
            return NO_SPAN
        return self._begin(name, parent, kind, attributes, begun)

    def _begin(
        self,
        name: str,
        parent: TraceContext | None,
        kind: str,
        attributes: Attributes | None,
        begun: int | None,
    ) -> RecordedSpan:
        self.started += 1
        self._sampler.bucket.spend(1)
        trace_id = random.getrandbits(128) if parent is None else parent.trace_id
        tracestate = "" if parent is None else parent.tracestate
        context = TraceContext(trace_id, random.getrandbits(64) or 1, tracestate)
        return RecordedSpan(self._out, name, context, parent, kind, attributes, begun)

    def shutdown(self) -> None:
        """See Tracer."""
        # An exporter retries an unavailable collector for far longer than a shutdown may take.
        if not self._out.close(_SHUTDOWN_SECONDS):
            logger.warning("the last spans were not sent within %d s", _SHUTDOWN_SECONDS)
