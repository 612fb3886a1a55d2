"""Waterfalls: the spans of a trace, each with its bar, its duration, and its attributes."""

from __future__ import annotations

import re
from collections.abc import Sequence

from nicegui import ui

from quafka_console.data.traces.spans import TraceSpan
from quafka_console.data.traces.waterfall import TraceRow
from quafka_console.session import ConsoleSession
from quafka_console.views.parts import formats

TRACE_PATH = "/trace"
_TRACE_ID = re.compile(r"[0-9a-f]{32}")


def draw(rows: Sequence[TraceRow]) -> None:
    """Draw the rows of a waterfall."""
    with ui.column().classes("q-waterfall w-full gap-0"):
        for row in rows:
            _bar(row)


def elsewhere(session: ConsoleSession, trace_id: str) -> None:
    """A link to a trace in another tracing UI, if the settings name one."""
    if session.trace_url and _TRACE_ID.fullmatch(trace_id):
        url = session.trace_url.replace("{trace_id}", trace_id)
        ui.link("The trace in the tracing UI", url, new_tab=True)


def _bar(row: TraceRow) -> None:
    """A span; a click shows its attributes."""
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
        for text in _records(span):
            ui.label(formats.shown(text, 700)).classes("q-mono")
    shown.set_visibility(False)
    details.append(shown)


def _records(span: TraceSpan) -> list[str]:
    """The partitions of a span that has several, with offsets."""
    if len(span.places) < 2:
        return []
    return [
        f"{each.topic}, partition {each.partition}"
        + (f", offsets {each.first:,} to {each.last:,}" if each.first >= 0 else "")
        for each in span.places
    ]
