"""The last traces, bounded by bytes. Pure."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from quafka_console.data.traces.spans import TraceSpan, memory_of
from quafka_telemetry import semconv

_MOST_SPANS = 1_000
"""Of one trace; what comes later is dropped."""


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
        return self.root.name == semconv.REQUEST or not self.root.parent_id

    @property
    def end(self) -> int:
        """When the trace ended, so far."""
        return max(each.end for each in self.spans)

    @property
    def waiting_seconds(self) -> float:
        """The time in which the request waited for records, or for other members of its group."""
        try:
            return max(0.0, float(self.root.attributes.get(semconv.PARKED_MS, "0"))) / 1e3
        except ValueError:  # it is not of a gateway
            return 0.0

    @property
    def working_seconds(self) -> float:
        """The request's duration without the time in which it waited."""
        return max(0.0, self.root.seconds - self.waiting_seconds)

    @property
    def failed(self) -> bool:
        """Whether a span has an error."""
        return any(each.failed for each in self.spans)

    def values(self, name: str) -> list[str]:
        """The different values of an attribute, of any span."""
        found = (each.attributes.get(name, "") for each in self.spans)
        return list(dict.fromkeys(value for value in found if value))

    @property
    def topics(self) -> list[str]:
        """The topics that it names."""
        named = [place.topic for each in self.spans for place in each.places]
        return list(dict.fromkeys([*self.values(semconv.DESTINATION), *named]))

    @property
    def links(self) -> list[str]:
        """The ids of other traces that it links to."""
        every = dict.fromkeys(link for each in self.spans for link in each.links)
        return [each for each in every if each != self.trace_id]


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
            size = memory_of(span)
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


def _root_first(span: TraceSpan) -> tuple[bool, int]:
    return span.name != semconv.REQUEST, span.start
