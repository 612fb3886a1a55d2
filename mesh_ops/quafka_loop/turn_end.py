"""Calls at the end of a turn of the event loop.

asyncio has no such hook: `call_soon` runs in the next turn, after one more poll of the sockets.
What is written during a turn must leave in one packet, and at once if it is alone: so it is sent
when the callbacks of the turn are done, before the loop polls.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

_ATTRIBUTE = "_quafka_turn_end"


class TurnEnd:
    """The end of the current turn of one event loop. Use `turn_end` to get the loop's."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop: Any = loop
        self._first: list[Callable[[], object]] = []
        self._due: list[Callable[[], object]] = []
        self._last: list[Callable[[], object]] = []
        # The private parts of asyncio that this needs; other loops have none of them.
        selector: Any = getattr(loop, "_selector", None)
        self._has_ends = hasattr(selector, "select") and hasattr(loop, "_ready")
        if self._has_ends:
            self._poll = selector.select
            selector.select = self._select

    def call(self, callback: Callable[[], object]) -> None:
        """Call back once at the end of this turn; at the end of the next one from such a call.

        With a loop that is not asyncio's own, call back in the next turn.
        """
        if self._has_ends:
            self._due.append(callback)
        else:
            self._loop.call_soon(callback)

    def call_first(self, callback: Callable[[], object]) -> None:
        """As `call`, but before all that is due by `call`, also by this callback."""
        if self._has_ends:
            self._first.append(callback)
        else:
            self._loop.call_soon(callback)

    def call_last(self, callback: Callable[[], object]) -> None:
        """As `call`, but after all that is due by `call`; what this callback has to send leaves at
        the end of the next turn, after what arrives until then was read."""
        if self._has_ends:
            self._last.append(callback)
        else:
            self._loop.call_soon(callback)

    def _select(self, timeout: float | None = None) -> Any:
        """Make the due calls, then poll as the selector does."""
        if self._due or self._first or self._last:
            self._run()
            timeout = self._recomputed(timeout)
        return self._poll(timeout)

    def _run(self) -> None:
        if self._first:
            first, self._first = self._first, []
            self._make(first)
        due, self._due = self._due, []
        self._make(due)
        if self._last:
            last, self._last = self._last, []
            self._make(last)

    def _make(self, calls: list[Callable[[], object]]) -> None:
        for callback in calls:
            try:
                callback()
            except Exception as e:
                context = {"message": f"at the end of a turn: {callback!r}", "exception": e}
                self._loop.call_exception_handler(context)

    def _recomputed(self, timeout: float | None) -> float | None:
        """Return how long the loop may wait now: the calls may have left work for it."""
        if timeout == 0 or self._due or self._first or self._last:
            return 0
        if self._loop._ready:  # noqa: SLF001
            return 0
        scheduled = self._loop._scheduled  # noqa: SLF001
        if not scheduled:
            return timeout
        ahead: float = max(0.0, scheduled[0].when() - self._loop.time())
        return ahead if timeout is None else min(timeout, ahead)


def turn_end(loop: asyncio.AbstractEventLoop) -> TurnEnd:
    """Return the loop's `TurnEnd`."""
    found = getattr(loop, _ATTRIBUTE, None)
    if found is None:
        found = TurnEnd(loop)
        setattr(loop, _ATTRIBUTE, found)
    return found
