"""Answers parked members, a few in each turn of the loop, however many are due at once."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import TypeVar

_PER_TURN = 16
"""Each answer wakes a task that encodes and sends it: some 100 µs."""

R = TypeVar("R")


class AnswerQueue:
    """Resolves futures in the order in which they are submitted. For one event loop."""

    def __init__(self) -> None:
        self._queue: deque[Callable[[], None]] = deque()
        self._resolved = 0  # in this turn of the loop
        self._scheduled = False

    def resolve(self, answer: asyncio.Future[R], value: R) -> None:
        """Resolve a future now or, where many are due at once, in one of the next turns."""
        if self._resolved < _PER_TURN and not self._queue:
            self._set(answer, value)
        else:
            self._queue.append(partial(self._set, answer, value))
        self._schedule()

    def _set(self, answer: asyncio.Future[R], value: R) -> None:
        if not answer.done():
            answer.set_result(value)
            self._resolved += 1

    def _schedule(self) -> None:
        if not self._scheduled:
            self._scheduled = True
            asyncio.get_running_loop().call_soon(self._next)

    def _next(self) -> None:
        self._scheduled = False
        self._resolved = 0
        while self._queue and self._resolved < _PER_TURN:
            self._queue.popleft()()
        if self._queue:
            self._schedule()
