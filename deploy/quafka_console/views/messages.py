"""The records of a topic: the newest ones, or from an offset or a time on, and one in full."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime

from nicegui import ui

from quafka_client.errors import ClientError
from quafka_console.data.messages.decoding import Choice, Progress
from quafka_console.data.messages.filters import containing, every
from quafka_console.data.messages.reading import Limits, Span, newest, onwards
from quafka_console.data.messages.records import ReadRecord
from quafka_console.data.messages.texts import text_of, whole_of
from quafka_console.session import ConsoleSession, Query
from quafka_console.views.parts import address, formats, states
from quafka_console.views.parts.confirm import discard
from quafka_console.views.parts.table import Column, Shown, moment, table

PATH = "/messages"
_COUNTS = (20, 50, 100, 500)
_NEWEST, _OLDEST, _OFFSET, _TIME = "newest", "oldest", "offset", "time"
_FROM = {
    _NEWEST: "newest first", _OLDEST: "from the start", _OFFSET: "from an offset",
    _TIME: "from a time",
}  # fmt: skip
_TAIL_SECONDS, _PROGRESS_SECONDS = 2.0, 0.5
_COLUMNS = (
    Column("partition", "Partition", numeric=True),
    Column("offset", "Offset", numeric=True),
    Column("time", "Time"),
    Column("key", "Key", wide=True),
    Column("value", "Value", wide=True),
)


async def show(session: ConsoleSession, query: Query) -> None:
    """Build the page."""
    topic = query.get("topic", "")
    if not topic:
        states.empty("No topic is chosen", "Choose one in the list of topics.")
        ui.link("Topics", "/topics")
        return
    _Messages(session, topic, query).build()


class _Messages:
    """The records that are shown, and the controls that choose them."""

    def __init__(self, session: ConsoleSession, topic: str, query: Query) -> None:
        self._session = session
        self._topic = topic
        place = query.get("from", "")
        self._place = place if place in _FROM else _OFFSET if query.get("offset") else _NEWEST
        self._value = query.get("at", "") or query.get("offset", "")
        self._partition = query.get("partition", "")
        self._words = query.get("contains", "")
        count = query.get("count", "")
        self._count = int(count) if count in map(str, _COUNTS) else _COUNTS[1]
        self._progress = Progress(stopped=True)
        self._records: Sequence[ReadRecord] | None = None

    def build(self) -> None:
        """Build the page; reading begins when a browser shows it."""
        with ui.row().classes("items-center w-full gap-3"):
            ui.label(formats.shown(self._topic)).classes("text-h5 q-name")
            ui.space()
            ui.link("Partitions and configs", address.link("/topic", name=self._topic))
        with ui.row().classes("items-center w-full gap-3 q-filters"):
            place = ui.select(_FROM, value=self._place).props('dense outlined aria-label="from"')
            at = ui.input(placeholder="offset, or 2026-11-28T06:15", value=self._value)
            at.props('dense outlined aria-label="where to begin"')
            at.bind_visibility_from(place, "value", lambda value: value in (_OFFSET, _TIME))
            partition = ui.input(placeholder="all partitions", value=self._partition)
            partition.props('dense outlined aria-label="partition"').classes("q-short")
            words = ui.input(placeholder="contains", value=self._words)
            words.props('dense outlined clearable aria-label="contains"')
            count = ui.select(list(_COUNTS), value=self._count)
            count.props('dense outlined aria-label="records"')

            async def read() -> None:
                self._place, self._value = place.value, (at.value or "").strip()
                self._partition = (partition.value or "").strip()
                self._words, self._count = words.value or "", count.value
                address.keep(self._address())
                await self.read()

            for each in (at, partition, words):
                each.on("keydown.enter", read)
            ui.button("Read", on_click=read).props("dense no-caps")
            stop = ui.button("Stop", on_click=self._stop).props("dense no-caps outline")
            stop.bind_visibility_from(self._progress, "stopped", lambda stopped: not stopped)
            self._stop_button = stop
            tail = ui.switch("Follow")
            tail.bind_visibility_from(place, "value", lambda value: value == _NEWEST)
        self._status = ui.label().classes("q-soft")
        self._body = ui.column().classes("w-full gap-2")
        self._opened = ui.column()
        ui.context.client.on_delete(self._stop)  # pyright: ignore[reportUnknownMemberType]
        ui.timer(0.0, self.read, once=True)
        ui.timer(_PROGRESS_SECONDS, self._tell)

        async def follow() -> None:
            if tail.value and self._place == _NEWEST and self._progress.stopped:
                await self.read()

        ui.timer(_TAIL_SECONDS, follow, immediate=False)

    def _address(self) -> str:
        return address.link(
            PATH, **{"topic": self._topic, "from": "" if self._place == _NEWEST else self._place,
                     "at": self._value, "partition": self._partition, "contains": self._words,
                     "count": "" if self._count == _COUNTS[1] else self._count},
        )  # fmt: skip

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
        self._stop_button.bind_visibility_from(progress, "stopped", lambda stopped: not stopped)
        try:
            records = await self._read(progress)
        except ClientError as e:
            if self._body.is_deleted:
                return
            self._records = None
            self._status.set_text("")
            self._body.clear()
            with self._body:
                states.problem(str(e))
            return
        finally:
            progress.stopped = True
        if progress is not self._progress or self._body.is_deleted:
            return  # another reading has begun, or the page is gone
        self._status.set_text(_result(records, progress))
        if records == self._records:
            return
        self._records = records
        self._body.clear()
        with self._body:
            self._fill(records)

    async def _read(self, progress: Progress) -> Sequence[ReadRecord]:
        """Raises ClientError: also if what was typed is wrong."""
        number = _number(self._partition, "a partition") if self._partition else None
        span = Span(
            None if number is None else [number],
            _number(self._value, "an offset") if self._place == _OFFSET else None,
            _time(self._value) if self._place == _TIME else None,
        )
        choice = Choice(every([containing(self._words)] if self._words.split() else []))
        read = newest if self._place == _NEWEST else onwards
        cluster, limits = self._session.cluster, Limits(self._count)
        return await read(cluster, self._topic, span, choice, limits, progress)

    def _fill(self, records: Sequence[ReadRecord]) -> None:
        if not records:
            states.empty(
                "No record matches" if self._words else "No records here",
                "Begin elsewhere, or search for something else."
                if self._words
                else f"Write one: echo hello | quafka produce -t {self._topic}",
            )
            return

        async def open_(at: int) -> None:
            with self._opened:
                await _open(records[at])

        rows = [_row(each) for each in records]
        table(_COLUMNS, rows, on_pick=open_)


async def _open(record: ReadRecord) -> None:
    """Show one in full."""
    texts = [await asyncio.to_thread(whole_of, each) for each in (record.key, record.value)]
    with ui.dialog() as dialog, ui.card().classes("q-record"):
        with ui.row().classes("items-center w-full"):
            ui.label(f"Partition {record.partition}, offset {record.offset:,}").classes("text-h6")
            ui.space()
            ui.button(icon="close", on_click=dialog.close).props(
                'flat dense round aria-label="close"'
            )
        ui.label(formats.utc(record.timestamp / 1_000)).classes("q-soft")
        for name, data, text in zip(
            ("Key", "Value"), (record.key, record.value), texts, strict=True
        ):
            size = "" if data is None else f", {formats.size(data.size)}"
            ui.label(f"{name}{size}").classes("q-heading")
            with ui.element("pre").classes("q-mono q-value"):
                ui.label(_visible(text))
        if record.headers:
            ui.label("Headers").classes("q-heading")
            rows = [
                (formats.shown(name), formats.shown(text_of(value)))
                for name, value in record.headers
            ]
            table((Column("name", "Name"), Column("value", "Value", wide=True)), rows)
            if len(rows) < record.all_headers:
                ui.label(f"{len(rows):,} of {record.all_headers:,} headers").classes("q-soft")
    await dialog
    discard(dialog)


def _result(records: Sequence[ReadRecord], progress: Progress) -> str:
    """What a reading has found, and what it has not looked at."""
    parts = [f"{len(records):,} records"]
    if progress.scanned > len(records):
        parts.append(f"{_looked_at(progress)}")
    if progress.unreadable:
        parts.append(f"{progress.unreadable:,} batches are damaged or too large to be read")
    if progress.limited:
        parts.append("the limit of one search is reached: begin at a later place to go on")
    return "; ".join(parts)


def _looked_at(progress: Progress) -> str:
    return f"{progress.scanned:,} were looked at ({formats.size(progress.size)})"


def _row(record: ReadRecord) -> list[str | Shown]:
    return [
        str(record.partition),
        formats.number(record.offset),
        moment(record.timestamp / 1_000),
        formats.shown(text_of(record.key)),
        f"({record.mark.lower()} of a transaction)"
        if record.mark
        else formats.shown(text_of(record.value)),
    ]


def _visible(text: str) -> str:
    """A text of several lines with its control characters visible."""
    return "\n".join(formats.shown(line, 1 << 20) for line in text.split("\n"))


def _number(text: str, what: str) -> int:
    if not (text.isascii() and text.isdecimal() and len(text) < 19):
        raise ClientError(f"{text!r} is not {what}: a whole number")
    return int(text)


def _time(text: str) -> int:
    """A time in ms since 1970."""
    try:
        at = datetime.fromisoformat(text)
    except ValueError as e:
        raise ClientError(f"{text!r} is not a time; write it as 2026-11-28T06:15") from e
    return round((at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp() * 1_000)
