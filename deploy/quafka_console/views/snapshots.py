"""Snapshots: those that brokers make themselves, and the commands for all others."""

from __future__ import annotations

from nicegui import ui

from quafka_console.data.snapshots import SnapshotSchedule, commands, schedules
from quafka_console.data.status_reader import StatusPages
from quafka_console.session import ConsoleSession, Query
from quafka_console.views.parts import formats, states
from quafka_console.views.parts.live import LivePart
from quafka_console.views.parts.operations import status_pages_of, status_problems
from quafka_console.views.parts.table import Column, Shown, moment, table

PATH = "/snapshots"
_COLUMNS = (
    Column("destination", "Destination", wide=True),
    Column("interval", "Every", numeric=True),
    Column("last", "Last good one"),
    Column("age", "Age", numeric=True),
    Column("made", "Made", numeric=True),
    Column("failures", "Failures", numeric=True),
    Column("problem", "Problem", wide=True),
)


async def show(session: ConsoleSession, _query: Query) -> None:
    """Build the page."""

    async def read() -> StatusPages:
        return await status_pages_of(session)

    def fill(read_: StatusPages) -> None:
        found = schedules(read_.pages)
        ui.label("Made by the brokers").classes("q-heading")
        if found:
            table(_COLUMNS, [_row(each) for each in found])
        elif any(page.program == "broker" for page in read_.pages):
            states.empty(
                "No broker makes snapshots by itself",
                "Set snapshot.interval.ms and snapshot.dest of the broker.",
            )
        status_problems(read_)

    await LivePart(read, fill).start()
    known = schedules((await status_pages_of(session)).pages)
    ui.label("By command").classes("q-heading")
    ui.label(
        "Commands run where the destination can be reached, with its credentials. Run create on "
        "the broker's host."
    ).classes("q-soft")
    destination = ui.input(
        label="destination: a folder or a URL such as s3://bucket/path",
        value=known[0].destination if known else "/mnt/lake",
    ).props("outlined dense").classes("w-full q-search")  # fmt: skip
    lines = ui.column().classes("w-full gap-2")

    def fill_commands() -> None:
        lines.clear()
        with lines:
            found = commands(destination.value or "DEST")
            states.command(found.create, "create a snapshot of everything at one instant")
            states.command(found.listing, "list the snapshots")
            states.command(found.show, "what the latest one has")
            states.command(found.verify, "read every byte of it, and report damage")
            states.command(found.restore, "make a data folder from it; a broker starts on it")

    destination.on_value_change(fill_commands)
    fill_commands()


def _row(each: SnapshotSchedule) -> list[str | Shown]:
    return [
        formats.shown(each.destination),
        formats.duration(each.interval_seconds),
        Shown("none", bad=True) if each.last is None else moment(each.last),
        Shown(formats.duration(each.age_seconds), bad=each.is_late),
        formats.number(each.made),
        Shown(formats.number(each.failures), bad=each.failures > 0),
        Shown(formats.shown(each.problem), bad=bool(each.problem)),
    ]
