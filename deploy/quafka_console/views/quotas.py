"""Quotas of users, client ids and addresses."""

from __future__ import annotations

from nicegui import ui

from quafka_client import quotas
from quafka_client.errors import ClientError
from quafka_client.quotas import EntityQuotas
from quafka_console.data.access import AccessQuery, quota_page
from quafka_console.data.paging import PageOf
from quafka_console.session import ConsoleSession, Query
from quafka_console.views.parts import formats
from quafka_console.views.parts.audit import audited
from quafka_console.views.parts.confirm import confirmed
from quafka_console.views.parts.table import Column, Shown
from quafka_console.views.searched import SearchedList

PATH = "/quotas"
_UNITS = {
    "producer_byte_rate": "bytes/s produced", "consumer_byte_rate": "bytes/s consumed",
    "request_percentage": "% of a thread", "connection_creation_rate": "connections/s",
    "controller_mutation_rate": "changes of partitions/s",
}  # fmt: skip
_COLUMNS = (Column("entity", "For", wide=True), Column("quotas", "Quotas", wide=True))


async def show(session: ConsoleSession, query: Query) -> None:
    """Build the page."""

    async def read(search: str, number: int) -> PageOf[EntityQuotas]:
        return await quota_page(session.cluster, AccessQuery(search, number))

    async def remove(each: EntityQuotas) -> None:
        name = quotas.text_of(each.entity)
        sure = await confirmed(
            "Remove these quotas?", name, ["Its clients are no longer limited by them."],
            "Remove the quotas",
        )  # fmt: skip
        if not sure:
            return
        try:
            with audited(session, "remove quotas", name):
                entity = tuple(each.entity.items())
                await quotas.alter(
                    session.cluster, entity, {}, list(each.quotas), validate_only=False
                )
        except ClientError as e:
            ui.notify(formats.shown(str(e), 300), type="negative")
        await found.refresh()

    found = SearchedList(
        PATH, "quotas", _COLUMNS, read, _row,
        ("No quotas", "A command sets them:", "quafka quotas set --user NAME KEY=VALUE"),
        pick=remove if session.may_write else None, picks="Select a row to remove its quotas.",
    )  # fmt: skip
    await found.build(query)


def _row(each: EntityQuotas) -> list[str | Shown]:
    values = ", ".join(_value(name, value) for name, value in each.quotas.items())
    return [formats.shown(quotas.text_of(each.entity)), formats.shown(values)]


def _value(name: str, value: float) -> str:
    if name.endswith("_byte_rate"):
        return f"{name.removesuffix('_byte_rate')}: {formats.size(value)}/s"
    return f"{value:,g} {_UNITS.get(name, name)}"
