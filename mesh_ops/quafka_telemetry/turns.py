"""Bounds how many large answers of a connection are made at a time, in the order of requests."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable


class Turns:
    """The turns of one connection's ops, by request id.

    No op is admitted while `is_full` returns True. Call `admit` when that may have changed.
    """

    def __init__(self, most: int, is_full: Callable[[], bool]) -> None:
        self._most = most
        self._is_full = is_full
        self._taken: set[int] = set()
        self._waiting: OrderedDict[int, asyncio.Future[None]] = OrderedDict()

    def __len__(self) -> int:
        """The number of ops that have a turn or wait for one."""
        return len(self._taken) + len(self._waiting)

    async def acquire(self, request_id: int) -> None:
        """Wait for a turn. It lasts until `release`, which must follow even if this fails."""
        if not self._waiting and len(self._taken) < self._most and not self._is_full():
            self._taken.add(request_id)  # the usual case, without a future
            return
        turn = self._waiting[request_id] = asyncio.get_running_loop().create_future()
        await turn

    def release(self, request_id: int) -> None:
        """End the turn of an op that is over, or its wait for one."""
        self._taken.discard(request_id)
        self._waiting.pop(request_id, None)
        self.admit()

    def admit(self) -> None:
        """Admit as many waiting ops as the bound allows."""
        while self._waiting and len(self._taken) < self._most and not self._is_full():
            request_id, turn = self._waiting.popitem(last=False)
            if not turn.done():
                self._taken.add(request_id)
                turn.set_result(None)
