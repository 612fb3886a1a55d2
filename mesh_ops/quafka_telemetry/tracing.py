"""Trace context and spans, at no cost when nobody looks.

The sampling decision is taken once, at the edge (`sampling.py`): an unsampled request carries no
context at all, and every later hop sees that in one comparison. The context crosses the mesh as a
W3C `traceparent` and `tracestate` in the envelope. Names are in `semconv.py`; how spans leave the
process is in `otlp.py`, which is imported only where there is an endpoint to send them to.

Waiting is not latency: what a request waits for others, for records to come or for a group's
members, is a span of its own.
"""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import NamedTuple, Protocol

from quafka_proto.errors import ErrorCode
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

# Answers that are part of a protocol's course: said in an event, but not a failure.
_ORDINARY = {
    ErrorCode.name_of(code)
    for code in (ErrorCode.MEMBER_ID_REQUIRED, ErrorCode.REBALANCE_IN_PROGRESS)
}


@dataclass(frozen=True, slots=True)
class TraceContext:
    """Where a span stands in a sampled trace. An unsampled one has no TraceContext."""

    trace_id: int
    span_id: int
    tracestate: str = ""

    @property
    def traceparent(self) -> str:
        """The W3C header value; the sampled flag is always set."""
        return f"00-{self.trace_hex}-{self.span_hex}-01"

    @property
    def trace_hex(self) -> str:
        """The trace's id as W3C and the UIs write it: 32 hex digits."""
        return f"{self.trace_id:032x}"

    @property
    def span_hex(self) -> str:
        """The span's: 16 of them."""
        return f"{self.span_id:016x}"


class ClientContext(NamedTuple):
    """What a client says of the trace that it is in."""

    context: TraceContext
    sampled: bool


def parse_client(traceparent: str, tracestate: str = "") -> ClientContext | None:
    """What a W3C header says, or None where it is absent or invalid."""
    match = _TRACEPARENT.fullmatch(traceparent)
    if match is None:
        return None
    trace_id, span_id, flags = (int(group, 16) for group in match.groups())
    if not (trace_id and span_id):
        return None
    context = TraceContext(trace_id, span_id, tracestate and _whole_members(tracestate))
    return ClientContext(context, bool(flags & 1))


def _whole_members(tracestate: str) -> str:
    """As many of its members as there is room for; nothing of one that is wrong (W3C 3.3.1)."""
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
    """The context in a W3C header, or None where it is absent, invalid or not sampled."""
    found = parse_client(traceparent, tracestate) if traceparent else None
    return found.context if found is not None and found.sampled else None


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

    def link(self, contexts: Iterable[TraceContext]) -> None:
        """Name other traces that this one has to do with, `MAX_LINKS` at most."""
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
    """The span of everything that is not sampled."""

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


def fail_with(span: Span, error_codes: Iterable[int]) -> None:
    """Mark the span as failed by the first Kafka error among `error_codes`, if there is one."""
    code = next(filter(None, error_codes), 0)
    if code:
        span.fail(ErrorCode.name_of(code))


def is_failure(error: str) -> bool:
    """Whether an answer of this name is one that somebody should look at."""
    return error not in _ORDINARY


class Tracer:
    """Starts spans. This base never samples; `tracer_from_environment` may return one that does.

    Attributes:
        on: whether any span may ever come of this.
        follows_clients: whether a client's own trace context is of interest.
        slow_after: seconds after which a request is traced though it was not sampled.
        traces_failed: whether one that has failed is.
        started: spans begun.
        dropped: of those that ended, how many no collector has taken, or will.
        queued: how many wait to be sent.
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
        """Start a trace here, or this product's part of a client's, if it is to be sampled."""
        return NO_SPAN

    def late_root(self, name: str, reason: str, attributes: Attributes, begun: int) -> Span:
        """The trace of a request that was not sampled and is over, if there is room for it."""
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

        `begun`: when, in ns since the epoch, if not now.
        """
        return NO_SPAN

    def shutdown(self) -> None:
        """Export what is queued, for a few seconds at most. Blocks: call it off the event loop."""


class ProducedBy:
    """Which sampled produces wrote batches: the newest few thousand. Empty when nobody looks."""

    def __init__(self, limit: int = _REMEMBERED) -> None:
        self._limit = limit
        self._known: OrderedDict[tuple[Hashable, int], TraceContext] = OrderedDict()

    def __len__(self) -> int:
        return len(self._known)

    def note(self, partition: Hashable, base_offset: int, context: TraceContext) -> None:
        """The batch at `base_offset` is from there."""
        self._known[partition, base_offset] = context
        if len(self._known) > self._limit:
            self._known.popitem(last=False)

    def find(self, partition: Hashable, base_offset: int) -> TraceContext | None:
        """Where the batch is from, if that is known."""
        return self._known.get((partition, base_offset))
