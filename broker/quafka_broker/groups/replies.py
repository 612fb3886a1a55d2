"""Answers to parked members: few in each turn of the loop, however many are due at once."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Any

_PER_TURN = 16
"""Each answer wakes a task that encodes and sends it: some 100 µs."""


class Replies:
    """Gives answers in the order in which they are due. For one event loop."""

    def __init__(self) -> None:
        self._line: deque[tuple[asyncio.Future[Any], Any]] = deque()
        self._given = 0  # in this turn of the loop
        self._called = False

    def give(self, answer: asyncio.Future[Any], value: Any) -> None:
        """Answer now or, where many are answered at once, in one of the next turns."""
        if self._given < _PER_TURN and not self._line:
            self._set(answer, value)
        else:
            self._line.append((answer, value))
        self._call()

    def _set(self, answer: asyncio.Future[Any], value: Any) -> None:
        if not answer.done():
            answer.set_result(value)
            self._given += 1

    def _call(self) -> None:
        if not self._called:
            self._called = True
            asyncio.get_running_loop().call_soon(self._next)

    def _next(self) -> None:
        self._called = False
        self._given = 0
        while self._line and self._given < _PER_TURN:
            self._set(*self._line.popleft())
        if self._line:
            self._call()
