"""Limits the steps in each turn of the event loop, however many callers arrive in one.

The callers' writes still share a commit, unlike those of one caller at a time.
"""

from __future__ import annotations

import asyncio
from collections import deque


class Pace:
    """Lets callers continue in their order. For one event loop."""

    def __init__(self, at_once: int) -> None:
        """`at_once`: how many callers continue in one turn."""
        self._at_once = self._left = at_once
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._called = False

    async def turn(self) -> None:
        """Return when it is this caller's turn: at once if few callers came before it."""
        loop = asyncio.get_running_loop()
        if not self._called:
            self._called = True
            loop.call_soon(self._next)
        if self._left:
            self._left -= 1
            return
        turn = loop.create_future()
        self._waiting.append(turn)
        await turn

    def _next(self) -> None:
        self._called, self._left = False, self._at_once
        while self._waiting and self._left:
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(None)
                self._left -= 1
        if self._left < self._at_once:
            self._called = True
            asyncio.get_running_loop().call_soon(self._next)
