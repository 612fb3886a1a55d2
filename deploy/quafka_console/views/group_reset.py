"""The dialog that moves a group's offsets: a plan with its consequences first, then the move."""

from __future__ import annotations

from datetime import UTC, datetime

from nicegui import ui

from quafka_client.errors import ClientError
from quafka_client.offset_resets import OffsetMove
from quafka_client.positions import RequestedPosition
from quafka_console.data.groups import ResetPlan, plan_reset, reset
from quafka_console.session import ConsoleSession
from quafka_console.views.parts import formats, states
from quafka_console.views.parts.audit import audited
from quafka_console.views.parts.confirm import discard
from quafka_console.views.parts.table import Column, Shown, table

_KINDS = {
    "start": "the earliest record", "end": "the latest record: skip everything",
    "time": "a time (UTC)", "offset": "an offset", "shift": "a shift by N records",
}  # fmt: skip
_SHOWN = 200
_COLUMNS = (
    Column("topic", "Topic", wide=True),
    Column("partition", "Partition", numeric=True),
    Column("before", "Now", numeric=True),
    Column("after", "Then", numeric=True),
    Column("skipped", "Skipped", numeric=True),
    Column("repeated", "Read again", numeric=True),
)


async def reset_dialog(session: ConsoleSession, group: str) -> None:
    """Let the user plan a move, see what it does, and do it."""
    view = _Reset(session, group)
    await view.dialog
    discard(view.dialog)


class _Reset:
    """The dialog's state: the plan belongs to the position that is chosen."""

    def __init__(self, session: ConsoleSession, group: str) -> None:
        self._session, self._group = session, group
        self._plan: ResetPlan | None = None
        with ui.dialog() as self.dialog, ui.card().classes("q-dialog-wide"):
            self._build()
        self.dialog.open()

    def _build(self) -> None:
        ui.label("Reset offsets").classes("text-h6")
        ui.label(formats.shown(self._group)).classes("q-mono")
        with ui.row().classes("items-center gap-3 w-full"):
            self._kind = ui.select(
                _KINDS, value="start", label="continue at", on_change=self._forget
            ).props("outlined dense options-dense").classes("q-grow")  # fmt: skip
            self._value = ui.input(label="value", on_change=self._forget).props("outlined dense")
            self._value.bind_visibility_from(
                self._kind, "value", lambda kind: kind in ("time", "offset", "shift")
            )
        self._topic = ui.input(
            label="only this topic (empty: all topics of the group)", on_change=self._forget
        ).props("outlined dense").classes("w-full")  # fmt: skip
        self._shown = ui.column().classes("w-full gap-2")
        with ui.row().classes("w-full justify-end items-center"):
            ui.button("Close", on_click=self.dialog.close).props("flat no-caps")
            ui.button("Dry run", icon="preview", on_click=self._preview).props("outline no-caps")
            self._go = ui.button("Reset the offsets", color="negative", on_click=self._commit)
            self._go.props("no-caps").set_enabled(False)
        self._typed = ui.input(
            label="type the group's name to reset", on_change=self._enable
        ).props("outlined dense").classes("w-full")  # fmt: skip
        self._typed.set_visibility(False)

    def _forget(self) -> None:
        """The plan is of another position."""
        self._plan = None
        self._shown.clear()
        self._enable()

    def _enable(self) -> None:
        planned = self._plan is not None and bool(self._plan.changes)
        self._typed.set_visibility(planned)
        self._go.set_enabled(planned and self._typed.value == self._group)

    async def _preview(self) -> None:
        self._shown.clear()
        try:
            position = _position(str(self._kind.value), self._value.value or "")
            topics = [(self._topic.value.strip(), None)] if self._topic.value else []
            self._plan = await plan_reset(self._session.cluster, self._group, topics, position)
        except ClientError as e:
            self._plan = None
            with self._shown:
                states.problem(str(e))
        else:
            with self._shown:
                _consequences(self._plan)
        self._enable()

    async def _commit(self) -> None:
        plan = self._plan
        if plan is None or self._typed.value != self._group:
            return
        self._shown.clear()
        try:
            with audited(self._session, "reset offsets of group", self._group):
                await reset(self._session.cluster, plan)
        except ClientError as e:
            with self._shown:
                states.problem(str(e))
            return
        ui.notify(f"{len(plan.changes)} partitions moved", type="positive")
        self.dialog.close()


def _consequences(plan: ResetPlan) -> None:
    changes = plan.changes
    if not changes:
        states.empty("Nothing would change", "The group is there already.")
        return
    with ui.row().classes("q-facts"):
        for name, value in (
            ("partitions that move", len(changes)), ("records that are skipped", plan.skipped),
            ("records that are read again", plan.repeated),
        ):  # fmt: skip
            with ui.column().classes("gap-0"):
                ui.label(name).classes("q-soft text-caption")
                ui.label(formats.number(value)).classes("q-fact")
    with ui.scroll_area().classes("w-full q-plan"):
        table(_COLUMNS, [_row(each) for each in changes[:_SHOWN]])
    if len(changes) > _SHOWN:
        ui.label(f"{_SHOWN} of {len(changes):,} partitions are shown").classes("q-soft")
    if plan.skipped:
        ui.label("Skipped records are not processed by this group.").classes("q-soft")
    if plan.repeated:
        ui.label(
            "Consumers process records again: this is safe if their work can be repeated."
        ).classes("q-soft")


def _row(move: OffsetMove) -> list[str | Shown]:
    return [
        formats.shown(move.topic),
        str(move.partition),
        formats.number(move.before),
        formats.number(move.after),
        Shown(formats.number(move.skipped), bad=move.skipped > 0),
        formats.number(move.repeated),
    ]


def _position(kind: str, value: str) -> RequestedPosition:
    """The chosen position. Raises ClientError."""
    text = value.strip()
    if kind in ("start", "end"):
        return RequestedPosition(kind)
    if kind == "time":
        try:
            at = datetime.fromisoformat(text)
        except ValueError as e:
            raise ClientError(f"{text!r} is not a time; write it as 2026-11-28T06:15") from e
        if at.tzinfo is None:
            at = at.replace(tzinfo=UTC)
        return RequestedPosition(kind, round(at.timestamp() * 1_000))
    digits = text.removeprefix("-") if kind == "shift" else text
    if not digits.isdecimal() or len(digits) > 18:
        what = "a whole number, such as -100" if kind == "shift" else "an offset: a whole number"
        raise ClientError(f"{text!r} is not {what}")
    return RequestedPosition(kind, int(text))
