"""The spans of traces as a tree on a line of time. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from quafka_console.data.traces.spans import TraceSpan
from quafka_console.data.traces.store import StoredTrace


@dataclass(frozen=True, slots=True)
class TraceRow:
    """A span in a waterfall. `depth`: below how many others; `left`, `width`: of the whole."""

    span: TraceSpan
    depth: int
    left: float
    width: float


def waterfall(trace: StoredTrace, begin: int = 0, end: int = 0) -> list[TraceRow]:
    """The spans as a tree, children in the order of their beginning.

    A span whose parent has not come is a root. Times are those of the gateway's clock: where the
    clock of another process differs so much that a call would end outside of its caller's span,
    all spans of that process are moved.

    Args:
        begin, end: the times, in ns since 1970, at the left and the right; 0: those of the trace.
            Spans are cut there.
    """
    children: dict[str, list[TraceSpan]] = {}
    spans = _on_one_clock(trace.spans)
    known = {each.span_id for each in spans}
    for each in spans:
        parent = each.parent_id if each.parent_id in known else ""
        children.setdefault(parent, []).append(each)
    begin = begin or min(each.start for each in spans)
    whole = max(1, (end or max(each.end for each in spans)) - begin)
    rows: list[TraceRow] = []
    seen: set[str] = set()
    stack = [(each, 0) for each in sorted(children.get("", []), key=_begin, reverse=True)]
    while stack:
        span, depth = stack.pop()
        if span.span_id in seen:
            continue
        seen.add(span.span_id)
        left = min(1.0, max(0.0, (span.start - begin) / whole))
        right = min(1.0, max(left, (span.end - begin) / whole))
        rows.append(TraceRow(span, depth, left, right - left))
        below = sorted(children.get(span.span_id, []), key=_begin, reverse=True)
        stack += [(each, depth + 1) for each in below]
    return rows


def _on_one_clock(spans: Sequence[TraceSpan]) -> list[TraceSpan]:
    """The spans with the times of a caller's clock, as far as calls show that others differ."""
    callers = {each.span_id: each for each in spans if each.is_client}
    pairs = ((callers.get(each.parent_id), each) for each in spans if each.is_server)
    shifts = _shifts((caller, called) for caller, called in pairs if caller is not None)
    return [
        replace(each, start=each.start + shift, end=each.end + shift)
        if (shift := shifts.get(each.instance, 0))
        else each
        for each in spans
    ]


def _shifts(calls: Iterable[tuple[TraceSpan, TraceSpan]]) -> Mapping[str, int]:
    """What is added to the times of each process that was called, in ns: the first call decides."""
    found: dict[str, int] = {}
    for caller, called in calls:
        within = caller.start <= called.start and called.end <= caller.end
        if caller.instance != called.instance and called.instance not in found:
            middle = caller.start + caller.end - called.start - called.end
            found[called.instance] = 0 if within else middle // 2
    return found


def _begin(span: TraceSpan) -> int:
    return span.start
