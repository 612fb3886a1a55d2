"""Orgs, their limits and their usage of a gateway."""

from __future__ import annotations

from quafka_client.orgs import OrgDetails
from quafka_console.data.orgs import org_page
from quafka_console.data.paging import PageOf
from quafka_console.session import ConsoleSession, Query
from quafka_console.views.parts import formats
from quafka_console.views.parts.table import Column, Shown
from quafka_console.views.searched import SearchedList

PATH = "/orgs"
_COLUMNS = (
    Column("name", "Org", wide=True),
    Column("id", "Id", numeric=True),
    Column("state", "State"),
    Column("connections", "Connections", numeric=True),
    Column("requests", "Requests", numeric=True),
    Column("received", "Received", numeric=True),
    Column("sent", "Sent", numeric=True),
    Column("limits", "Limits", wide=True),
)


async def show(session: ConsoleSession, query: Query) -> None:
    """Build the page."""

    async def read(search: str, number: int) -> PageOf[OrgDetails] | None:
        return await org_page(session.cluster, search, number)

    await SearchedList(
        PATH, "orgs", _COLUMNS, read, _row,
        ("No orgs", "A command creates one.", "quafka orgs create NAME"),
    ).build(query)  # fmt: skip


def _row(each: OrgDetails) -> list[str | Shown]:
    limits = ", ".join(f"{name}={value:g}" for name, value in each.limits.items())
    return [
        formats.shown(each.name),
        str(each.id),
        Shown(each.state, bad=each.state != "active"),
        formats.number(each.connections),
        formats.number(each.requests),
        formats.size(each.received_bytes),
        formats.size(each.sent_bytes),
        Shown(formats.shown(limits, 120) or "none", hint=formats.shown(limits, 2_000)),
    ]
