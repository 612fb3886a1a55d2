"""Trace context and spans, at no cost when nobody looks.

The sampling decision is taken once, at the edge, before the SDK is touched: an unsampled request
carries no context at all, and every later hop sees that in one comparison. The context crosses
the mesh as a W3C `traceparent` and `tracestate` in the envelope.

Span names are Rafka's (seed 1), so that dashboards carry over.
"""

from __future__ import annotations

import logging
import os
import random
import re
import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Protocol

from quafka_proto.errors import ErrorCode

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.trace import Span as OtelSpan
    from opentelemetry.trace import Tracer as OtelTracer

AttributeValue = str | int | bool | float
Attributes = Mapping[str, AttributeValue]

INTERNAL, SERVER, CLIENT = "internal", "server", "client"

_TRACEPARENT = re.compile(r"00-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})", re.ASCII)
_SHUTDOWN_SECONDS = 3.0

logger = logging.getLogger("quafka.tracing")
_TRACESTATE_LIMIT = 512  # W3C Trace Context 3.3.1.5: propagate at least this much


@dataclass(frozen=True, slots=True)
class TraceContext:
    """Where a span stands in a sampled trace. An unsampled one has no TraceContext."""

    trace_id: int
    span_id: int
    tracestate: str = ""

    @property
    def traceparent(self) -> str:
        """The W3C header value; the sampled flag is always set."""
        return f"00-{self.trace_id:032x}-{self.span_id:016x}-01"


def parse_traceparent(traceparent: str, tracestate: str = "") -> TraceContext | None:
    """The context in a W3C header, or None where it is absent, invalid or not sampled."""
    match = _TRACEPARENT.fullmatch(traceparent)
    if match is None:
        return None
    trace_id, span_id, flags = (int(group, 16) for group in match.groups())
    if not (trace_id and span_id and flags & 1):
        return None
    return TraceContext(trace_id, span_id, tracestate[:_TRACESTATE_LIMIT])


class Span(Protocol):
    """One hop's piece of work. Usable as a context manager, which ends it."""

    @property
    def context(self) -> TraceContext | None:
        """None when not sampled: then there is nothing to compute attributes for."""
        ...

    def set(self, attributes: Attributes) -> None:
        """Add attributes."""
        ...

    def event(self, name: str, attributes: Attributes | None = None) -> None:
        """Note that something happened now."""
        ...

    def fail(self, error: str) -> None:
        """Mark the span as failed; `error` is the Kafka error's name or a short reason."""
        ...

    def end(self) -> None:
        """Close the span. A second call does nothing."""
        ...

    def __enter__(self) -> Span: ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        tb: TracebackType | None,
    ) -> None: ...


class _NoSpan:
    """The span of everything that is not sampled."""

    __slots__ = ()
    context = None

    def set(self, attributes: Attributes) -> None:
        pass

    def event(self, name: str, attributes: Attributes | None = None) -> None:
        pass

    def fail(self, error: str) -> None:
        pass

    def end(self) -> None:
        pass

    def __enter__(self) -> _NoSpan:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        pass


NO_SPAN: Span = _NoSpan()


def fail_with(span: Span, error_codes: Iterable[int]) -> None:
    """Mark the span as failed by the first Kafka error among `error_codes`, if there is one."""
    code = next(filter(None, error_codes), 0)
    if code:
        span.fail(ErrorCode.name_of(code))


class Tracer:
    """Starts spans. This base never samples; `tracer_from_environment` may return one that does."""

    def root(self, name: str, attributes: Attributes | None = None, kind: str = SERVER) -> Span:
        """Start a trace here, if it is to be sampled."""
        return NO_SPAN

    def start(
        self,
        name: str,
        parent: TraceContext | None,
        attributes: Attributes | None = None,
        kind: str = INTERNAL,
    ) -> Span:
        """Continue the trace of `parent`; None (not sampled) gives a span that does nothing."""
        return NO_SPAN

    def shutdown(self) -> None:
        """Export what is queued, for a few seconds at most. Blocks: call it off the event loop."""


class _RecordedSpan:
    __slots__ = ("_span", "context")

    def __init__(self, span: OtelSpan, tracestate: str) -> None:
        context = span.get_span_context()
        self._span = span
        self.context: TraceContext | None = TraceContext(
            context.trace_id, context.span_id, tracestate
        )

    def set(self, attributes: Attributes) -> None:
        self._span.set_attributes(attributes)

    def event(self, name: str, attributes: Attributes | None = None) -> None:
        self._span.add_event(name, attributes)

    def fail(self, error: str) -> None:
        from opentelemetry.trace import StatusCode

        self._span.set_status(StatusCode.ERROR, error)
        self._span.set_attribute("error.type", error)

    def end(self) -> None:
        if self._span.is_recording():
            self._span.end()

    def __enter__(self) -> _RecordedSpan:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        if kind is not None:
            self.fail(kind.__name__)
        self.end()


