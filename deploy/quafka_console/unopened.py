"""Pages that were sent, and that no browser has opened yet: a bound on their memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

MOST_UNOPENED = 200


class SentPage(Protocol):
    """What NiceGUI keeps of a page: its client."""

    id: str

    def on_connect(self, handler: Callable[[], None]) -> None:
        """Call it when the browser's websocket comes."""
        ...

    def on_delete(self, handler: Callable[[], None]) -> None:
        """Call it when the page is given up."""
        ...

    def delete(self) -> None:
        """Give the page up."""
        ...


class UnopenedPages:
    """The pages whose websocket has not come; of too many the oldest is given up.

    NiceGUI keeps each for a minute, so whoever only asks for pages would fill the memory. A browser
    whose page was given up loads it again.
    """

    def __init__(self, most: int = MOST_UNOPENED) -> None:
        self._most = most
        self._waiting: dict[str, SentPage] = {}

    def add(self, page: SentPage) -> None:
        """Keep a page that is complete."""
        key = page.id

        def forget() -> None:
            self._waiting.pop(key, None)

        page.on_connect(forget)
        page.on_delete(forget)
        self._waiting[key] = page
        while len(self._waiting) > self._most:
            self._waiting.pop(next(iter(self._waiting))).delete()
