"""Turns of an org that has the event loop for itself, and of one that shares it."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable


class Alone:
    """All work runs at once."""

    shared = False

    def run(self, work: Callable[[], None]) -> None:
        work()

    def defer(self, work: Callable[[], None]) -> None:
        raise AssertionError("there is no other org")


class Waiting:
    """Work waits until the test gives the org a turn."""

    shared = True

    def __init__(self) -> None:
        self.work: deque[Callable[[], None]] = deque()

    def run(self, work: Callable[[], None]) -> None:
        self.work.append(work)

    def defer(self, work: Callable[[], None]) -> None:
        self.work.append(work)