class _OtelTracer(Tracer):
    """Spans through the OpenTelemetry SDK, exported in batches from a thread of its own."""

    def __init__(self, provider: TracerProvider, ratio: float) -> None:
        from opentelemetry.trace import SpanKind

        self._provider = provider
        self._tracer: OtelTracer = provider.get_tracer("quafka")
        self._ratio = ratio
        self._kinds = {
            INTERNAL: SpanKind.INTERNAL,
            SERVER: SpanKind.SERVER,
            CLIENT: SpanKind.CLIENT,
        }

    def root(self, name: str, attributes: Attributes | None = None, kind: str = SERVER) -> Span:
        if self._ratio < 1.0 and random.random() >= self._ratio:  # noqa: S311 - not a secret
            return NO_SPAN
        from opentelemetry.context import Context

        span = self._tracer.start_span(name, Context(), self._kinds[kind], attributes)
        return _RecordedSpan(span, "")

    def start(
        self,
        name: str,
        parent: TraceContext | None,
        attributes: Attributes | None = None,
        kind: str = INTERNAL,
    ) -> Span:
        if parent is None:
            return NO_SPAN
        from opentelemetry import trace

        remote = trace.SpanContext(
            parent.trace_id,
            parent.span_id,
            is_remote=True,
            trace_flags=trace.TraceFlags(trace.TraceFlags.SAMPLED),
            trace_state=trace.TraceState.from_header([parent.tracestate])
            if parent.tracestate
            else None,
        )
        context = trace.set_span_in_context(trace.NonRecordingSpan(remote))
        span = self._tracer.start_span(name, context, self._kinds[kind], attributes)
        return _RecordedSpan(span, parent.tracestate)

    def shutdown(self) -> None:
        # The SDK goes on trying a collector that is down for far longer than anybody waits.
        last = threading.Thread(target=self._provider.shutdown, daemon=True)
        last.start()
        last.join(_SHUTDOWN_SECONDS)
        if last.is_alive():
            logger.warning("the last spans were not sent within %d s", _SHUTDOWN_SECONDS)


def tracer_from_environment(service_name: str) -> Tracer:
    """The tracer that the standard `OTEL_*` variables ask for.

    Without `OTEL_EXPORTER_OTLP_ENDPOINT` (or `..._TRACES_ENDPOINT`) nothing is sampled and the
    SDK is not even imported. `OTEL_EXPORTER_OTLP_PROTOCOL` is `http/protobuf` unless set to
    `grpc`; `OTEL_TRACES_SAMPLER` may be any of the standard six, `OTEL_SERVICE_NAME` overrides
    the service's name.

    Raises:
        ValueError: a variable has a value that is not allowed; the message names both.
    """
    env = os.environ
    endpoint = env.get("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT") or env.get(
        "OTEL_EXPORTER_OTLP_ENDPOINT"
    )
    disabled = env.get("OTEL_SDK_DISABLED", "").lower() == "true"
    if not endpoint or disabled or env.get("OTEL_TRACES_EXPORTER", "otlp") == "none":
        return Tracer()
    ratio = _sampling_ratio(env)
    if ratio == 0.0:
        return Tracer()
    return _OtelTracer(_provider(service_name, env), ratio)


def _sampling_ratio(env: Mapping[str, str]) -> float:
    """At the edge there is no parent, so the parent-based samplers equal their roots."""
    sampler = env.get("OTEL_TRACES_SAMPLER", "parentbased_always_on").removeprefix("parentbased_")
    if sampler in ("always_on", "always_off"):
        return 1.0 if sampler == "always_on" else 0.0
    if sampler != "traceidratio":
        raise ValueError(
            f"OTEL_TRACES_SAMPLER={env['OTEL_TRACES_SAMPLER']!r}: allowed are always_on, "
            "always_off, traceidratio, each also with the prefix parentbased_"
        )
    text = env.get("OTEL_TRACES_SAMPLER_ARG", "1.0")
    try:
        ratio = float(text)
    except ValueError:
        ratio = -1.0
    if not 0.0 <= ratio <= 1.0:
        raise ValueError(f"OTEL_TRACES_SAMPLER_ARG={text!r}: allowed is a number from 0.0 to 1.0")
    return ratio


def _provider(service_name: str, env: Mapping[str, str]) -> TracerProvider:
    from opentelemetry.sdk.resources import SERVICE_NAME, Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter
    from opentelemetry.sdk.trace.sampling import ALWAYS_ON

    protocol = (
        env.get("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL")
        or env.get("OTEL_EXPORTER_OTLP_PROTOCOL")
        or "http/protobuf"
    )
    exporter: SpanExporter
    if protocol == "http/protobuf":
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

        exporter = OTLPSpanExporter()
    elif protocol == "grpc":
        from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import (
            OTLPSpanExporter as GrpcSpanExporter,
        )

        exporter = GrpcSpanExporter()
    else:
        raise ValueError(
            f"OTEL_EXPORTER_OTLP_PROTOCOL={protocol!r}: allowed are http/protobuf and grpc"
        )
    resource = Resource.create({SERVICE_NAME: env.get("OTEL_SERVICE_NAME", service_name)})
    # The edge has decided before the SDK is asked, so the SDK's own sampler must not decide again.
    provider = TracerProvider(sampler=ALWAYS_ON, resource=resource, shutdown_on_exit=False)
    provider.add_span_processor(BatchSpanProcessor(exporter))
    return provider
