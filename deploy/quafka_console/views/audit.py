"""What was done: by this user in the console, and where the cluster's audit log is."""

from __future__ import annotations

from nicegui import ui

from quafka_console.data.paging import PageOf, page_of
from quafka_console.session import ConsoleSession, Query
from quafka_console.views.parts import formats, states
from quafka_console.views.parts.audit import Act, acts_of
from quafka_console.views.parts.table import Column, Shown, moment
from quafka_console.views.searched import SearchedList

PATH = "/audit"
_COLUMNS = (
    Column("at", "Time"),
    Column("act", "Act"),
    Column("name", "Object", wide=True),
    Column("outcome", "Outcome", wide=True),
)
_DENIED = (
    "jq -c 'select(.outcome == \"denied\") | [.time, .principal, .from, .act, .reason]' "
    "/var/log/quafka/audit.log"
)
_ACTS = (
    "jq -c 'select(.event == \"act\") | [.time, .principal, .act, .request]' "
    "/var/log/quafka/audit.log"
)


async def show(session: ConsoleSession, query: Query) -> None:
    """Build the page."""
    ui.label("What you did in this console since its start").classes("q-heading")

    async def read(search: str, number: int) -> PageOf[Act]:
        return page_of(
            acts_of(session.user), search, lambda each: (each.act, each.name, each.error), number
        )

    await SearchedList(
        PATH, "acts", _COLUMNS, read, _row,
        ("Nothing yet", "Acts that change something are listed here and in the console's log."),
    ).build(query)  # fmt: skip
    ui.label("The cluster's audit log").classes("q-heading")
    ui.label(
        "Gateways write every administrative act, login and denial to a file (audit.log), which is "
        "not readable over the network. On a gateway's host:"
    ).classes("q-soft")
    states.command(_ACTS, "who changed what")
    states.command(_DENIED, "what was denied, and to whom")


def _row(each: Act) -> list[str | Shown]:
    return [
        moment(each.at),
        each.act,
        formats.shown(each.name),
        Shown(formats.shown(each.error, 300) or "done", bad=bool(each.error)),
    ]
