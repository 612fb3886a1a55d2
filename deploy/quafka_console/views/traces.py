"""The last traces, and one of them: where the time of a request went."""

from __future__ import annotations

from nicegui import ui

from quafka_console.data.paging import PageOf, matches, page_of
from quafka_console.data.traces.store import StoredTrace, TraceRow, waterfall
from quafka_console.session import ConsoleSession, Query
from quafka_console.views.parts import address, formats, states
from quafka_console.views.parts.table import Column, Shown, moment
from quafka_console.views.searched import SearchedList
from quafka_loop.slices import listed

PATH, ONE_PATH = "/traces", "/trace"
_COLUMNS = (
    Column("began", "Began"),
    Column("request", "Request", wide=True),
    Column("topics", "Topics", wide=True),
    Column("client", "Client"),
    Column("took", "Took, without waiting", numeric=True),
    Column("waited", "Waited", numeric=True),
    Column("spans", "Spans", numeric=True),
)
_API, _TOPIC, _CLIENT, _GROUP = (
    "messaging.operation.name", "messaging.destination.name", "messaging.client.id",
    "messaging.consumer.group.name",
)  # fmt: skip


async def show(session: ConsoleSession, query: Query) -> None:
    """Build the list."""

    async def read(search: str, number: int) -> PageOf[StoredTrace]:
        await session.check_operator()
        every = session.traces.last()
        found = await listed(each for each in every if matches(search, *_texts(each)))
        cut = page_of(found, number=number)
        return PageOf(cut.rows, len(every), cut.matching, cut.number, cut.size)

    await SearchedList(
        PATH, "traces", _COLUMNS, read, _row,
        (
            "No traces yet",
            "Start the programs with OTEL_EXPORTER_OTLP_ENDPOINT=" + session.here + " and they "
            "export here.",
        ),
    ).build(query)  # fmt: skip


def _texts(trace: StoredTrace) -> list[str]:
    root = trace.root
    names = (_API, _TOPIC, _CLIENT, _GROUP)
    found = [value for name in names for value in trace.values(name)]
    return [trace.trace_id, root.name, *found, "error" if trace.failed else ""]


def _title(trace: StoredTrace) -> str:
    root = trace.root
    return root.attributes.get("rpc.method") or root.attributes.get(_API) or root.name


def _row(trace: StoredTrace) -> list[str | Shown]:
    waited = trace.waiting_seconds
    took = max(0.0, trace.root.seconds - waited)
    return [
        moment(trace.start / 1e9),
        Shown(
            formats.shown(_title(trace)),
            href=address.link(ONE_PATH, id=trace.trace_id),
            bad=trace.failed,
        ),
        formats.shown(", ".join(trace.values(_TOPIC))),
        formats.shown(", ".join(trace.values(_CLIENT))),
        formats.duration(took),
        formats.duration(waited) if waited else "",
        formats.number(len(trace.spans)),
    ]


async def show_one(session: ConsoleSession, query: Query) -> None:
    """Build the page of one trace."""
    await session.check_operator()
    trace = session.traces.find(query.get("id", ""))
    if trace is None:
        states.empty("This trace is not here", "It has left, or was never sent here.")
        return
    root, waited = trace.root, trace.waiting_seconds
    ui.label(formats.shown(_title(trace))).classes("text-h5 q-name")
    facts = [
        ("began", formats.utc(trace.start / 1e9)),
        ("took, without waiting", formats.duration(max(0.0, root.seconds - waited))),
        ("waited", formats.duration(waited)),
        ("topics", ", ".join(trace.values(_TOPIC)) or formats.NOTHING),
        ("client", ", ".join(trace.values(_CLIENT)) or formats.NOTHING),
        ("trace id", trace.trace_id),
    ]
    with ui.row().classes("w-full q-facts"):
        for name, value in facts:
            with ui.column().classes("gap-0"):
                ui.label(name).classes("q-soft text-caption")
                ui.label(formats.shown(value)).classes("q-fact")
    with ui.column().classes("q-waterfall w-full gap-0"):
        for row in waterfall(trace):
            _bar(row)


def _bar(row: TraceRow) -> None:
    """A span: its name, its bar, its duration; a click shows its attributes."""
    span = row.span
    details: list[ui.column] = []
    line = ui.row().classes("q-span items-center no-wrap w-full")
    line.on("click", lambda: details[0].set_visibility(not details[0].visible))
    with line:
        label = ui.label(formats.shown(span.name)).classes("q-span-name")
        label.style(f"padding-left: {min(row.depth, 12) * 12}px")
        with ui.element("div").classes("q-span-line"):
            kind = "q-wait" if span.is_wait else "q-failed" if span.failed else "q-work"
            left, width = min(row.left, 0.995) * 100, max(row.width * 100, 0.4)
            ui.element("div").classes(f"q-span-bar {kind}").style(
                f"left: {left:.3f}%; width: {min(width, 100 - left):.3f}%"
            )
        ui.label(formats.duration(span.seconds)).classes("q-span-time")
    with ui.column().classes("q-span-details gap-0") as shown:
        ui.label(formats.shown(f"{span.service}, {formats.utc(span.start / 1e9)}"))
        for name, value in span.attributes.items():
            ui.label(formats.shown(f"{name}: {value}", 700)).classes("q-mono")
    shown.set_visibility(False)
    details.append(shown)
