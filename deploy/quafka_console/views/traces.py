"""The last traces, which gateways and brokers have exported to the console."""

from __future__ import annotations

from nicegui import ui

from quafka_client.errors import ClientError
from quafka_console.data.paging import PageOf
from quafka_console.data.traces.search import TraceQuery, search, title_of
from quafka_console.data.traces.store import StoredTrace
from quafka_console.session import CONSOLE_CLIENT, ConsoleSession, Query
from quafka_console.views.parts import address, formats, states
from quafka_console.views.parts.live import LivePart
from quafka_console.views.parts.spans import TRACE_PATH
from quafka_console.views.parts.table import Column, Shown, moment, pager, table
from quafka_telemetry import semconv

PATH = "/traces"
_COLUMNS = (
    Column("began", "Began"),
    Column("what", "Request"),
    Column("topic", "Topics", wide=True),
    Column("client", "Client", wide=True),
    Column("took", "Took, without waiting", numeric=True),
    Column("waited", "Waited", numeric=True),
    Column("spans", "Spans", numeric=True),
)
_FIELDS = {"search": "search traces", "api": "API", "topic": "topic",
           "client": "client id", "group": "group", "org": "org number",
           "ms": "at least, in ms"}  # fmt: skip
"""Parameters of the address, and what their inputs say."""


async def show(session: ConsoleSession, query: Query) -> None:
    """Build the list."""
    await session.check_operator()
    await _Traces(session, query).build()


class _Traces:
    """The list, and the inputs that choose what it has."""

    def __init__(self, session: ConsoleSession, query: Query) -> None:
        self._session = session
        self._chosen = {name: query.get(name, "") for name in (*_FIELDS, "errors", "own")}
        self._number = address.page_of(query)

    async def build(self) -> None:
        """Show both."""
        with ui.row().classes("items-center w-full gap-3 q-filters"):
            for name, hint in _FIELDS.items():
                self._input(name, hint)
            ui.switch(
                "Errors only", value=bool(self._chosen["errors"]),
                on_change=lambda event: self._choose("errors", "1" if event.value else ""),
            )  # fmt: skip
            ui.switch(
                "The console's own requests", value=bool(self._chosen["own"]),
                on_change=lambda event: self._choose("own", "1" if event.value else ""),
            )  # fmt: skip
        self._part = LivePart(self._read, self._fill)
        await self._part.start()

    def _input(self, name: str, hint: str) -> None:
        ui.input(
            placeholder=hint, value=self._chosen[name],
            on_change=lambda event: self._choose(name, str(event.value or "").strip()),
        ).props(
            f'dense outlined clearable debounce=250 type=search aria-label="{hint}"'
        ).classes("q-search" if name == "search" else "q-short")  # fmt: skip

    async def _choose(self, name: str, value: str) -> None:
        self._chosen[name] = value
        await self._go(0)

    async def _go(self, number: int) -> None:
        self._number = number
        address.keep(address.link(PATH, **self._chosen, page=number))
        await self._part.refresh()

    async def _read(self) -> PageOf[StoredTrace]:
        await self._session.check_operator()
        return await search(self._session.traces, _query(self._chosen), self._number)

    def _fill(self, found: PageOf[StoredTrace]) -> None:
        if not found.total:
            states.empty(
                "No traces yet",
                f"Start the programs with OTEL_EXPORTER_OTLP_ENDPOINT={self._session.here} and "
                "they export here.",
            )
            return
        if not found.rows:
            states.empty(
                "No traces match",
                "Change the search, or show the console's own requests, too.",
            )
            return
        table(_COLUMNS, [_row(each) for each in found.rows])
        pager(found, "traces", self._go)


def _row(trace: StoredTrace) -> list[str | Shown]:
    waited = trace.waiting_seconds
    return [
        moment(trace.start / 1e9),
        Shown(
            formats.shown(title_of(trace)),
            href=address.link(TRACE_PATH, id=trace.trace_id),
            bad=trace.failed,
        ),
        formats.shown(", ".join(trace.topics)),
        formats.shown(", ".join(trace.values(semconv.CLIENT_ID))),
        formats.duration(trace.working_seconds),
        formats.duration(waited) if waited else "",
        formats.number(len(trace.spans)),
    ]


def _query(chosen: Query) -> TraceQuery:
    """Raises ClientError: what was typed is wrong."""
    at_least = chosen["ms"] or "0"
    if not (at_least.isascii() and at_least.isdecimal() and len(at_least) < 9):
        raise ClientError(f"{at_least!r} is not a number of milliseconds")
    return TraceQuery(
        words=chosen["search"],
        api=chosen["api"],
        topic=chosen["topic"],
        client=chosen["client"],
        group=chosen["group"],
        org=chosen["org"],
        seconds=int(at_least) / 1e3,
        failed=bool(chosen["errors"]),
        without_client=""
        if chosen["own"] or chosen["client"] == CONSOLE_CLIENT
        else CONSOLE_CLIENT,
    )
