"""Trace context and spans, at next to no cost for requests that are not sampled.

The sampling decision is taken once, at the edge (`sampling.py`): an unsampled request carries no
context, and every later hop detects that in one comparison. The context crosses the mesh as a W3C
`traceparent` and `tracestate` in the envelope. `semconv.py` has the names; `otlp.py` exports the
spans and is imported only if an endpoint is configured (`tracer_setup.py`).

Waiting is not latency: the time that a request waits for records or for the members of a group is
a span of its own.
"""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import NamedTuple, Protocol

from quafka_proto.errors import ErrorCode
from quafka_telemetry import semconv
from quafka_telemetry.expected_errors import is_expected
from quafka_telemetry.sampling import NEVER

AttributeValue = str | int | bool | float
Attributes = Mapping[str, AttributeValue]

INTERNAL, SERVER, CLIENT = "internal", "server", "client"
MAX_LINKS = 16
"""A fetch that returns a thousand batches does not name a thousand producers."""

_TRACEPARENT = re.compile(r"00-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})", re.ASCII)
_KEY = r"[a-z][a-z0-9_\-*/]{0,255}|[a-z0-9][a-z0-9_\-*/]{0,240}@[a-z][a-z0-9_\-*/]{0,13}"
_MEMBER = re.compile(rf"(?:{_KEY})=[ -+\--<>-~]{{0,255}}[!-+\--<>-~]", re.ASCII)
_TRACESTATE_LIMIT = 512  # W3C Trace Context 3.3.1.5: propagate at least this much
_REMEMBERED = 4_096


@dataclass(frozen=True, slots=True)
class TraceContext:
    """The identity of a span in a sampled trace. An unsampled span has no TraceContext."""

    trace_id: int
    span_id: int
    tracestate: str = ""

    @property
    def traceparent(self) -> str:
        """The value of the W3C header, with the sampled flag set."""
        return f"00-{self.trace_hex}-{self.span_hex}-01"

    @property
    def trace_hex(self) -> str:
        """The trace id as W3C and tracing UIs write it: 32 hex digits."""
        return f"{self.trace_id:032x}"

    @property
    def span_hex(self) -> str:
        """The span id: 16 hex digits."""
        return f"{self.span_id:016x}"


def trace_fields(trace: TraceContext | None) -> dict[str, str]:
    """Return `trace_id` and `span_id` as tracing UIs write them; {} if not sampled."""
    if trace is None:
        return {}
    return {"trace_id": trace.trace_hex, "span_id": trace.span_hex}


class ClientContext(NamedTuple):
    """The trace context of a client, and whether the client samples it."""

    context: TraceContext
    sampled: bool


def parse_client(traceparent: str, tracestate: str = "") -> ClientContext | None:
    """Parse a W3C header; None if it is absent or invalid."""
    match = _TRACEPARENT.fullmatch(traceparent)
    if match is None:
        return None
    trace_id, span_id, flags = (int(group, 16) for group in match.groups())
    if not (trace_id and span_id):
        return None
    context = TraceContext(trace_id, span_id, tracestate and _whole_members(tracestate))
    return ClientContext(context, bool(flags & 1))


def _whole_members(tracestate: str) -> str:
    """Return the leading members that fit the limit; "" if one is invalid (W3C 3.3.1)."""
    members = [member.strip(" \t") for member in tracestate.split(",")]
    kept: list[str] = []
    room = _TRACESTATE_LIMIT
    for member in filter(None, members):
        if _MEMBER.fullmatch(member) is None:
            return ""
        room -= len(member) + 1
        if room < -1:
            break
        kept.append(member)
    return ",".join(kept)


def parse_traceparent(traceparent: str, tracestate: str = "") -> TraceContext | None:
    """Parse a W3C header; None if it is absent, invalid or not sampled."""
    found = parse_client(traceparent, tracestate) if traceparent else None
    return found.context if found is not None and found.sampled else None


class Span(Protocol):
    """The work of one hop. As a context manager, it ends with the block."""

    @property
    def context(self) -> TraceContext | None:
        """The identity of the span; None if not sampled: then attributes need not be computed."""
        ...

    def set(self, attributes: Attributes) -> None:
        """Add attributes."""
        ...

    def event(self, name: str, attributes: Attributes | None = None) -> None:
        """Record an event that happens now."""
        ...

    def fail(self, error: str) -> None:
        """Mark the span as failed; `error` is the name of the Kafka error or a short reason."""
        ...

    def link(self, contexts: Iterable[TraceContext]) -> None:
        """Link related traces, each once, `MAX_LINKS` at most."""
        ...

    def end(self, at: int | None = None) -> None:
        """Close the span, now or at a time in ns since the epoch. A second call does nothing."""
        ...

    def __enter__(self) -> Span: ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        tb: TracebackType | None,
    ) -> None: ...


