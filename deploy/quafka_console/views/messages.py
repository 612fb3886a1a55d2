"""The records of a topic: the newest ones, or from an offset or a time on, filtered."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from nicegui import ui

from quafka_client.errors import ClientError
from quafka_console.data.messages.decoded_values import ValueDecoder
from quafka_console.data.messages.decoding import Progress
from quafka_console.data.messages.files import CSV, JSONL, PARQUET, writable
from quafka_console.data.messages.reading import Limits
from quafka_console.data.messages.records import KeptBytes, Outcome, ReadRecord
from quafka_console.data.messages.selection import (
    COMMITTED,
    COUNTS,
    NEWEST,
    OFFSET,
    OLDEST,
    TIME,
    Selection,
)
from quafka_console.data.messages.texts import text_of
from quafka_console.data.messages.writing import TypedRecord, copied
from quafka_console.session import ConsoleSession, Query
from quafka_console.views import download
from quafka_console.views.message import open_record
from quafka_console.views.message_produce import produce_dialog
from quafka_console.views.parts import address, formats, states
from quafka_console.views.parts.table import Column, Shown, moment, table
from quafka_loop import clock

PATH = "/messages"
_FROM = {
    NEWEST: "newest first", OLDEST: "from the start", OFFSET: "from an offset",
    TIME: "from a time",
}  # fmt: skip
_ISOLATION = {"": "all records", COMMITTED: "read_committed"}
_FILTERS = {
    "contains": "contains", "key": "key, or =key", "header": "header, or name=value",
    "value": "value, as order.id=7",
}  # fmt: skip
_FILES = {JSONL: "JSON lines", CSV: "CSV", PARQUET: "Parquet"}
_TAIL_SECONDS, _PROGRESS_SECONDS, _DECODING_SECONDS = 2.0, 0.5, 2.0
_COLUMNS = (
    Column("partition", "Partition", numeric=True),
    Column("offset", "Offset", numeric=True),
    Column("time", "Time"),
    Column("key", "Key", wide=True),
    Column("value", "Value", wide=True),
)
_OUTCOME = Column("outcome", "Transaction")


async def show(session: ConsoleSession, query: Query) -> None:
    """Build the page."""
    selection = Selection.of(query)
    if not selection.topic:
        states.empty("No topic is chosen", "Choose one in the list of topics.")
        ui.link("Topics", "/topics")
        return
    _Messages(session, selection).build()


class _Messages:
    """The records that are shown, and the controls that choose them."""

    def __init__(self, session: ConsoleSession, selection: Selection) -> None:
        self._session = session
        self._chosen = selection
        self._progress = Progress(stopped=True)
        self._records: Sequence[ReadRecord] | None = None
        self._texts: dict[str, ui.input] = {}

    def build(self) -> None:
        """Build the page; reading begins when a browser shows it."""
        topic = self._chosen.topic
        with ui.row().classes("items-center w-full gap-3"):
            ui.label(formats.shown(topic)).classes("text-h5 q-name")
            ui.space()
            if self._session.may_write:
                ui.button(
                    "Produce", icon="add", on_click=lambda: self._produce(TypedRecord())
                ).props("flat dense no-caps")
            self._build_download()
            ui.link("Partitions and configs", address.link("/topic", name=topic))
        with ui.row().classes("items-center w-full gap-3 q-filters"):
            self._build_place()
        with ui.row().classes("items-center w-full gap-3 q-filters"):
            for name, hint in _FILTERS.items():
                found = self._text(name, hint, "value path" if name == "value" else name)
                found.classes("q-path" if name == "value" else "")
            ui.button("Read", on_click=self._choose).props("dense no-caps")
            self._stop_button = ui.button("Stop", on_click=self._stop)
            self._stop_button.props("dense no-caps outline").set_visibility(False)
            tail = ui.switch("Follow")
            tail.bind_visibility_from(self._place, "value", lambda value: value == NEWEST)
        self._status = ui.label().classes("q-soft")
        self._body = ui.column().classes("w-full gap-2")
        self._opened = ui.column()
        ui.context.client.on_delete(self._stop)  # pyright: ignore[reportUnknownMemberType]
        ui.timer(0.0, self.read, once=True)
        ui.timer(_PROGRESS_SECONDS, self._tell)

        async def follow() -> None:
            if tail.value and self._chosen.place == NEWEST and self._progress.stopped:
                await self.read()

        ui.timer(_TAIL_SECONDS, follow, immediate=False)

    def _build_place(self) -> None:
        chosen = self._chosen
        self._place = ui.select(_FROM, value=chosen.place)
        self._place.props('dense outlined aria-label="from"')
        at = self._text("at", "offset, or time in UTC", "where to begin")
        at.bind_visibility_from(self._place, "value", lambda value: value in (OFFSET, TIME))
        self._text("until", "until a time, in UTC", "until")
        self._text("partition", "all partitions", "partition").classes("q-short")
        self._isolation = ui.select(_ISOLATION, value=chosen.isolation)
        self._isolation.props('dense outlined aria-label="isolation level"')
        self._count = ui.select(list(COUNTS), value=chosen.count)
        self._count.props('dense outlined aria-label="records"')

    def _build_download(self) -> None:
        with ui.button("Download", icon="download").props("flat dense no-caps"), ui.menu():
            for form, title in _FILES.items():
                if form in writable():

                    def get(form: str = form) -> None:
                        query = {**self._chosen.query(), "format": form}
                        ui.navigate.to(address.link(download.PATH, **query))

                    ui.menu_item(title, get)
            if PARQUET not in writable():
                ui.menu_item("Parquet needs: pip install pyarrow").props("disable")
            most = f"{download.MOST_RECORDS:,} records or {formats.size(download.MOST_BYTES)}"
            ui.menu_item(f"At most {most}, with whole values").props("disable")

    def _text(self, name: str, hint: str, label: str) -> ui.input:
        found = ui.input(placeholder=hint, value=getattr(self._chosen, name))
        found.props(f'dense outlined clearable aria-label="{label}"')
        found.on("keydown.enter", self._choose)
        self._texts[name] = found
        return found

    async def _choose(self) -> None:
        """Read what the controls say."""
        self._chosen = Selection(
            self._chosen.topic, place=self._place.value, isolation=self._isolation.value,
            count=self._count.value,
        ).with_texts(**{name: each.value or "" for name, each in self._texts.items()})  # fmt: skip
        address.keep(address.link(PATH, **self._chosen.query()))
        await self.read()

    async def _produce(self, begin: TypedRecord) -> None:
        with self._opened:
            await produce_dialog(self._session, self._chosen.topic, begin, self.read)

    def _stop(self) -> None:
        self._progress.stopped = True

    def _tell(self) -> None:
        """The progress of a reading that takes its time."""
        progress = self._progress
        if not progress.stopped and progress.size:
            self._status.set_text(f"{progress.found:,} match; {_looked_at(progress)} so far")

    async def read(self) -> None:
        """Read what is chosen, and show it."""
        self._progress.stopped = True
        progress = self._progress = Progress()
        self._stop_button.set_visibility(True)
        try:
            limits = Limits(self._chosen.count)
            session = self._session
            records = await self._chosen.read(session.cluster, progress, limits, session.registry)
        except ClientError as e:
            if progress is not self._progress or self._body.is_deleted:
                return
            self._records = None
            self._status.set_text("")
            self._body.clear()
            with self._body:
                states.problem(str(e))
            return
        finally:
            progress.stopped = True
            if progress is self._progress and not self._stop_button.is_deleted:
                self._stop_button.set_visibility(False)
        if progress is not self._progress or self._body.is_deleted:
            return  # another reading has begun, or the page is gone
        if records == self._records:
            self._status.set_text(self._result(records, progress))
            return
        values = [each for record in records for each in (record.key, record.value)]
        only = "" if self._session.is_shared else self._chosen.topic
        decoder = await ValueDecoder.of(self._session.registry, values, only)
        rows = await asyncio.to_thread(_rows, records, decoder)
        if progress is not self._progress or self._body.is_deleted:
            return
        self._records = records
        self._status.set_text(self._result(records, progress))
        self._body.clear()
        with self._body:
            self._fill(records, decoder, rows)

    def _result(self, records: Sequence[ReadRecord], progress: Progress) -> str:
        """What a reading has found, and what it has not looked at."""
        parts = [f"{len(records):,} records"]
        if self._chosen.filtered:
            parts.append(_looked_at(progress))
        if progress.unreadable:
            parts.append(f"{progress.unreadable:,} batches are damaged or too large to be read")
        if progress.limited:
            parts.append("the limit of one search is reached: begin at a later place to go on")
        return "; ".join(parts)

    def _fill(
        self,
        records: Sequence[ReadRecord],
        decoder: ValueDecoder,
        rows: Sequence[Sequence[str | Shown]],
    ) -> None:
        if not records and self._chosen.filtered:
            states.empty("No record matches", "Begin elsewhere, or search for something else.")
            return
        if not records:
            states.empty(
                "No records here", "Begin elsewhere, or write one:",
                f"echo hello | quafka produce -t {formats.shown(self._chosen.topic)}",
            )  # fmt: skip
            return

        async def open_(at: int) -> None:
            again = copied(records[at]) if self._session.may_write else None
            with self._opened:
                topic, may_copy = self._chosen.topic, again is not None
                if await open_record(topic, records[at], decoder, may_copy=may_copy) and again:
                    await self._produce(again)

        columns = list(_COLUMNS)
        if _marked(records):
            columns.insert(3, _OUTCOME)
        table(columns, rows, on_pick=open_)


def _looked_at(progress: Progress) -> str:
    return f"{progress.scanned:,} were looked at ({formats.size(progress.size)})"


def _marked(records: Sequence[ReadRecord]) -> bool:
    """Whether a column shows what became of transactions."""
    return any(each.outcome for each in records)


def _rows(records: Sequence[ReadRecord], decoder: ValueDecoder) -> list[list[str | Shown]]:
    """The table's rows; in a thread, since values are decoded, for some seconds at most."""
    marked, until = _marked(records), clock.monotonic() + _DECODING_SECONDS
    rows: list[list[str | Shown]] = []
    for record in records:
        if clock.monotonic() > until:
            decoder = ValueDecoder()
        rows.append(_row(record, decoder, marked))
    return rows


def _row(record: ReadRecord, decoder: ValueDecoder, marked: bool) -> list[str | Shown]:
    value = _cell(record.value, decoder)
    if record.mark:
        value = f"({record.mark.lower()} of a transaction)"
    outcome = Shown(record.outcome, bad=record.outcome is Outcome.ABORTED)
    return [
        str(record.partition),
        formats.number(record.offset),
        moment(record.timestamp / 1_000),
        *([outcome] if marked else []),
        _cell(record.key, decoder),
        value,
    ]


def _cell(kept: KeptBytes | None, decoder: ValueDecoder) -> str:
    return formats.shown(decoder.line(kept) or text_of(kept))
