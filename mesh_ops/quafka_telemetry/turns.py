"""Who may make a large answer now: a bounded number at a time, in the order of asking."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable


class Turns:
    """Turns of one connection's ops, named by request id.

    Nobody is let in while `is_full` says so; `admit` is to be called when that may have changed.
    """

    def __init__(self, most: int, is_full: Callable[[], bool]) -> None:
        self._most = most
        self._is_full = is_full
        self._taken: set[int] = set()
        self._waiting: OrderedDict[int, asyncio.Future[None]] = OrderedDict()

    def __len__(self) -> int:
        """How many have a turn or wait for one."""
        return len(self._taken) + len(self._waiting)

    async def acquire(self, request_id: int) -> None:
        """Wait for a turn; it lasts until `release`, which must follow also where this fails."""
        if not self._waiting and len(self._taken) < self._most and not self._is_full():
            self._taken.add(request_id)  # the usual case, without a future
            return
        turn = self._waiting[request_id] = asyncio.get_running_loop().create_future()
        await turn

    def release(self, request_id: int) -> None:
        """The op is over, whether it had a turn or not."""
        self._taken.discard(request_id)
        self._waiting.pop(request_id, None)
        self.admit()

    def admit(self) -> None:
        """Let in as many as may."""
        while self._waiting and len(self._taken) < self._most and not self._is_full():
            request_id, turn = self._waiting.popitem(last=False)
            if not turn.done():
                self._taken.add(request_id)
                turn.set_result(None)
