"""The path of one record: the request that produced it, and the fetches that delivered it."""

from __future__ import annotations

from collections.abc import Sequence

from nicegui import ui

from quafka_console.data.traces.search import path_of, title_of
from quafka_console.data.traces.store import StoredTrace
from quafka_console.data.traces.waterfall import waterfall
from quafka_console.data.typed import whole_number
from quafka_console.session import CONSOLE_CLIENT, ConsoleSession, Query
from quafka_console.views.parts import address, formats, spans, states
from quafka_telemetry import semconv

PATH = "/record"
_SHOWN_BEFORE = 5
_LONGEST_GAP = 4
"""Requests are drawn on one line of time if it is at most this many times as long as they are."""


async def show(session: ConsoleSession, query: Query) -> None:
    """Build the page."""
    await session.check_operator()
    topic = query.get("topic", "")
    partition = whole_number(query.get("partition", ""), "a partition")
    offset = whole_number(query.get("offset", ""), "an offset")
    about = {"topic": topic, "partition": str(partition)}
    with ui.row().classes("items-center w-full gap-3"):
        title = f"{formats.shown(topic)}, partition {partition}, offset {offset:,}"
        ui.label(title).classes("text-h5 q-name")
        ui.space()
        at = {"from": "offset", "at": str(offset)}
        ui.link("The record", address.link("/messages", **about, **at))
    path = await path_of(session.traces, topic, partition, offset, CONSOLE_CLIENT)
    requests = [*([path.produced] if path.produced else []), *path.delivered]
    if not requests:
        states.empty(
            "No trace of this record is here",
            "The requests that wrote and read it were not sampled, or newer traces have replaced "
            "theirs.",
        )
        return
    if path.produced is None:
        ui.label("The request that produced it is not here.").classes("q-soft")
    if not path.delivered:
        ui.label("No sampled fetch has returned it yet.").classes("q-soft")
    if path.produced is not None and path.delivered:
        took = (path.delivered[0].root.end - path.produced.root.start) / 1e9
        ui.label(
            f"{formats.duration(max(0.0, took))} from the producer's request to the first traced "
            "answer that delivered it"
        ).classes("q-fact")
    begin, end = _line_of_time(requests, path.produced)
    for each in requests:
        _request(session, each, path.produced, begin, end)


def _line_of_time(requests: Sequence[StoredTrace], produced: StoredTrace | None) -> tuple[int, int]:
    """The begin and the end of all in ns since 1970; 0, 0: they are too far apart for one line.

    What fetches waited before the record was there is cut, but for its end.
    """
    begin, end = min(each.start for each in requests), max(each.end for each in requests)
    busy = sum(each.end - each.start for each in requests)
    if end - begin > _LONGEST_GAP * busy:
        return 0, 0
    if produced is not None:
        begin = max(begin, produced.start - (end - produced.start) // _SHOWN_BEFORE)
    return begin, end


def _request(
    session: ConsoleSession,
    trace: StoredTrace,
    produced: StoredTrace | None,
    begin: int,
    end: int,
) -> None:
    client = ", ".join(trace.values(semconv.CLIENT_ID))
    by = f" by {client}" if client else ""
    ui.label(formats.shown(f"{title_of(trace)}{by}")).classes("q-heading")
    with ui.row().classes("gap-3 items-center"):
        ui.label(formats.shown(_sentence(trace, produced))).classes("q-soft")
        ui.link("trace", address.link(spans.TRACE_PATH, id=trace.trace_id))
        spans.elsewhere(session, trace.trace_id)
    spans.draw(waterfall(trace, begin, end))


def _sentence(trace: StoredTrace, produced: StoredTrace | None) -> str:
    took, waited = formats.duration(trace.working_seconds), trace.waiting_seconds
    waiting = f", after waiting {formats.duration(waited)} for records" if waited else ""
    if trace is produced:
        return f"durable and answered after {took}"
    if produced is None:
        return f"answered after {took} of work{waiting}"
    later = (trace.root.end - produced.root.end) / 1e9
    when = f"{formats.duration(abs(later))} {'after' if later >= 0 else 'before'}"
    return f"delivered {when} the producer's answer, with {took} of work{waiting}"
