"""A part of a page that is read again every few seconds, and sent only when it has changed."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

from nicegui import ui

from quafka_client.errors import ClientError
from quafka_console.data.refresh_turns import RefreshTurns
from quafka_console.views.parts import states

T = TypeVar("T")
REFRESH_SECONDS = 5.0
_TURNS = RefreshTurns()


def keep_refreshing(
    refresh: Callable[[], Awaitable[None]], seconds: float = REFRESH_SECONDS
) -> None:
    """Call `refresh` every few seconds while the page is open, in turn with all other pages."""

    async def in_turn() -> None:
        async with _TURNS.turn():
            await refresh()

    ui.timer(seconds, in_turn, immediate=False)


class LivePart(Generic[T]):
    """Shows what `read` returns by `fill`; an error of `read` as a sentence instead.

    What `read` returns is compared with what it returned before.
    """

    def __init__(self, read: Callable[[], Awaitable[T]], fill: Callable[[T], None]) -> None:
        self._read, self._fill = read, fill
        self._last: T | str | None = None
        self._reading = 0
        self._box = ui.column().classes("w-full gap-3")

    async def start(self, seconds: float = REFRESH_SECONDS) -> None:
        """Show it, and show it again whenever it has changed."""
        await self.refresh()
        keep_refreshing(self.refresh, seconds)

    def start_later(self, seconds: float = REFRESH_SECONDS) -> None:
        """As `start`, once the page has been sent: for what takes long to read."""
        ui.timer(0.05, self.refresh, once=True)
        keep_refreshing(self.refresh, seconds)

    async def refresh(self) -> None:
        """Read it again; the answer of an earlier reading that comes late is not shown."""
        self._reading += 1
        turn = self._reading
        found: T | str
        try:
            found = await self._read()
        except ClientError as e:
            found = str(e)
        if turn != self._reading or (found == self._last and self._last is not None):
            return
        if self._box.is_deleted:  # the page was left while it was read
            return
        self._last = found
        self._box.clear()
        with self._box:
            if isinstance(found, str):
                states.problem(found)
            else:
                self._fill(found)
