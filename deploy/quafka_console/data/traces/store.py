"""The last traces, bounded by bytes. Pure."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from sys import getsizeof

_SPAN_BYTES = 700
"""Of a span, its numbers and its trace, if that has one span."""
_MOST_SPANS = 1_000
"""Of one trace; what comes later is dropped."""
_REQUEST = "gateway.kafka.request"
_PARKS = (".park", "await_owner")


@dataclass(frozen=True, slots=True)
class TraceSpan:
    """A span. Times in ns since 1970."""

    trace_id: str
    span_id: str
    parent_id: str
    name: str
    service: str
    start: int
    end: int
    attributes: Mapping[str, str]
    failed: bool = False

    @property
    def is_wait(self) -> bool:
        """Whether it is the time that something waits for records, or for others."""
        return self.name.endswith(_PARKS)

    @property
    def seconds(self) -> float:
        """Its duration."""
        return max(0, self.end - self.start) / 1e9


@dataclass(slots=True)
class StoredTrace:
    """The spans of a trace that have come so far."""

    trace_id: str
    root: TraceSpan
    """The request, if it has come; else the span that began first."""
    start: int
    """When it began."""
    spans: list[TraceSpan] = field(default_factory=list[TraceSpan])
    size: int = 0

    @property
    def has_root(self) -> bool:
        """Whether the request has come, or the trace is of something else and begins at a span."""
        return self.root.name == _REQUEST or not self.root.parent_id

    @property
    def end(self) -> int:
        """When the trace ended, so far."""
        return max(each.end for each in self.spans)

    @property
    def waiting_seconds(self) -> float:
        """The time in which the request waited: that of the longest wait of each service."""
        longest: dict[str, float] = {}
        for each in self.spans:
            if each.is_wait:
                longest[each.service] = max(longest.get(each.service, 0.0), each.seconds)
        return max(longest.values(), default=0.0)

    @property
    def failed(self) -> bool:
        """Whether a span has an error."""
        return any(each.failed for each in self.spans)

    def values(self, name: str) -> list[str]:
        """The different values of an attribute, of any span."""
        found = (each.attributes.get(name, "") for each in self.spans)
        return list(dict.fromkeys(value for value in found if value))


class TraceStore:
    """The traces that came last; when there are too many bytes, those leave first to which nothing
    came for the longest time. One trace has a quarter of the bytes at most.
    """

    def __init__(self, most_bytes: int) -> None:
        self.size = 0
        self._most = most_bytes
        self._traces: OrderedDict[str, StoredTrace] = OrderedDict()

    def __len__(self) -> int:
        return len(self._traces)

    def add(self, spans: Iterable[TraceSpan]) -> None:
        """Keep spans."""
        for span in spans:
            trace = self._traces.get(span.trace_id)
            held, count = (0, 0) if trace is None else (trace.size, len(trace.spans))
            size = _memory_of(span)
            if count >= _MOST_SPANS or held + size > self._most // 4:
                continue
            if trace is None:
                trace = self._traces[span.trace_id] = StoredTrace(span.trace_id, span, span.start)
            self._traces.move_to_end(span.trace_id)
            trace.spans.append(span)
            trace.start = min(trace.start, span.start)
            trace.root = min(trace.root, span, key=_root_first)
            trace.size += size
            self.size += size
            while self.size > self._most:
                _, oldest = self._traces.popitem(last=False)
                self.size -= oldest.size

    def find(self, trace_id: str) -> StoredTrace | None:
        """A trace by its id, in hex."""
        return self._traces.get(trace_id)

    def last(self) -> Sequence[StoredTrace]:
        """The traces of which the beginning has come; those that began last first."""
        whole = (each for each in self._traces.values() if each.has_root)
        return sorted(whole, key=lambda each: each.start, reverse=True)


@dataclass(frozen=True, slots=True)
class TraceRow:
    """A span in a waterfall. `depth`: below how many others; `left`, `width`: of the whole."""

    span: TraceSpan
    depth: int
    left: float
    width: float


def waterfall(trace: StoredTrace) -> list[TraceRow]:
    """The spans as a tree, children in the order of their beginning.

    A span whose parent has not come is a root. Clocks of several hosts may differ: a span is shown
    where its own host's clock has it.
    """
    children: dict[str, list[TraceSpan]] = {}
    known = {each.span_id for each in trace.spans}
    for each in trace.spans:
        parent = each.parent_id if each.parent_id in known else ""
        children.setdefault(parent, []).append(each)
    begin, whole = trace.start, max(1, trace.end - trace.start)
    rows: list[TraceRow] = []
    seen: set[str] = set()
    stack = [(each, 0) for each in sorted(children.get("", []), key=_begin, reverse=True)]
    while stack:
        span, depth = stack.pop()
        if span.span_id in seen:
            continue
        seen.add(span.span_id)
        width = max(0, span.end - span.start) / whole
        rows.append(TraceRow(span, depth, max(0.0, (span.start - begin) / whole), width))
        below = sorted(children.get(span.span_id, []), key=_begin, reverse=True)
        stack += [(each, depth + 1) for each in below]
    return rows


def _memory_of(span: TraceSpan) -> int:
    """The bytes that a span takes, its share of its trace included."""
    texts = (span.trace_id, span.span_id, span.parent_id, span.name, span.service)
    size = _SPAN_BYTES + getsizeof(span.attributes) + sum(map(getsizeof, texts))
    return size + sum(getsizeof(k) + getsizeof(v) for k, v in span.attributes.items())


def _root_first(span: TraceSpan) -> tuple[bool, int]:
    return span.name != _REQUEST, span.start


def _begin(span: TraceSpan) -> int:
    return span.start
