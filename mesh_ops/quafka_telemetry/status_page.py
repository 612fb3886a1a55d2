"""The operations port's `/statusz`: one HTML page for people, sent while it is rendered.

The page has no script, image or font. Every value is escaped: clients choose the names of clients
and topics.

A client that accepts only `application/json` gets the same sections as one JSON object:

    {"program": "broker", "ready": true, "problems": {}, "time": 1795269300.5, "sections": [
      {"title": "Log", "facts": {"state": "accepts writes", "segments": 3}},
      {"title": "Topics: 1", "columns": ["topic", "records"], "rows": [["orders", 17]],
       "more": false}]}

Numbers have no unit: durations are in seconds, sizes in bytes, times in seconds since 1970.
`more`: whether there are further rows.
"""

from __future__ import annotations

import json
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from itertools import islice
from typing import NamedTuple

from quafka_loop import clock
from quafka_telemetry.metrics import Histogram
from quafka_telemetry.operations import Page, PageReply, PageRequest

_REFRESH_SECONDS = 10
_ROWS = 500
_TRACE_ID = "{trace_id}"
JSON = "application/json"


class Cell(NamedTuple):
    """A value: `numeric` aligns it to the right, `bad` highlights it, `url` makes it a link.

    `value`: what JSON has instead of the text; None: the text.
    """

    text: str
    numeric: bool = False
    bad: bool = False
    url: str = ""
    value: float | str | None = None


class PageTable(NamedTuple):
    """Rows of cells, rendered while they are sent. The page shows a bounded number of them."""

    title: str
    columns: Sequence[str]
    rows: Iterable[Sequence[Cell]]
    nothing: str = "none"


class Facts(NamedTuple):
    """A list of names and values."""

    title: str
    facts: Sequence[tuple[str, Cell]]


Section = PageTable | Facts
Sections = Callable[[], Awaitable[Iterable[Section]]]


def text(value: object, *, bad: bool = False) -> Cell:
    """A cell of text."""
    return Cell(str(value), bad=bad)


def count(value: int, *, bad: bool = False) -> Cell:
    """A cell with a number."""
    return Cell(f"{value:,}", numeric=True, bad=bad, value=value)


def size(value: float) -> Cell:
    """A cell with a number of bytes, in a suitable unit."""
    shown, unit = value, "B"
    for larger in ("KiB", "MiB", "GiB", "TiB"):
        if shown < 1024:
            break
        shown, unit = shown / 1024, larger
    words = f"{shown:,.0f} B" if unit == "B" else f"{shown:,.1f} {unit}"
    return Cell(words, numeric=True, value=value)


def duration(seconds: float | None, *, bad: bool = False) -> Cell:
    """A cell with a duration, in a suitable unit."""
    if seconds is None:
        return Cell("", numeric=True)
    return Cell(_span(seconds), numeric=True, bad=bad, value=seconds)


def _span(seconds: float) -> str:
    if seconds == 0:
        return "0 s"
    for limit, factor, unit in ((1e-3, 1e6, "µs"), (1.0, 1e3, "ms"), (120.0, 1.0, "s")):
        if seconds < limit:
            return f"{seconds * factor:.3g} {unit}"
    for limit, factor, unit in ((7_200.0, 60.0, "min"), (172_800.0, 3_600.0, "h")):
        if seconds < limit:
            return f"{seconds / factor:.0f} {unit}"
    return f"{seconds / 86_400:,.0f} days"


def age(seconds: float | None) -> Cell:
    """A cell with the time for which something has lasted. None: there is no such thing."""
    if seconds is None:
        return Cell("none", numeric=True)
    return duration(seconds) if seconds >= 1 else Cell("under 1 s", numeric=True, value=seconds)


def moment(unix: float) -> Cell:
    """A cell with a time in UTC."""
    return Cell(time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(unix)) + "Z", value=unix)


def trace(trace_id: str, url: str) -> Cell:
    """A cell with a trace id; a link if the address of a tracing UI is configured."""
    if not trace_id:
        return Cell("")
    return Cell(trace_id[:16], url=url.replace(_TRACE_ID, trace_id), value=trace_id)


def served(
    name: str, answered: int, failed: int, seconds: Histogram, parked: float
) -> tuple[Cell, ...]:
    """The cells for one kind of request: name, count, failures, latencies and mean parked time.

    `failed`: without errors that a protocol expects. `parked`: seconds, the sum over all requests.
    """
    return (
        text(name),
        count(answered),
        count(failed, bad=failed > 0),
        duration(seconds.quantile(0.5)),
        duration(seconds.quantile(0.99)),
        duration(parked / answered if parked else None),
    )


@dataclass(frozen=True, slots=True)
class StatusPage:
    """The page of one program. `problems`: the reasons why it is not ready, by part."""

    program: str
    problems: Callable[[], Mapping[str, str]]
    sections: Sections

    @property
    def page(self) -> Page:
        """The page, as the operations port serves it."""

        async def answer(asked: PageRequest) -> PageReply:
            as_json = _wants_json(asked.accept)
            pieces = (_json if as_json else _html)(
                self.program, self.problems(), await self.sections()
            )
            body = (piece.encode(errors="replace") for piece in pieces)
            return PageReply(body, JSON if as_json else "text/html; charset=utf-8")

        return answer


def _wants_json(accept: str) -> bool:
    """Whether an Accept header has JSON and no HTML, as that of a browser has."""
    return JSON in accept and "text/html" not in accept