class _NoSpan:
    """The span of all work that is not sampled."""

    __slots__ = ()
    context = None

    def set(self, attributes: Attributes) -> None:
        pass

    def event(self, name: str, attributes: Attributes | None = None) -> None:
        pass

    def fail(self, error: str) -> None:
        pass

    def link(self, contexts: Iterable[TraceContext]) -> None:
        pass

    def end(self, at: int | None = None) -> None:
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


def fail_with(span: Span, error_codes: Iterable[int], *steps: str) -> None:
    """Mark the span as failed by the first failure among Kafka's error codes, if any.

    If all of them are expected, the first one is an event only. `steps`: see `is_expected`.
    """
    expected = 0
    for code in filter(None, error_codes):
        if not is_expected(code, *steps):
            span.fail(ErrorCode.name_of(code))
            return
        expected = expected or code
    if expected:
        span.event(semconv.KAFKA_ERROR, {semconv.ERROR_TYPE: ErrorCode.name_of(expected)})


class Tracer:
    """Starts spans. This base never samples; `tracer_from_environment` may return one that does.

    Attributes:
        on: whether this tracer can sample at all.
        follows_clients: whether a client's own sampling decision applies.
        slow_after: seconds after which an unsampled request is traced late.
        traces_failed: whether a failed unsampled request is traced late.
        started: the number of started spans.
        dropped: the number of ended spans that were not delivered to a collector.
        queued: the number of spans that wait to be sent.
    """

    on = False
    follows_clients = False
    slow_after = NEVER
    traces_failed = False
    started = 0

    @property
    def dropped(self) -> int:
        """See the class."""
        return 0

    @property
    def queued(self) -> int:
        """See the class."""
        return 0

    def root(
        self,
        name: str,
        org: int,
        client: ClientContext | None = None,
        attributes: Attributes | None = None,
        begun: int | None = None,
    ) -> Span:
        """Start a trace, or continue a client's, if the sampler decides so."""
        return NO_SPAN

    def late_root(self, name: str, reason: str, attributes: Attributes, begun: int) -> Span:
        """Trace a finished request that was not sampled, within the bound on late traces."""
        return NO_SPAN

    def own_root(self, name: str, attributes: Attributes, begun: int | None = None) -> Span:
        """Start a trace of rare work of this process, which no client asked for.

        Sampling ratios do not apply; the bound on late traces does.
        """
        return NO_SPAN

    def start(
        self,
        name: str,
        parent: TraceContext | None,
        attributes: Attributes | None = None,
        kind: str = INTERNAL,
        begun: int | None = None,
    ) -> Span:
        """Continue the trace of `parent`; None (not sampled) gives a span that does nothing.

        `begun`: the start time in ns since the epoch, if it is not now.
        """
        return NO_SPAN

    def shutdown(self) -> None:
        """Export the queued spans, for a few seconds at most. Blocks: run it off the event loop."""


class Steps(NamedTuple):
    """Starts the spans of the steps of a larger work.

    Attributes:
        parent: the span of the whole work; None: it is not traced.
    """

    tracer: Tracer
    parent: TraceContext | None

    def begin(
        self, name: str, attributes: Attributes | None = None, begun: int | None = None
    ) -> Span:
        """Start the span of a step. `begun`: see `Tracer.start`."""
        return self.tracer.start(name, self.parent, attributes, begun=begun)


UNTRACED = Steps(Tracer(), None)


class ProducedBy:
    """The trace contexts of the newest few thousand sampled batches, by partition and offset."""

    def __init__(self, limit: int = _REMEMBERED) -> None:
        self._limit = limit
        self._known: OrderedDict[tuple[Hashable, int], TraceContext] = OrderedDict()

    def __len__(self) -> int:
        return len(self._known)

    def record(self, partition: Hashable, base_offset: int, context: TraceContext) -> None:
        """Record the trace that wrote the batch at `base_offset`."""
        self._known[partition, base_offset] = context
        if len(self._known) > self._limit:
            self._known.popitem(last=False)

    def find(self, partition: Hashable, base_offset: int) -> TraceContext | None:
        """Return the trace that wrote the batch, if it is known."""
        return self._known.get((partition, base_offset))
