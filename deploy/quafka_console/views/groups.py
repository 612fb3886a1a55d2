"""The list of groups: classic, consumer and share groups, with their lag."""

from __future__ import annotations

from dataclasses import replace

from nicegui import ui

from quafka_client.groups import GroupSummary
from quafka_console.data.groups import BY_LAG, BY_NAME, SHARE, GroupPage, GroupQuery, group_page
from quafka_console.session import ConsoleSession, Query
from quafka_console.views.parts import address, formats, lags, states
from quafka_console.views.parts.live import LivePart
from quafka_console.views.parts.table import Column, Shown, pager, table

PATH = "/groups"
_COLUMNS = (
    Column("group", "Group", wide=True),
    Column("kind", "Type"),
    Column("state", "State"),
    Column("members", "Members", numeric=True),
    Column("lag", "Lag, records", numeric=True),
    Column("behind", "Behind", numeric=True),
)
_ORDERS = {BY_NAME: "by name", BY_LAG: "largest lag first"}
_ANY = ""


async def show(session: ConsoleSession, query: Query) -> None:
    """Build the page."""
    view = _GroupList(session, _asked(query))
    with ui.row().classes("items-center w-full gap-3 q-filters"):
        search = ui.input(
            placeholder="search groups",
            value=view.query.search,
            on_change=lambda event: view.change(search=event.value or ""),
        )
        search.props('dense outlined clearable debounce=250 type=search aria-label="search groups"')
        kinds = {_ANY: "all types", "classic": "classic", "consumer": "consumer", SHARE: "share"}
        ui.select(
            kinds, value=view.query.kind, on_change=lambda event: view.change(kind=event.value)
        ).props('dense outlined options-dense aria-label="type"')
        ui.select(
            _ORDERS, value=view.query.order, on_change=lambda event: view.change(order=event.value)
        ).props('dense outlined options-dense aria-label="order"')
    await view.build()


def _asked(query: Query) -> GroupQuery:
    order = query.get("order", BY_NAME)
    return GroupQuery(
        query.get("search", ""),
        query.get("kind", _ANY),
        order if order in _ORDERS else BY_NAME,
        address.page_of(query),
    )


class _GroupList:
    """The list, its state, and what it shows of it."""

    def __init__(self, session: ConsoleSession, query: GroupQuery) -> None:
        self._session = session
        self.query = query

    async def build(self) -> None:
        """Show the list, and keep it up to date."""
        self._part = LivePart(self._read, self._fill)
        await self._part.start()

    async def _read(self) -> GroupPage:
        by_lag = self.query.order == BY_LAG
        known = await lags.all_lags(self._session) if by_lag else None
        found = await group_page(self._session.cluster, self.query, known)
        lags.note(self._session, found.page.rows)
        return found

    async def change(self, **changes: str | int) -> None:
        """Show another part of the list; its address follows."""
        self.query = replace(self.query, **{"number": 0, **changes})  # type: ignore[arg-type]
        query = self.query
        address.keep(
            address.link(
                PATH, search=query.search, kind=query.kind,
                order="" if query.order == BY_NAME else query.order, page=query.number,
            )
        )  # fmt: skip
        await self._part.refresh()

    def _fill(self, found: GroupPage) -> None:
        if not found.page.total:
            states.empty(
                "No groups yet",
                "A group appears when its first consumer connects.",
                "quafka consume TOPIC --group NAME",
            )
            return
        if not found.page.rows:
            states.empty("No group matches", "Change the search or the type.")
            return
        if not found.is_sorted:
            states.problem("too many groups to be sorted by lag; search to narrow the list")
        table(_COLUMNS, [_row(each) for each in found.page.rows])
        pager(found.page, "groups", lambda number: self.change(number=number))


def _row(group: GroupSummary) -> list[str | Shown]:
    idle = not group.members
    left = idle and bool(group.lag)
    return [
        Shown(formats.shown(group.group), href=address.link("/group", name=group.group)),
        group.kind,
        Shown("no members" if idle and group.state == "Empty" else group.state, bad=left),
        formats.number(group.members),
        Shown(formats.number(group.lag), bad=left),
        formats.duration(group.behind_seconds),
    ]
