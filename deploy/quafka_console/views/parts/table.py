"""Tables: dense, with links and marks; long ones are paged by the server.

Values reach the browser as data, and Vue writes them as text: the templates here are constants.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any

from nicegui import ui

from quafka_console.data.paging import PageOf
from quafka_console.views.parts.formats import number, utc

_CELL = """
<q-td :props="props" :class="props.row._bad && props.row._bad[props.col.name] ? 'q-bad' : ''">
  <a v-if="props.row._href && props.row._href[props.col.name]"
     :href="props.row._href[props.col.name]">{{ props.value }}</a>
  <span v-else-if="props.row._at && props.row._at[props.col.name]" :title="props.value">{{
    new Date(props.row._at[props.col.name] * 1000).toLocaleString() }}</span>
  <span v-else :title="props.row._hint && props.row._hint[props.col.name]">{{ props.value }}</span>
</q-td>
"""


@dataclass(frozen=True, slots=True)
class Column:
    """A column. `wide`: may break its lines; `numeric`: aligned to the right."""

    name: str
    label: str
    numeric: bool = False
    wide: bool = False


@dataclass(frozen=True, slots=True)
class Shown:
    """A cell with a link, a hint on hover, or a mark that it needs attention.

    `at`: a time in seconds since 1970, shown in the reader's zone; the text is then the hint.
    """

    text: str
    href: str = ""
    hint: str = ""
    bad: bool = False
    at: float = 0.0


def moment(unix: float) -> Shown:
    """A time, in the reader's zone; on hover, exact and in UTC."""
    return Shown(utc(unix), at=unix)


def table(
    columns: Sequence[Column],
    rows: Sequence[Sequence[str | Shown]],
    *,
    on_pick: Callable[[int], Awaitable[None]] | None = None,
) -> ui.table:
    """A table; `on_pick` gets the number of the row that is clicked."""
    shown = ui.table(
        columns=[_column(each) for each in columns],
        rows=[_row(at, columns, row) for at, row in enumerate(rows)],
        row_key="_number",
        pagination=0,
    )
    shown.props("flat dense hide-pagination :rows-per-page-options=[0] wrap-cells=false")
    shown.classes("w-full q-dense-table")
    shown.add_slot("body-cell", _CELL)
    if on_pick is not None:
        shown.classes("cursor-pointer")
        shown.on(
            "rowClick",
            lambda event: on_pick(int(event.args[1]["_number"])),
            [[], ["_number"], None],
        )
    return shown


def refill(
    shown: ui.table, columns: Sequence[Column], rows: Sequence[Sequence[str | Shown]]
) -> None:
    """Replace the rows of a table."""
    shown.rows = [_row(at, columns, row) for at, row in enumerate(rows)]


def _column(column: Column) -> dict[str, Any]:
    return {
        "name": column.name, "label": column.label, "field": column.name,
        "align": "right" if column.numeric else "left",
        "classes": "q-wide" if column.wide else "",
    }  # fmt: skip


def _row(at: int, columns: Sequence[Column], row: Sequence[str | Shown]) -> dict[str, Any]:
    found: dict[str, Any] = {"_number": at}
    for column, cell in zip(columns, row, strict=True):
        if isinstance(cell, str):
            found[column.name] = cell
            continue
        found[column.name] = cell.text
        marks = ("_href", cell.href), ("_hint", cell.hint), ("_bad", cell.bad), ("_at", cell.at)
        for key, value in marks:
            if value:
                found.setdefault(key, {})[column.name] = value
    return found


def pager(page: PageOf[Any], what: str, go: Callable[[int], Any]) -> None:
    """What the page shows of the list, and buttons to the others."""
    first = page.number * page.size + 1 if page.matching else 0
    last = min(page.matching, (page.number + 1) * page.size)
    of = f" (of {number(page.total)})" if page.matching != page.total else ""
    with ui.row().classes("items-center gap-2 q-pager"):
        ui.label(f"{number(first)}–{number(last)} of {number(page.matching)} {what}{of}").classes(
            "q-soft"
        )
        if page.pages > 1:
            back = ui.button(icon="chevron_left", on_click=lambda: go(page.number - 1))
            on = ui.button(icon="chevron_right", on_click=lambda: go(page.number + 1))
            for button, label, off in (
                (back, "previous page", page.number == 0),
                (on, "next page", page.number + 1 >= page.pages),
            ):
                button.props(f'flat dense round aria-label="{label}"')
                button.set_enabled(not off)
