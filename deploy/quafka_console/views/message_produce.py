"""The dialog that writes a record."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from nicegui import ui

from quafka_client.errors import ClientError
from quafka_client.records import write
from quafka_console.data.messages.writing import ENCODINGS, NULL, TypedBytes, TypedRecord
from quafka_console.session import ConsoleSession
from quafka_console.views.parts import formats, states
from quafka_console.views.parts.audit import audited
from quafka_console.views.parts.confirm import discard
from quafka_loop import clock


async def produce_dialog(
    session: ConsoleSession, topic: str, begin: TypedRecord, done: Callable[[], Awaitable[None]]
) -> None:
    """Let the user write records; `begin`: what the fields have first."""
    if session.may_write:
        form = _Form(session, topic, begin, done)
        await form.dialog
        discard(form.dialog)


class _Form:
    """The dialog's fields."""

    def __init__(
        self, session: ConsoleSession, topic: str, begin: TypedRecord,
        done: Callable[[], Awaitable[None]],
    ) -> None:  # fmt: skip
        self._session, self._topic, self._done = session, topic, done
        with ui.dialog() as self.dialog, ui.card().classes("q-dialog-wide"):
            ui.label("Produce a record").classes("text-h6")
            ui.label(formats.shown(topic)).classes("q-mono")
            self._partition = (
                ui.input(placeholder="partition (empty: chosen by the key)", value=begin.partition)
                .props('outlined dense aria-label="partition to write to"')
                .classes("w-full")
            )
            self._key = _bytes("key", begin.key, lines=1)
            self._value = _bytes("value", begin.value, lines=6)
            self._headers = (
                ui.textarea(
                    label="headers, one a line: name=value, or name for null", value=begin.headers
                )
                .props('outlined dense rows=2 aria-label="headers to write"')
                .classes("w-full")
            )
            self._problem = ui.column().classes("w-full")
            with ui.row().classes("w-full justify-end"):
                ui.button("Close", on_click=self.dialog.close).props("flat no-caps")
                ui.button("Produce", on_click=self._produce).props("no-caps")
        self.dialog.open()

    async def _produce(self) -> None:
        self._problem.clear()
        typed = TypedRecord(
            self._key(), self._value(), self._headers.value or "", self._partition.value or ""
        )
        try:
            partition, record = typed.chosen(), typed.record(clock.time_ns() // 1_000_000)
            with audited(self._session, "produce to topic", self._topic):
                at = await write(self._session.cluster, self._topic, record, partition)
        except ClientError as e:
            with self._problem:
                states.problem(str(e))
            return
        ui.notify(f"written: partition {at[0]}, offset {at[1]:,}", type="positive")
        self.dialog.close()
        await self._done()


def _bytes(what: str, begin: TypedBytes, lines: int) -> Callable[[], TypedBytes]:
    """A field for a key or value, with its encoding; returns how to read it."""
    with ui.row().classes("items-start w-full no-wrap gap-2"):
        text = ui.textarea(label=what, value=begin.text)
        text.props(f'outlined dense rows={lines} aria-label="{what} to write"').classes("q-grow")
        encoding = ui.select(list(ENCODINGS), value=begin.encoding)
        encoding.props(f'outlined dense aria-label="encoding of the {what}"')
        text.bind_enabled_from(encoding, "value", lambda value: value != NULL)
    return lambda: TypedBytes(text.value or "", encoding.value)
