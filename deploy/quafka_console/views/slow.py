"""Slow requests and ops, with links to their traces."""

from __future__ import annotations

from quafka_console.data.paging import PageOf, page_of
from quafka_console.data.slow import ReportedRequest, slow_requests
from quafka_console.session import ConsoleSession, Query
from quafka_console.views.parts import address, formats
from quafka_console.views.parts.operations import status_pages_of, status_problems
from quafka_console.views.parts.table import Column, Shown, moment
from quafka_console.views.searched import SearchedList

PATH = "/slow"
_COLUMNS = (
    Column("ended", "Ended"),
    Column("name", "Request"),
    Column("asker", "Client or gateway", wide=True),
    Column("address", "Address"),
    Column("took", "Took", numeric=True),
    Column("parked", "Waited for data", numeric=True),
    Column("errors", "Errors", wide=True),
    Column("trace", "Trace"),
)


async def show(session: ConsoleSession, query: Query) -> None:
    """Build the page."""
    status_problems(await status_pages_of(session))

    async def read(search: str, number: int) -> PageOf[ReportedRequest]:
        found = slow_requests((await status_pages_of(session)).pages)
        return page_of(found, search, _texts, number)

    await SearchedList(
        PATH, "slow requests", _COLUMNS, read, _row,
        ("No slow requests", "Requests that take ops.slow.ms or longer appear here."),
    ).build(query)  # fmt: skip


def _texts(each: ReportedRequest) -> tuple[str, ...]:
    return each.name, each.asker, each.address, each.errors, each.trace_id


def _row(each: ReportedRequest) -> list[str | Shown]:
    trace = each.trace_id
    return [
        moment(each.ended),
        formats.shown(each.name),
        formats.shown(each.asker, 60),
        formats.shown(each.address, 60),
        formats.duration(each.seconds),
        formats.duration(each.parked_seconds) if each.parked_seconds else "",
        formats.shown(each.errors),
        Shown(trace[:16], href=address.link("/trace", id=trace)) if trace else "",
    ]
