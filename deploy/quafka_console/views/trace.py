"""One trace: where its time went, and the traces and records that it is linked with."""

from __future__ import annotations

from collections.abc import Sequence

from nicegui import ui

from quafka_console.data.traces.search import linking, title_of
from quafka_console.data.traces.spans import TracedPlace
from quafka_console.data.traces.store import StoredTrace
from quafka_console.data.traces.waterfall import waterfall
from quafka_console.session import ConsoleSession, Query
from quafka_console.views.parts import address, formats, spans, states
from quafka_telemetry import semconv

PATH = spans.TRACE_PATH
_MOST_PLACES = 16


async def show(session: ConsoleSession, query: Query) -> None:
    """Build the page."""
    await session.check_operator()
    trace = session.traces.find(query.get("id", ""))
    if trace is None:
        states.empty(
            "This trace is not here",
            "The console keeps the latest traces (console.traces.bytes); this one is older, or was "
            "not exported to it.",
        )
        spans.elsewhere(session, query.get("id", ""))
        return
    ui.label(formats.shown(title_of(trace))).classes("text-h5 q-name")
    _facts(trace)
    spans.draw(waterfall(trace))
    spans.elsewhere(session, trace.trace_id)
    _carried(trace)
    found = [session.traces.find(each) for each in trace.links]
    _linked("Linked from this trace, such as who produced its records", found)
    _linked(
        "Linked to this trace, such as who fetched its records",
        await linking(session.traces, trace.trace_id),
    )


def _facts(trace: StoredTrace) -> None:
    named = (
        ("topics", trace.topics),
        ("client", trace.values(semconv.CLIENT_ID)),
        ("group", trace.values(semconv.GROUP)),
        ("org", trace.values(semconv.ORG)),
    )
    facts = [
        ("began", formats.utc(trace.start / 1e9)),
        ("took, without waiting", formats.duration(trace.working_seconds)),
        ("waited", formats.duration(trace.waiting_seconds)),
        *((name, ", ".join(values)) for name, values in named if values),
        ("trace id", trace.trace_id),
    ]
    with ui.row().classes("w-full q-facts"):
        for name, value in facts:
            with ui.column().classes("gap-0"):
                ui.label(name).classes("q-soft text-caption")
                ui.label(formats.shown(value)).classes("q-fact")


def _carried(trace: StoredTrace) -> None:
    """Links to the records that it wrote or returned."""
    places = dict.fromkeys(
        each for span in trace.spans for each in span.places if each.first >= 0
    )  # fmt: skip
    if not places:
        return
    ui.label("Records").classes("q-heading")
    for each in list(places)[:_MOST_PLACES]:
        with ui.row().classes("gap-3"):
            ui.label(formats.shown(_range(each)))
            about = {"topic": each.topic, "partition": str(each.partition)}
            ui.link("messages", address.link(
                "/messages", **about, **{"from": "offset", "at": str(each.first)},
            ))  # fmt: skip
            path = address.record_path(each.topic, each.partition, each.first)
            ui.link("path of the first", path)


def _range(place: TracedPlace) -> str:
    offsets = f"offset {place.first:,}"
    if place.last > place.first:
        offsets = f"offsets {place.first:,} to {place.last:,}"
    return f"{place.topic}, partition {place.partition}, {offsets}"


def _linked(heading: str, traces: Sequence[StoredTrace | None]) -> None:
    here = [each for each in traces if each is not None]
    if not here:
        return
    ui.label(heading).classes("q-heading")
    for each in here:
        with ui.row().classes("gap-3"):
            client = ", ".join(each.values(semconv.CLIENT_ID))
            took = formats.duration(each.working_seconds)
            ui.link(formats.shown(title_of(each)), address.link(PATH, id=each.trace_id))
            ui.label(formats.shown(f"{client}, {took}, {formats.utc(each.start / 1e9)}"))
