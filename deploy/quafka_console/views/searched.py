"""A page with a search and a list that is paged at the server: what several pages are."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from nicegui import ui

from quafka_console.data.paging import PageOf
from quafka_console.session import Query
from quafka_console.views.parts import address, states
from quafka_console.views.parts.live import LivePart
from quafka_console.views.parts.table import Column, Shown, pager, table

T = TypeVar("T")
Row = Sequence[str | Shown]


class SearchedList:
    """The list of a page: `read` gets the search and the number of the page.

    Args:
        what: the name of its rows, in the plural.
        empty: without rows: what to show, what to do, and a command for that.
        pick: gets a row that is clicked. `picks` is a sentence about that.
    """

    def __init__(
        self,
        path: str,
        what: str,
        columns: Sequence[Column],
        read: Callable[[str, int], Awaitable[PageOf[T] | None]],
        row: Callable[[T], Row],
        empty: tuple[str, ...],
        pick: Callable[[T], Awaitable[None]] | None = None,
        picks: str = "",
    ) -> None:
        self._path, self._what = path, what
        self._search, self._number = "", 0

        async def reading() -> PageOf[T] | None:
            return await read(self._search, self._number)

        def fill(found: PageOf[T] | None) -> None:
            if found is None or not found.total:
                states.empty(*empty)
                return
            if not found.rows:
                states.empty(f"No {what} match", "Change the search.")
                return
            rows = found.rows

            async def picked(number: int) -> None:
                if pick is not None:
                    await pick(rows[number])

            table(columns, [row(each) for each in rows], on_pick=picked if pick else None)
            pager(found, what, self._go)
            if pick is not None and picks:
                ui.label(picks).classes("q-soft")

        self._reading, self._filling = reading, fill

    async def build(self, query: Query) -> None:
        """Show the search and the list."""
        self._search = query.get("search", "")
        self._number = address.page_of(query)
        ui.input(
            placeholder=f"search {self._what}", value=self._search,
            on_change=lambda event: self._find(event.value or ""),
        ).props(
            f'dense outlined clearable debounce=250 type=search aria-label="search {self._what}"'
        ).classes("q-search")  # fmt: skip
        self._part = LivePart(self._reading, self._filling)
        await self._part.start()

    async def refresh(self) -> None:
        """Read the list again."""
        await self._part.refresh()

    async def _find(self, search: str) -> None:
        self._search = search
        await self._go(0)

    async def _go(self, number: int) -> None:
        self._number = number
        address.keep(address.link(self._path, search=self._search, page=number))
        await self._part.refresh()
