"""An event loop whose clock jumps to the next timer: minutes pass in milliseconds."""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class _NoWaiting(selectors.DefaultSelector):
    """Counts the time that the loop would wait."""

    now = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        assert timeout is not None, "nothing is left that could happen"
        self.now += max(0.0, timeout)
        return []


class VirtualLoop(asyncio.SelectorEventLoop):
    """A loop for code without sockets and threads. Tasks and timers run in a determined order."""

    def __init__(self) -> None:
        self._waiting = _NoWaiting()
        super().__init__(self._waiting)

    def time(self) -> float:
        return self._waiting.now


def run(main: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine to its end, at virtual time; all tasks end with it."""
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(main)