def _json(program: str, problems: Mapping[str, str], sections: Iterable[Section]) -> Iterator[str]:
    head = {
        "program": program, "ready": not problems, "problems": dict(problems), "time": clock.time()
    }  # fmt: skip
    yield f'{json.dumps(head)[:-1]}, "sections": ['
    for number, section in enumerate(sections):
        yield f'{"," if number else ""}\n{{"title": {json.dumps(section.title)}, '
        if isinstance(section, Facts):
            facts = {name: _value(cell) for name, cell in section.facts}
            yield f'"facts": {json.dumps(facts)}}}'
            continue
        yield f'"columns": {json.dumps(list(section.columns))}, "rows": ['
        rows = iter(section.rows)
        for at, row in enumerate(islice(rows, _ROWS)):
            yield f"{',' if at else ''}\n{json.dumps([_value(cell) for cell in row])}"
        yield f'], "more": {json.dumps(next(rows, None) is not None)}}}'
    yield "]}\n"


def _value(cell: Cell) -> float | str | None:
    """The value of a cell; None: it is empty."""
    return (cell.text or None) if cell.value is None else cell.value


def _html(program: str, problems: Mapping[str, str], sections: Iterable[Section]) -> Iterator[str]:
    state = "ready" if not problems else "not ready"
    why = "; ".join(f"{part}: {problem}" for part, problem in problems.items())
    yield (
        f"<!doctype html><html lang=en><head><meta charset=utf-8>"
        f"<title>Quafka {escape(program)}: {state}</title>"
        f'<meta name=viewport content="width=device-width, initial-scale=1">'
        f'<meta http-equiv=refresh content="{_REFRESH_SECONDS}">'
        f'<meta http-equiv=Content-Security-Policy content="{_POLICY}">'
        f"<style>{_STYLE}</style></head><body><header><h1>Quafka {escape(program)}</h1>"
        f'<p class="{"good" if not problems else "bad"}" role=status>{state}</p>'
        f"<p>{escape(why)}</p><p class=at>{escape(moment(clock.time()).text)}, refreshed every "
        f"{_REFRESH_SECONDS} s</p></header><main>"
    )
    for section in sections:
        yield f"<section><h2>{escape(section.title)}</h2>"
        if isinstance(section, Facts):
            yield "<dl>"
            for name, cell in section.facts:
                yield f"<div><dt>{escape(name)}</dt><dd>{_inner(cell)}</dd></div>"
            yield "</dl>"
        else:
            yield from _table(section)
        yield "</section>"
    yield "</main></body></html>"


def _table(table: PageTable) -> Iterator[str]:
    rows = iter(table.rows)
    first = next(rows, None)
    if first is None:
        yield f"<p>{escape(table.nothing)}</p>"
        return
    heads = (
        f"<th{_class(cell)} scope=col>{escape(name)}</th>"
        for name, cell in zip(table.columns, first, strict=True)
    )
    yield f"<div class=wide><table><thead><tr>{''.join(heads)}</tr></thead><tbody>"
    yield _row(first)
    for row in islice(rows, _ROWS - 1):
        yield _row(row)
    yield "</tbody></table></div>"
    if next(rows, None) is not None:
        yield f"<p>only the first {_ROWS} rows are shown</p>"


def _row(row: Sequence[Cell]) -> str:
    return "<tr>" + "".join(f"<td{_class(cell)}>{_inner(cell)}</td>" for cell in row) + "</tr>"


def _class(cell: Cell) -> str:
    return " class=n" if cell.numeric else ""


def _inner(cell: Cell) -> str:
    shown = escape(cell.text)
    if cell.url:
        return f'<a href="{escape(cell.url)}" rel=noreferrer>{shown}</a>'
    return f"<strong class=bad>{shown}</strong>" if cell.bad else shown


_POLICY = "default-src 'none'; style-src 'unsafe-inline'"
_STYLE = """
:root{color-scheme:light dark;
--page:#f6f7f9;--card:#fff;--ink:#1b2330;--soft:#5b6675;--line:#e1e5ea;
--good:#0a7a45;--bad:#b3261e;--link:#1557b0}
@media(prefers-color-scheme:dark){:root{--page:#12161c;--card:#1a2028;--ink:#e4e8ee;--soft:#98a3b3;
--line:#2b333e;--good:#4cc38a;--bad:#ff8a80;--link:#8ab4f8}}
*{box-sizing:border-box}
body{margin:0;background:var(--page);color:var(--ink);font:14px/1.45 system-ui,sans-serif}
header{display:flex;flex-wrap:wrap;gap:.25rem 1rem;align-items:baseline;padding:1rem 1.25rem 0}
h1{font-size:1.25rem;margin:0}
h2{font-size:.95rem;margin:0 0 .5rem}
header p{margin:0}
header p[role]{font-weight:600}
.good{color:var(--good)}.bad{color:var(--bad)}
.at{color:var(--soft);margin-left:auto}
main{display:grid;gap:1rem;padding:1rem 1.25rem 2rem}
section{background:var(--card);border:1px solid var(--line);border-radius:8px;padding:.9rem 1rem;
min-width:0}
section>p{color:var(--soft);margin:.25rem 0 0}
.wide{overflow-x:auto}
table{border-collapse:collapse;width:100%;font-variant-numeric:tabular-nums}
th{color:var(--soft);font-weight:500;text-align:left}
th,td{padding:.3rem .75rem .3rem 0;border-bottom:1px solid var(--line);white-space:nowrap}
tbody tr:last-child td{border-bottom:0}
.n{text-align:right}
.n+:not(.n){padding-left:1rem}
dl{display:grid;grid-template-columns:repeat(auto-fill,minmax(15rem,1fr));margin:0;
gap:.5rem 1.25rem}
dt{color:var(--soft)}
dd{margin:0;font-variant-numeric:tabular-nums;overflow-wrap:anywhere}
a{color:var(--link)}
"""
